// Q4_0: 32 weights, 18 bytes.
//   0  f16 d
//   2  qs[16]: byte j holds weight j in its low nibble and weight j + 16 in its high nibble
// weight = (nibble - 8) * d
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/rounding.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ4_0 {
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

static constexpr void decode_block(const BlockQ4_0& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b.qs[j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((b.qs[j] >> 4) - 8) * d;
  }
}

/// The weight of largest magnitude lands on code 0 (-8); halves round up.
static constexpr void encode_block(const float* x, BlockQ4_0& b) noexcept {
  const float d = signed_max(x, 32) / -8.0f;
  const float id = inverse_or_zero(d);
  const auto code = [id](float v) {
    const float t = v * id + 8.5f;
    return t >= 15 ? 15 : t > 0 ? static_cast<int>(t) : 0;
  };
  b.d = f32_to_f16(d);
  for (int j = 0; j < 16; ++j) b.qs[j] = static_cast<uint8_t>(code(x[j]) | code(x[j + 16]) << 4);
}

}  // namespace tern::quant
