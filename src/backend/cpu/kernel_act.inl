// Rounded activations as the integer kernels read them, the same for every weight format of one rule:
//   int8 q[cols] in the order of the columns; f32 scale[groups]; int32 sums of q over 16, 32, 64, 128 and 256 columns
// each part from a multiple of 64 bytes. The sums turn biased codes into weights, and weights' offsets into products.
#pragma once
#include "backend/cpu/kernel_codes.inl"
#include "quant/activation.h"

namespace tern::cpu {
namespace {

using quant::Activation;

/// Columns under one activation scale; for kI8Row more than any row has.
constexpr int64_t group_of(Activation rule) {
  return rule == Activation::kI8x32    ? 32
         : rule == Activation::kI8x128 ? 128
         : rule == Activation::kI8x256 ? 256
                                       : int64_t{1} << 40;
}

constexpr int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr int64_t parts(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit;
}

constexpr int kSmallestSum = 16, kLargestSum = 256;

/// Where the parts of a row begin, in bytes.
struct ActOffsets {
  int64_t scales, row_bytes;
  int64_t sums[5];

  constexpr ActOffsets(Activation rule, int64_t cols) : scales(round_up(cols, 64)), row_bytes(0), sums{} {
    int64_t at = scales + round_up(parts(cols, group_of(rule)) * 4, 64);
    for (int i = 0; i < 5; ++i) {
      sums[i] = at;
      at += round_up(parts(cols, kSmallestSum << i) * 4, 64);
    }
    row_bytes = at / 64 % 2 == 0 ? at + 64 : at;  // odd in cache lines: the rows of a tile fall into different sets
  }
};
constexpr int sum_level(int64_t columns) {
  int level = 0;
  while ((kSmallestSum << level) < columns && (kSmallestSum << level) < kLargestSum) ++level;
  return level;
}

template <Activation kRule>
ActLayout int_layout(int64_t cols) noexcept {
  return {.rule = kRule,
          .cols = cols,
          .row_bytes = static_cast<size_t>(ActOffsets(kRule, cols).row_bytes),
          .generic = false};
}

inline float largest_magnitude(const float* x, int64_t n) {
  Float best = Simd::zero_f();
  for (int64_t i = 0; i < n; i += kLanes) best = Simd::max(best, Simd::magnitude(Simd::load_f(x + i)));
  return Simd::largest(best);
}

/// cols is a multiple of 32, as every block of an integer format is. quant::quantize_row is the definition.
template <Activation kRule>
void quantize_int(const float* x, int64_t cols, std::byte* act) noexcept {
  const ActOffsets at(kRule, cols);
  auto* q = reinterpret_cast<int8_t*>(act);
  auto* scales = reinterpret_cast<float*>(act + at.scales);
  auto* sums = reinterpret_cast<int32_t*>(act + at.sums[0]);
  constexpr int64_t kGroup = group_of(kRule);
  for (int64_t begin = 0; begin < cols; begin += kGroup) {
    const int64_t end = cols - begin < kGroup ? cols : begin + kGroup;
    const float amax = largest_magnitude(x + begin, end - begin);
    float multiplier;
    if constexpr (kRule == Activation::kI8Row) {
      const double floored = amax > 1e-5 ? static_cast<double>(amax) : 1e-5;
      multiplier = scales[0] = static_cast<float>(127.0 / floored);
    } else {
      const bool none = amax < quant::kSmallestAmax;
      const float scale = none ? 0.0f : amax / 127.0f;
      scales[begin / kGroup] = kRule == Activation::kI8x32 ? quant::half_scale(scale) : scale;
      multiplier = none ? 0.0f : 127.0f / amax;
    }
    for (int64_t i = begin; i < end; i += kSmallestSum)
      sums[i / kSmallestSum] = Simd::round16(x + i, multiplier, q + i);
  }
  int64_t count = cols / kSmallestSum;
  for (int level = 1; level < 5; ++level) {
    const auto* below = reinterpret_cast<const int32_t*>(act + at.sums[level - 1]);
    auto* here = reinterpret_cast<int32_t*>(act + at.sums[level]);
    for (int64_t i = 0; i < count / 2; ++i) here[i] = below[2 * i] + below[2 * i + 1];
    if (count % 2 != 0) here[count / 2] = below[count - 1];
    count = parts(count, 2);
  }
}

}  // namespace
}  // namespace tern::cpu
