// Q5_1: 32 weights, 24 bytes.
//   0  f16 d, 2  f16 m
//   4  qh[4], 8  qs[16]: five-bit codes laid out as in Q5_0
// weight = code * d + m
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/q5_0.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ5_1 {
  static constexpr int kElements = 32;
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

static constexpr void decode_block(const BlockQ5_1& b, float* out) noexcept {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b.qs[j] & 15) | fifth_bit(b.qh, j)) * d + m;
    out[j + 16] = static_cast<float>((b.qs[j] >> 4) | fifth_bit(b.qh, j + 16)) * d + m;
  }
}

}  // namespace tern::quant
