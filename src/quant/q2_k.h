// Q2_K: 256 weights, 84 bytes, in 16 groups of 16.
//   0   scales[16]: group g: scale in the low nibble, minimum in the high nibble
//   16  qs[64]: 2-bit codes; half h (128 weights) uses bytes 32h..32h+31, its weight 32s + p sits at bits 2s of byte
//   32h + p 80  f16 d, 82  f16 dmin
// weight = d * scale * code - dmin * minimum
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ2_K {
  static constexpr int kElements = 256;
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d, dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

static constexpr void decode_block(const BlockQ2_K& b, float* out) noexcept {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b.scales[g] & 15);
    const float minimum = dmin * static_cast<float>(b.scales[g] >> 4);
    const uint8_t* qs = b.qs + g / 8 * 32 + g % 2 * 16;
    const int shift = g % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) out[16 * g + j] = scale * static_cast<float>((qs[j] >> shift) & 3) - minimum;
  }
}

}  // namespace tern::quant
