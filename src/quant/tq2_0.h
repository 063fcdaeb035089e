// TQ2_0: 256 weights, 66 bytes.
//   0   qs[64]: 2-bit codes; weight 128h + 32g + p sits at bits 2g of byte 32h + p
//   64  f16 d
// weight = (code - 1) * d; code 3 (+2) is decoded though ggml never writes it.
#pragma once
#include <cstdint>

#include "quant/trits.h"

namespace tern::quant {

struct [[gnu::packed]] BlockTQ2_0 {
  static constexpr int kElements = 256;
  uint8_t qs[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

static constexpr void unpack_codes(const BlockTQ2_0& b, uint8_t* codes) noexcept {
  for (int e = 0; e < 256; ++e) codes[e] = (b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3;
}
static constexpr void pack_codes(const uint8_t* codes, BlockTQ2_0& b) noexcept {
  for (int i = 0; i < 64; ++i) {
    const uint8_t* c = codes + i / 32 * 128 + i % 32;
    b.qs[i] = static_cast<uint8_t>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
  }
}

static constexpr void decode_block(const BlockTQ2_0& b, float* out) noexcept {
  decode_ternary(b, out);
}
static constexpr void encode_block(const float* x, BlockTQ2_0& b) noexcept {
  encode_ternary(x, b);
}

}  // namespace tern::quant
