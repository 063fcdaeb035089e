// PQ2_0: 128 weights, 34 bytes; also what the group-128 files with id 42 hold.
//   0  f16 d
//   2  qs[32]: 2-bit codes; weight j sits at bits 2 * (j mod 4) of byte j div 4
// weight = (code - 1) * d; code 3 (+2) is legal. Blocks are only 2-byte aligned.
#pragma once
#include <cstdint>

#include "quant/q2_0.h"

namespace tern::quant {

struct [[gnu::packed]] BlockPQ2_0 {
  static constexpr int kElements = 128;
  uint16_t d;
  uint8_t qs[32];
};
static_assert(sizeof(BlockPQ2_0) == 34);

static constexpr void unpack_codes(const BlockPQ2_0& b, uint8_t* codes) noexcept {
  unpack_2bit(b.qs, 128, codes);
}
static constexpr void pack_codes(const uint8_t* codes, BlockPQ2_0& b) noexcept {
  pack_2bit(codes, 128, b.qs);
}

static constexpr void decode_block(const BlockPQ2_0& b, float* out) noexcept {
  decode_ternary(b, out);
}
static constexpr void encode_block(const float* x, BlockPQ2_0& b) noexcept {
  encode_ternary(x, b);
}

}  // namespace tern::quant
