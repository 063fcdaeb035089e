// I2_S (BitNet): 128 weights, 32 bytes, blocks flattened row-major over the tensor; ONE scale a tensor, in its tail.
//   0    block: weight 32g + p of 128 sits at bits 6 - 2g of byte p (group 0 in the TOP bits)
//   n/4  f32 scale, then 28 bytes of padding whose contents mean nothing
// weight = (code - 1) * scale. Code 3 is never written; it decodes as +2.
// Some ARM builds of 2025 wrote groups of 64 without a mark in the file; such a file cannot be recognised.
#pragma once
#include <cstdint>

#include "quant/trits.h"

namespace tern::quant {

struct [[gnu::packed]] BlockI2_S {
  static constexpr int kElements = 128;
  uint8_t qs[32];
};
static_assert(sizeof(BlockI2_S) == 32);

static constexpr void unpack_codes(const BlockI2_S& b, uint8_t* codes) noexcept {
  for (int e = 0; e < 128; ++e) codes[e] = (b.qs[e % 32] >> (6 - e / 32 * 2)) & 3;
}
static constexpr void pack_codes(const uint8_t* codes, BlockI2_S& b) noexcept {
  for (int p = 0; p < 32; ++p) {
    b.qs[p] = static_cast<uint8_t>(codes[p] << 6 | codes[p + 32] << 4 | codes[p + 64] << 2 | codes[p + 96]);
  }
}

static constexpr void decode_block(const BlockI2_S& b, float scale, float* out) noexcept {
  uint8_t codes[128];
  unpack_codes(b, codes);
  code_values(codes, 128, scale, out);
}
/// Codes of 128 weights under the scale of the tensor (max|w| over all of it).
static constexpr void encode_block(const float* x, float scale, BlockI2_S& b) noexcept {
  uint8_t codes[128];
  round_to_codes(x, 128, scale, codes);
  pack_codes(codes, b);
}

}  // namespace tern::quant
