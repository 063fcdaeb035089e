// IQ4_XS: 256 weights, 136 bytes, in 8 groups of 32.
//   0  f16 d
//   2  u16 scales_h: bits 2g are the high two bits of the scale of group g
//   4  scales_l[4]: its low four bits, group g in nibble g mod 2 of byte g div 2
//   8  qs[128]: group g uses bytes 16g..16g+15, laid out as in IQ4_NL
// weight = d * (scale - 32) * kIq4Values[nibble]
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/iq4_nl.h"

namespace tern::quant {

struct [[gnu::packed]] BlockIQ4_XS {
  static constexpr int kElements = 256;
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

/// Scale of group g, -32..31.
static constexpr int group_scale(const BlockIQ4_XS& b, int g) noexcept {
  return (((b.scales_l[g / 2] >> (g % 2 * 4)) & 15) | ((b.scales_h >> (2 * g)) & 3) << 4) - 32;
}

static constexpr void decode_block(const BlockIQ4_XS& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(group_scale(b, g));
    for (int j = 0; j < 16; ++j) {
      const uint8_t byte = b.qs[16 * g + j];
      out[32 * g + j] = scale * static_cast<float>(kIq4Values[byte & 15]);
      out[32 * g + j + 16] = scale * static_cast<float>(kIq4Values[byte >> 4]);
    }
  }
}

}  // namespace tern::quant
