// What the ternary formats share: codes 0, 1, 2 for weights -1, 0, +1 (3 for +2 where 2-bit codes allow it) under one
// scale, and base-3 bytes.
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "quant/rounding.h"

namespace tern::quant {

/// Digit n (0 = most significant) of a base-3 byte: 0, 1 or 2. A byte is ceil(number * 256 / 243), so multiplying by
/// 3^n in 8 bits drops the leading digits and the next one is the integer part of 3 * fraction. Every byte value is
/// legal.
static constexpr uint8_t trit_of(uint8_t byte, int n) noexcept {
  constexpr uint8_t kPow3[5] = {1, 3, 9, 27, 81};
  const auto fraction = static_cast<uint8_t>(byte * kPow3[n]);
  return static_cast<uint8_t>((fraction * 3) >> 8);
}

/// The byte of five digits t[0], t[stride], ... (t[0] most significant); digits from `count` on are 0.
static constexpr uint8_t trit_byte(const uint8_t* t, int stride, int count = 5) noexcept {
  int number = 0;
  for (int n = 0; n < 5; ++n) number = number * 3 + (n < count ? t[n * stride] : 0);
  return static_cast<uint8_t>((number * 256 + 242) / 243);
}

/// One field of a base-3 block: `width` bytes, column-wise: byte m holds the codes m, m + width, m + 2 * width ...
static constexpr void unpack_trit_field(const uint8_t* bytes, int width, int digits, uint8_t* codes) noexcept {
  for (int n = 0; n < digits; ++n) {
    for (int m = 0; m < width; ++m) codes[n * width + m] = trit_of(bytes[m], n);
  }
}
static constexpr void pack_trit_field(const uint8_t* codes, int width, int digits, uint8_t* bytes) noexcept {
  for (int m = 0; m < width; ++m) bytes[m] = trit_byte(codes + m, width, digits);
}

/// The value of a code. The product is formed even for 0, so a negative scale gives -0 as in ggml.
static constexpr float code_value(uint8_t code, float d) noexcept {
  return static_cast<float>(code - 1) * d;
}

static constexpr void code_values(const uint8_t* codes, int n, float d, float* out) noexcept {
  for (int i = 0; i < n; ++i) out[i] = code_value(codes[i], d);
}

/// Codes 0..2 of n weights under the scale d.
static constexpr void round_to_codes(const float* x, int n, float d, uint8_t* codes) noexcept {
  const float id = inverse_or_zero(d);
  for (int i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(round_away(x[i] * id, -1, 1) + 1);
}

/// What every ternary block with its own scale does: decode_block and encode_block by its codes.
template <typename Block>
static constexpr void decode_ternary(const Block& b, float* out) noexcept {
  uint8_t codes[Block::kElements];
  unpack_codes(b, codes);
  code_values(codes, Block::kElements, f16_to_f32(b.d), out);
}
/// d = max|x|; a group that is already ternary with an f16 scale is reproduced exactly.
template <typename Block>
static constexpr void encode_ternary(const float* x, Block& b) noexcept {
  const float d = max_magnitude(x, Block::kElements);
  uint8_t codes[Block::kElements];
  round_to_codes(x, Block::kElements, d, codes);
  pack_codes(codes, b);
  b.d = f32_to_f16(d);
}

}  // namespace tern::quant
