// The convolution of a delta net where the product in front of it has one row: depthwise, so that the thread that
// stores a result has all that its channel needs. Plain data, and what device code does with it.
#pragma once
#include <cstdint>

#include "plan/step.h"

namespace tern::cuda {

/// result = silu(sum over t of kernel[c][t] * (the channel's last kConvTaps values)[t]), and the state goes on.
constexpr int64_t kConvTaps = 4;
struct Convolution {
  const float* kernel = nullptr;  // [channels][kConvTaps]; none: no convolution
  const SeqRows* seq = nullptr;   // of the row
  float* state = nullptr;         // of slot 0: [kConvTaps - 1][channels], oldest first
  int64_t state_floats = 0;       // from a slot to the next
};

#ifdef __CUDACC__
/// A channel before its newest value.
struct ConvChannel {
  float4 taps{};
  float past[kConvTaps - 1] = {};
  float* to = nullptr;  // the oldest value of the state that is written
};
inline __device__ ConvChannel read_channel(const Convolution& c, int channel, int channels) {
  const SeqRows seq = *c.seq;
  ConvChannel v{.taps = reinterpret_cast<const float4*>(c.kernel)[channel],
                .to = c.state + seq.state_out * c.state_floats + channel};
  if (seq.state_in == kZeroState) return v;
  const float* const from = c.state + seq.state_in * c.state_floats + channel;
  for (int t = 0; t < kConvTaps - 1; ++t) v.past[t] = from[static_cast<int64_t>(t) * channels];
  return v;
}
inline __device__ float convolve(const ConvChannel& v, float newest, int channels) {
  float sum = 0;
  sum += v.taps.x * v.past[0];
  sum += v.taps.y * v.past[1];
  sum += v.taps.z * v.past[2];
  sum += v.taps.w * newest;
  v.to[0] = v.past[1];
  v.to[channels] = v.past[2];
  v.to[2 * static_cast<int64_t>(channels)] = newest;
  return sum * (1.0f / (1.0f + expf(-sum)));
}
#endif

}  // namespace tern::cuda
