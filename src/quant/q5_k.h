// Q5_K: 256 weights, 176 bytes, in 8 groups of 32.
//   0   f16 d, 2  f16 dmin
//   4   scales[12]: 6-bit scales and minima (k_scales.h)
//   16  qh[32]: bit g of byte j is the fifth bit of weight 32g + j
//   48  qs[128]: the low four bits, laid out as in Q4_K
// weight = d * scale * code - dmin * minimum
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/k_scales.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ5_K {
  static constexpr int kElements = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

static constexpr void decode_block(const BlockQ5_K& b, float* out) noexcept {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin s = unpack_scale_min(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    const uint8_t* qs = b.qs + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      const int code = ((qs[j] >> shift) & 15) | ((b.qh[j] >> g) & 1) << 4;
      out[32 * g + j] = scale * static_cast<float>(code) - minimum;
    }
  }
}

}  // namespace tern::quant
