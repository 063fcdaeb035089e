// Q4_1: 32 weights, 20 bytes.
//   0  f16 d, 2  f16 m
//   4  qs[16]: byte j holds weight j in its low nibble and weight j + 16 in its high nibble
// weight = nibble * d + m
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ4_1 {
  static constexpr int kElements = 32;
  uint16_t d, m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

static constexpr void decode_block(const BlockQ4_1& b, float* out) noexcept {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(b.qs[j] & 15) * d + m;
    out[j + 16] = static_cast<float>(b.qs[j] >> 4) * d + m;
  }
}

}  // namespace tern::quant
