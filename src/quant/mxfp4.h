// MXFP4: 32 weights, 17 bytes.
//   0  u8 e: e8m0 exponent
//   1  qs[16]: byte j holds weight j in its low nibble and weight j + 16 in its high nibble
// weight = kE2m1Doubled[nibble] * 2^(e - 128). The code book is twice E2M1, so the exponent is one less than e8m0's
// bias 127.
#pragma once
#include <bit>
#include <cstdint>

namespace tern::quant {

/// Twice the sixteen values of E2M1 (code 8 is -0 in E2M1 and 0 here); shared with NVFP4.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct [[gnu::packed]] BlockMXFP4 {
  static constexpr int kElements = 32;
  uint8_t e;
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

/// 2^(e - 128) for every e: 0 and 1 are the subnormals 2^-128 and 2^-127; 255 is 2^127, not NaN.
static constexpr float e8m0_half(uint8_t e) noexcept {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

static constexpr void decode_block(const BlockMXFP4& b, float* out) noexcept {
  const float d = e8m0_half(b.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(kE2m1Doubled[b.qs[j] & 15]) * d;
    out[j + 16] = static_cast<float>(kE2m1Doubled[b.qs[j] >> 4]) * d;
  }
}

}  // namespace tern::quant
