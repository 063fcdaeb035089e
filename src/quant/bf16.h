// BF16: the upper half of binary32. Encoding rounds to nearest even.
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

struct [[gnu::packed]] BlockBF16 {
  static constexpr int kElements = 1;
  uint16_t bits;
};
static_assert(sizeof(BlockBF16) == 2);

static constexpr void decode_block(const BlockBF16& b, float* out) noexcept {
  *out = bf16_to_f32(b.bits);
}
static constexpr void encode_block(const float* x, BlockBF16& b) noexcept {
  b.bits = f32_to_bf16(*x);
}

}  // namespace tern::quant
