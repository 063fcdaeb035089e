// NVFP4: 64 weights, 36 bytes, in 4 groups of 16.
//   0  scales[4]: UE4M3, one a group
//   4  qs[32]: group s uses bytes 8s..8s+7: byte j holds weight 16s + j in its low nibble, 16s + j + 8 in its high
//   nibble
// weight = kE2m1Doubled[nibble] * ue4m3_half(scale). A file may carry one more f32 a tensor, `<name>.scale`, which the
// family multiplies into the product.
#pragma once
#include <bit>
#include <cstdint>

#include "quant/mxfp4.h"

namespace tern::quant {

struct [[gnu::packed]] BlockNVFP4 {
  static constexpr int kElements = 64;
  uint8_t scales[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

/// Half the value of a UE4M3 byte: 0 and 0x7f (NaN in the standard) are 0; bit 7 takes no part beyond that comparison.
static constexpr float ue4m3_half(uint8_t x) noexcept {
  if (x == 0 || x == 0x7f) return 0.0f;
  const uint32_t exponent = (x >> 3) & 15u, mantissa = x & 7u;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>((exponent - 7 + 126) << 23 | mantissa << 20);
}

static constexpr void decode_block(const BlockNVFP4& b, float* out) noexcept {
  for (int s = 0; s < 4; ++s) {
    const float d = ue4m3_half(b.scales[s]);
    for (int j = 0; j < 8; ++j) {
      const uint8_t byte = b.qs[8 * s + j];
      out[16 * s + j] = static_cast<float>(kE2m1Doubled[byte & 15]) * d;
      out[16 * s + j + 8] = static_cast<float>(kE2m1Doubled[byte >> 4]) * d;
    }
  }
}

}  // namespace tern::quant
