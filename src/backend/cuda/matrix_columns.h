// What the kernels share that compute the activations of a product, four consecutive columns a thread. Rounding follows
// quant::quantize_row to the last integer.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "quant/activation.h"

namespace tern::cuda {

struct Four {
  float v[4];
};

__device__ inline double square(const Four& x) {
  return (static_cast<double>(x.v[0]) * x.v[0] + static_cast<double>(x.v[1]) * x.v[1]) +
         (static_cast<double>(x.v[2]) * x.v[2] + static_cast<double>(x.v[3]) * x.v[3]);
}
__device__ inline double sum_of_lanes(double v, int lanes) {
  for (int i = 1; i < lanes; i *= 2) v += __shfl_xor_sync(~0u, v, i);
  return v;
}
/// `reciprocal`: of the count of columns. The double is rounded to the float that a division and a root would give.
__device__ inline float norm_factor(double squares, double reciprocal, float eps) {
  return static_cast<float>(rsqrt(squares * reciprocal + eps));
}

__device__ inline float magnitude_of(const Four& x) {
  return fmaxf(fmaxf(fabsf(x.v[0]), fabsf(x.v[1])), fmaxf(fabsf(x.v[2]), fabsf(x.v[3])));
}
__device__ inline float most_of_lanes(float v, int lanes) {
  for (int i = 1; i < lanes; i *= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
  return v;
}

/// The largest of a warp's magnitudes: the bits of floats that are not negative are in their order.
__device__ __forceinline__ float largest_of_warp(float v) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v)));
#else
  return most_of_lanes(v, 32);
#endif
}

/// Four columns as int8, the first in the low byte: to the nearest integer, ties to even, which an addition leaves in
/// the low byte of its result. The largest magnitude becomes 127.
__device__ inline uint32_t round_columns(const Four& x, float multiplier) {
  uint32_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = __float_as_uint(__fadd_rn(__fmul_rn(x.v[i], multiplier), 12582912.0f));
  return __byte_perm(__byte_perm(bytes[0], bytes[1], 0x0040), __byte_perm(bytes[2], bytes[3], 0x0040), 0x5410);
}
/// What a group whose largest magnitude is `most` is multiplied by before rounding, and what its integers stand for.
struct GroupScale {
  float multiplier, scale;
};
__device__ inline GroupScale group_scale(float most) {
  if (most < quant::kSmallestAmax) return {0.0f, 0.0f};
  return {__fdiv_rn(127.0f, most), __fdiv_rn(most, 127.0f)};
}
/// The multiplier of a whole row (kI8Row).
__device__ inline float row_multiplier(float most) {
  // 127.0 / max(1e-5, most) in double: a quotient of two floats is rounded alike, and 1e-5 is between two floats
  return most > 1e-5f ? __fdiv_rn(127.0f, most) : static_cast<float>(127.0 / 1e-5);
}

}  // namespace tern::cuda
