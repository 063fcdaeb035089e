// TQ1_0: 256 weights, 54 bytes: base-3 bytes, then the scale.
//   0   qs[32]: weights 0..159, five digits a byte: weight e is digit e div 32 of byte e mod 32
//   32  qs[16]: weights 160..239, five digits a byte, over 16 bytes the same way
//   48  qh[4]: weights 240..255, four digits a byte (the fifth is 0), over 4 bytes the same way
//   52  f16 d
// Digits: trits.h. weight = (digit - 1) * d
#pragma once
#include <cstdint>

#include "quant/trits.h"

namespace tern::quant {

struct [[gnu::packed]] BlockTQ1_0 {
  static constexpr int kElements = 256;
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

static constexpr void unpack_codes(const BlockTQ1_0& b, uint8_t* codes) noexcept {
  unpack_trit_field(b.qs, 32, 5, codes);
  unpack_trit_field(b.qs + 32, 16, 5, codes + 160);
  unpack_trit_field(b.qh, 4, 4, codes + 240);
}
/// Codes 0..2.
static constexpr void pack_codes(const uint8_t* codes, BlockTQ1_0& b) noexcept {
  pack_trit_field(codes, 32, 5, b.qs);
  pack_trit_field(codes + 160, 16, 5, b.qs + 32);
  pack_trit_field(codes + 240, 4, 4, b.qh);
}

static constexpr void decode_block(const BlockTQ1_0& b, float* out) noexcept {
  decode_ternary(b, out);
}
static constexpr void encode_block(const float* x, BlockTQ1_0& b) noexcept {
  encode_ternary(x, b);
}

}  // namespace tern::quant
