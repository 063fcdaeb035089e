// Q1_0 (ggml's id 41): 128 weights, 18 bytes.
//   0  f16 d
//   2  bits[16]: weight j is bit j mod 8 of byte j div 8
// weight = +d for a set bit, -d for a clear one
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ1_0 {
  static constexpr int kElements = 128;
  uint16_t d;
  uint8_t bits[16];
};
static_assert(sizeof(BlockQ1_0) == 18);

static constexpr void decode_block(const BlockQ1_0& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 128; ++j) out[j] = (b.bits[j / 8] >> (j % 8)) & 1 ? d : -d;
}

}  // namespace tern::quant
