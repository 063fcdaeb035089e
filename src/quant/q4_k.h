// Q4_K: 256 weights, 144 bytes, in 8 groups of 32.
//   0   f16 d, 2  f16 dmin
//   4   scales[12]: 6-bit scales and minima (k_scales.h)
//   16  qs[128]: bytes 32i..32i+31 hold group 2i in their low nibbles and group 2i + 1 in their high nibbles
// weight = d * scale * nibble - dmin * minimum
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/k_scales.h"
#include "quant/rounding.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ4_K {
  static constexpr int kElements = 256;
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

static constexpr void decode_block(const BlockQ4_K& b, float* out) noexcept {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin s = unpack_scale_min(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    const uint8_t* qs = b.qs + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int j = 0; j < 32; ++j) out[32 * g + j] = scale * static_cast<float>((qs[j] >> shift) & 15) - minimum;
  }
}

/// The plain encoder: each group spans [min(0, x), max(0, x)], no search for better scales.
static constexpr void encode_block(const float* x, BlockQ4_K& b) noexcept {
  float step[8] = {}, floor[8] = {};
  for (int g = 0; g < 8; ++g) {
    float lo = 0, hi = 0;
    for (int j = 0; j < 32; ++j) {
      const float v = x[32 * g + j];
      lo = v < lo ? v : lo;
      hi = v > hi ? v : hi;
    }
    step[g] = (hi - lo) / 15.0f;
    floor[g] = -lo;
  }
  b.d = f32_to_f16(max_magnitude(step, 8) / 63.0f);
  b.dmin = f32_to_f16(max_magnitude(floor, 8) / 63.0f);
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  ScaleMin s[8] = {};
  for (int g = 0; g < 8; ++g) {
    s[g].scale = static_cast<uint8_t>(round_away(step[g] * inverse_or_zero(d), 0, 63));
    s[g].minimum = static_cast<uint8_t>(round_away(floor[g] * inverse_or_zero(dmin), 0, 63));
  }
  pack_scale_min(s, b.scales);
  for (int g = 0; g < 8; ++g) {
    const float id = inverse_or_zero(d * static_cast<float>(s[g].scale));
    const float minimum = dmin * static_cast<float>(s[g].minimum);
    for (int j = 0; j < 32; ++j) {
      const auto code = static_cast<uint8_t>(round_away((x[32 * g + j] + minimum) * id, 0, 15));
      uint8_t& byte = b.qs[g / 2 * 32 + j];
      byte = static_cast<uint8_t>(g % 2 == 0 ? code : byte | code << 4);
    }
  }
}

}  // namespace tern::quant
