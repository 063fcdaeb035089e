// Q2_0 (ggml's id 42): 64 weights, 18 bytes.
//   0  f16 d
//   2  qs[16]: 2-bit codes; weight j sits at bits 2 * (j mod 4) of byte j div 4
// weight = (code - 1) * d. Files of mid 2026 use id 42 for groups of 128; the reader tells them apart by extent and
// calls those PQ2_0.
#pragma once
#include <cstdint>

#include "quant/trits.h"

namespace tern::quant {

struct [[gnu::packed]] BlockQ2_0 {
  static constexpr int kElements = 64;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ2_0) == 18);

/// n consecutive 2-bit codes, low bits first; PQ2_0 keeps its codes the same way.
static constexpr void unpack_2bit(const uint8_t* bytes, int n, uint8_t* codes) noexcept {
  for (int j = 0; j < n; ++j) codes[j] = (bytes[j / 4] >> (j % 4 * 2)) & 3;
}
static constexpr void pack_2bit(const uint8_t* codes, int n, uint8_t* bytes) noexcept {
  for (int i = 0; i < n / 4; ++i) {
    const uint8_t* c = codes + 4 * i;
    bytes[i] = static_cast<uint8_t>(c[0] | c[1] << 2 | c[2] << 4 | c[3] << 6);
  }
}

static constexpr void unpack_codes(const BlockQ2_0& b, uint8_t* codes) noexcept {
  unpack_2bit(b.qs, 64, codes);
}

static constexpr void decode_block(const BlockQ2_0& b, float* out) noexcept {
  decode_ternary(b, out);
}

}  // namespace tern::quant
