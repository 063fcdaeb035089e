// Rounding shared by the encoders. `static`: every translation unit keeps its own copy, so the one compiled for AVX-512
// is never the one the linker picks for the rest of the program. All headers of formats follow this rule.
#pragma once
#include <cstdint>

namespace tern::quant {

/// Nearest integer, halves away from zero, clamped to [lo, hi]; NaN gives 0. Exact: the sum is formed in double, where
/// 0.49999997f + 0.5 stays under 1.
static constexpr int round_away(float v, int lo, int hi) noexcept {
  if (v != v) return 0;
  if (v <= static_cast<float>(lo)) return lo;
  if (v >= static_cast<float>(hi)) return hi;
  return static_cast<int>(static_cast<double>(v) + (v < 0 ? -0.5 : 0.5));
}

/// 1/d, or 0 for d = 0: the multiplier encoders use so that an all-zero block stays zero.
static constexpr float inverse_or_zero(float d) noexcept {
  return d != 0 ? 1.0f / d : 0.0f;
}

static constexpr float magnitude(float v) noexcept {
  return v < 0 ? -v : v;
}

/// Largest |x[i]| of n values.
static constexpr float max_magnitude(const float* x, int n) noexcept {
  float best = 0;
  for (int i = 0; i < n; ++i) {
    if (magnitude(x[i]) > best) best = magnitude(x[i]);
  }
  return best;
}

/// The first value of largest magnitude, with its sign.
static constexpr float signed_max(const float* x, int n) noexcept {
  float best = 0;
  for (int i = 0; i < n; ++i) {
    if (magnitude(x[i]) > magnitude(best)) best = x[i];
  }
  return best;
}

}  // namespace tern::quant
