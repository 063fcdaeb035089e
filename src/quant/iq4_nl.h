// IQ4_NL: 32 weights, 18 bytes.
//   0  f16 d
//   2  qs[16]: byte j holds weight j in its low nibble and weight j + 16 in its high nibble
// weight = d * kIq4Values[nibble]
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace tern::quant {

/// The uneven code book of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct [[gnu::packed]] BlockIQ4_NL {
  static constexpr int kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

static constexpr void decode_block(const BlockIQ4_NL& b, float* out) noexcept {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIq4Values[b.qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kIq4Values[b.qs[j] >> 4]);
  }
}

}  // namespace tern::quant
