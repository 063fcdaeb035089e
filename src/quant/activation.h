// The activation rules of Activation, scalar and exact. Fast kernels produce the same integers.
#pragma once
#include <cstdint>
#include <span>

#include "base/float16.h"
#include "quant/format.h"

namespace tern::quant {

/// A group whose largest magnitude is below this rounds to all zeros with scale 0: 127/amax would leave the range of
/// f32.
inline constexpr float kSmallestAmax = 0x1p-100f;

/// The scale of kI8x32: rounded to f16 where that is a normal number, otherwise left in f32.
static constexpr float half_scale(float d) noexcept {
  return d >= 0x1p-14f && d <= 65504.0f ? f16_to_f32(f32_to_f16(d)) : d;
}

/// Elements a group of `rule` covers in a row of `cols` (cols itself for kI8Row; 0 for kF32).
int64_t activation_group(Activation rule, int64_t cols) noexcept;

/// Rounds one row. `q` gets cols int8, `scale` one f32 a group such that the value is q * scale; for kI8Row `scale[0]`
/// is the multiplier s and the value is q / s (the order of operations of BitNet's definition). rule must not be kF32;
/// a last group shorter than the group size is a group. x is finite; otherwise the integers are unspecified.
void quantize_row(Activation rule, std::span<const float> x, int8_t* q, float* scale) noexcept;

}  // namespace tern::quant
