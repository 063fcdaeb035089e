// F16: IEEE binary16. Encoding rounds to nearest even.
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockF16 {
  static constexpr int kElements = 1;
  uint16_t bits;
};
static_assert(sizeof(BlockF16) == 2);

static constexpr void decode_block(const BlockF16& b, float* out) noexcept {
  *out = f16_to_f32(b.bits);
}
static constexpr void encode_block(const float* x, BlockF16& b) noexcept {
  b.bits = f32_to_f16(*x);
}

}  // namespace tern::quant
