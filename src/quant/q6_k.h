// Q6_K: 256 weights, 210 bytes, in 16 groups of 16. In half h (128 weights) let weight 32s + p have s = 0..3, p =
// 0..31:
//   0    ql[128]: low four bits: byte 64h + 32 * (s mod 2) + p, low nibble for s < 2, high nibble otherwise
//   128  qh[64]: high two bits: bits 2s of byte 32h + p
//   192  int8 scales[16]
//   208  f16 d
// weight = d * scale * (code - 32)
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/rounding.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ6_K {
  static constexpr int kElements = 256;
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

static constexpr void decode_block(const BlockQ6_K& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b.scales[g]);
    const int half = g / 8, s = g % 8 / 2, lane = g % 2 * 16;
    const uint8_t* ql = b.ql + 64 * half + s % 2 * 32 + lane;
    const uint8_t* qh = b.qh + 32 * half + lane;
    for (int j = 0; j < 16; ++j) {
      const int code = ((ql[j] >> (s / 2 * 4)) & 15) | ((qh[j] >> (2 * s)) & 3) << 4;
      out[16 * g + j] = scale * static_cast<float>(code - 32);
    }
  }
}

/// The plain encoder: the weight of largest magnitude of a group lands on -32, no search for better scales.
static constexpr void encode_block(const float* x, BlockQ6_K& b) noexcept {
  float step[16] = {};
  for (int g = 0; g < 16; ++g) step[g] = signed_max(x + 16 * g, 16) / -32.0f;
  b.d = f32_to_f16(signed_max(step, 16) / -128.0f);
  const float d = f16_to_f32(b.d), id = inverse_or_zero(d);
  for (uint8_t& byte : b.ql) byte = 0;
  for (uint8_t& byte : b.qh) byte = 0;
  for (int g = 0; g < 16; ++g) {
    const int scale = round_away(step[g] * id, -128, 127);
    b.scales[g] = static_cast<int8_t>(scale);
    const float inverse = inverse_or_zero(d * static_cast<float>(scale));
    const int half = g / 8, s = g % 8 / 2, lane = g % 2 * 16;
    for (int j = 0; j < 16; ++j) {
      const int code = round_away(x[16 * g + j] * inverse, -32, 31) + 32;
      b.ql[64 * half + s % 2 * 32 + lane + j] |= static_cast<uint8_t>((code & 15) << (s / 2 * 4));
      b.qh[32 * half + lane + j] |= static_cast<uint8_t>((code >> 4) << (2 * s));
    }
  }
}

}  // namespace tern::quant
