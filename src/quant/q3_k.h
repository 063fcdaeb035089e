// Q3_K: 256 weights, 110 bytes, in 16 groups of 16.
//   0    hmask[32]: bit 4h + s of byte p is the third bit of weight 128h + 32s + p
//   32   qs[64]: the low two bits, laid out as in Q2_K
//   96   scales[12]: sixteen 6-bit scales; group g: low four bits in the low (g < 8) or high nibble of byte g mod 8,
//   high two
//        bits at bits 2 * (g div 4) of byte 8 + g mod 4
//   108  f16 d
// weight = d * (scale - 32) * (code - 4)
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ3_K {
  static constexpr int kElements = 256;
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

/// Scale of group g, -32..31.
static constexpr int group_scale(const BlockQ3_K& b, int g) noexcept {
  const int low = g < 8 ? b.scales[g] & 15 : b.scales[g - 8] >> 4;
  return (low | ((b.scales[8 + g % 4] >> (g / 4 * 2)) & 3) << 4) - 32;
}

static constexpr void decode_block(const BlockQ3_K& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(group_scale(b, g));
    const int lane = g % 2 * 16, shift = g % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) {
      const int low = (b.qs[g / 8 * 32 + lane + j] >> shift) & 3;
      const int high = (b.hmask[lane + j] >> (g / 2)) & 1;
      out[16 * g + j] = scale * static_cast<float>((low | high << 2) - 4);
    }
  }
}

}  // namespace tern::quant
