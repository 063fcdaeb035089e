// Float weights as f32, for device code.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tern::cuda {

/// Two columns of a weight row, which lie in a word, as f32.
__device__ __forceinline__ float2 widen(uint32_t w, __half) {
  return {__half2float(__ushort_as_half(static_cast<unsigned short>(w))),
          __half2float(__ushort_as_half(static_cast<unsigned short>(w >> 16)))};
}
__device__ __forceinline__ float2 widen(uint32_t w, __nv_bfloat16) {
  return {__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)};
}
/// kWords words of a weight row as f32: as many columns, or twice as many of 16 bits.
template <typename T, int kWords>
__device__ __forceinline__ void widen(const uint32_t (&w)[kWords], float (&f)[kWords * 4 / sizeof(T)]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (sizeof(T) == 4) {
      f[i] = __uint_as_float(w[i]);
    } else {
      const float2 two = widen(w[i], T{});
      f[2 * i] = two.x, f[2 * i + 1] = two.y;
    }
  }
}

}  // namespace tern::cuda
