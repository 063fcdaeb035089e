#include "quant/activation.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "quant/rounding.h"

namespace tern::quant {
namespace {

/// Nearest integer, halves to even, for |v| < 2^22: adding 1.5 * 2^23 leaves the integer in the low mantissa bits.
int nearest_even(float v) noexcept {
  constexpr float kMagic = 0x1.8p23f;
  return static_cast<int>(std::bit_cast<uint32_t>(v + kMagic) & 0x7fffffu) - 0x400000;
}

void round_group(std::span<const float> x, float multiplier, int8_t* q) noexcept {
  for (size_t i = 0; i < x.size(); ++i)
    q[i] = static_cast<int8_t>(std::clamp(nearest_even(x[i] * multiplier), -128, 127));
}

}  // namespace

int64_t activation_group(Activation rule, int64_t cols) noexcept {
  switch (rule) {
    case Activation::kF32:
      return 0;
    case Activation::kI8x32:
      return 32;
    case Activation::kI8x128:
      return 128;
    case Activation::kI8x256:
      return 256;
    case Activation::kI8Row:
      return cols;
  }
  return 0;
}

void quantize_row(Activation rule, std::span<const float> x, int8_t* q, float* scale) noexcept {
  CHECK(rule != Activation::kF32, "an f32 row is not rounded");
  if (rule == Activation::kI8Row) {
    const double amax = std::max(1e-5, static_cast<double>(max_magnitude(x.data(), static_cast<int>(x.size()))));
    scale[0] = static_cast<float>(127.0 / amax);
    round_group(x, scale[0], q);
    return;
  }
  const auto group = static_cast<size_t>(activation_group(rule, static_cast<int64_t>(x.size())));
  for (size_t begin = 0; begin < x.size(); begin += group) {
    const std::span<const float> part = x.subspan(begin, std::min(group, x.size() - begin));
    const float amax = max_magnitude(part.data(), static_cast<int>(part.size()));
    const bool zero = amax < kSmallestAmax;
    scale[begin / group] = zero ? 0.0f : rule == Activation::kI8x32 ? half_scale(amax / 127.0f) : amax / 127.0f;
    round_group(part, zero ? 0.0f : 127.0f / amax, q + begin);
  }
}

}  // namespace tern::quant
