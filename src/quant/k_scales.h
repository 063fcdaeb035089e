// The 12 bytes in which Q4_K and Q5_K keep eight 6-bit scales and eight 6-bit minima. For group g < 4 the scale is the
// low six bits of byte g and the minimum those of byte g + 4; for g >= 4 byte g + 4 holds the low nibbles (scale low,
// minimum high) and the two top bits of bytes g - 4 (scale) and g (minimum) the rest.
#pragma once
#include <cstdint>

namespace tern::quant {

struct ScaleMin {
  uint8_t scale, minimum;  // 0..63
};

static constexpr ScaleMin unpack_scale_min(const uint8_t* s, int g) noexcept {
  if (g < 4) return {static_cast<uint8_t>(s[g] & 63), static_cast<uint8_t>(s[g + 4] & 63)};
  return {static_cast<uint8_t>((s[g + 4] & 15) | (s[g - 4] >> 6) << 4),
          static_cast<uint8_t>((s[g + 4] >> 4) | (s[g] >> 6) << 4)};
}

static constexpr void pack_scale_min(const ScaleMin (&v)[8], uint8_t (&s)[12]) noexcept {
  for (int g = 0; g < 4; ++g) {
    s[g] = static_cast<uint8_t>(v[g].scale | v[g + 4].scale >> 4 << 6);
    s[g + 4] = static_cast<uint8_t>(v[g].minimum | v[g + 4].minimum >> 4 << 6);
    s[g + 8] = static_cast<uint8_t>((v[g + 4].scale & 15) | v[g + 4].minimum << 4);
  }
}

}  // namespace tern::quant
