// The gates of a delta-net head, for device code.
#pragma once
#include <cmath>

#include "backend/cuda/ops.h"

namespace tern::cuda {

inline __device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
inline __device__ float softplus(float x) {
  return x > 20 ? x : log1pf(expf(x));
}

struct DeltaGates {
  float log_decay, beta;
};
inline __device__ DeltaGates delta_gates(const DeltaArgs& a, int64_t row, int head) {
  const int64_t at = row * a.v_heads + head;
  return {a.a[head] * softplus(a.alpha[at] + a.dt[head]), sigmoid(a.beta[at])};
}

}  // namespace tern::cuda
