// Q5_0: 32 weights, 22 bytes.
//   0  f16 d
//   2  qh[4]: bit j (little endian over the four bytes) is the fifth bit of weight j
//   6  qs[16]: byte j holds the low four bits of weight j in its low nibble, of weight j + 16 in its high nibble
// weight = (code - 16) * d
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ5_0 {
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

/// The fifth bit of weight j in its place (0 or 16); Q5_1 keeps it the same way.
static constexpr int fifth_bit(const uint8_t* qh, int j) noexcept {
  return ((qh[j / 8] >> (j % 8)) & 1) << 4;
}

static constexpr void decode_block(const BlockQ5_0& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(((b.qs[j] & 15) | fifth_bit(b.qh, j)) - 16) * d;
    out[j + 16] = static_cast<float>(((b.qs[j] >> 4) | fifth_bit(b.qh, j + 16)) - 16) * d;
  }
}

}  // namespace tern::quant
