// PTQ1_0: 128 weights, 28 bytes: base-3 bytes, then the scale.
//   0   qs[16]: weights 0..79, five digits a byte: weight e is digit e div 16 of byte e mod 16
//   16  qs[8]: weights 80..119, five digits a byte, over 8 bytes the same way
//   24  qh[2]: weights 120..127, four digits a byte (the fifth is 0), over 2 bytes the same way
//   26  f16 d
// Digits: trits.h. weight = (digit - 1) * d. Blocks are 4-byte aligned within a row.
#pragma once
#include <cstdint>

#include "quant/trits.h"

namespace tern::quant {

struct [[gnu::packed]] BlockPTQ1_0 {
  static constexpr int kElements = 128;
  uint8_t qs[24];
  uint8_t qh[2];
  uint16_t d;
};
static_assert(sizeof(BlockPTQ1_0) == 28);

static constexpr void unpack_codes(const BlockPTQ1_0& b, uint8_t* codes) noexcept {
  unpack_trit_field(b.qs, 16, 5, codes);
  unpack_trit_field(b.qs + 16, 8, 5, codes + 80);
  unpack_trit_field(b.qh, 2, 4, codes + 120);
}
/// Codes 0..2.
static constexpr void pack_codes(const uint8_t* codes, BlockPTQ1_0& b) noexcept {
  pack_trit_field(codes, 16, 5, b.qs);
  pack_trit_field(codes + 80, 8, 5, b.qs + 16);
  pack_trit_field(codes + 120, 2, 4, b.qh);
}

static constexpr void decode_block(const BlockPTQ1_0& b, float* out) noexcept {
  decode_ternary(b, out);
}
static constexpr void encode_block(const float* x, BlockPTQ1_0& b) noexcept {
  encode_ternary(x, b);
}

}  // namespace tern::quant
