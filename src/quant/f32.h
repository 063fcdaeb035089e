// F32: IEEE binary32.
#pragma once
#include <cstdint>

namespace tern::quant {

struct [[gnu::packed]] BlockF32 {
  static constexpr int kElements = 1;
  float value;
};
static_assert(sizeof(BlockF32) == 4);

static constexpr void decode_block(const BlockF32& b, float* out) noexcept {
  *out = b.value;
}
static constexpr void encode_block(const float* x, BlockF32& b) noexcept {
  b.value = *x;
}

}  // namespace tern::quant
