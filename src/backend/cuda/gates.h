// The gates of glu, for device code.
#pragma once

namespace tern::cuda {

/// `kind` in the order of Gate: silu, relu squared, sigmoid.
inline __device__ float gate_of(int kind, float x) {
  if (kind == 1) return x > 0 ? x * x : 0.0f;
  const float sigmoid = __fdividef(1.0f, 1.0f + expf(-x));  // to the last bit but one
  return kind == 0 ? x * sigmoid : sigmoid;
}

}  // namespace tern::cuda
