// Q8_0: 32 weights, 34 bytes.
//   0  f16 d
//   2  int8 qs[32]
// weight = q * d
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/rounding.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ8_0 {
  static constexpr int kElements = 32;
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

static constexpr void decode_block(const BlockQ8_0& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(b.qs[j]) * d;
}

/// d = max|x| / 127.
static constexpr void encode_block(const float* x, BlockQ8_0& b) noexcept {
  const float d = max_magnitude(x, 32) / 127.0f;
  const float id = inverse_or_zero(d);
  b.d = f32_to_f16(d);
  for (int j = 0; j < 32; ++j) b.qs[j] = static_cast<int8_t>(round_away(x[j] * id, -127, 127));
}

}  // namespace tern::quant
