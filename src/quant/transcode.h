// Moves one tensor between the ternary formats (Format::ternary: PTQ1_0, PQ2_0, TQ1_0, TQ2_0, I2_S) without loss.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "gguf/file.h"

namespace tern::quant {

/// The bytes of tensor `t` (its data: `bytes`) as `target`, I2_S tail included.
///
/// Lossless means: every decoded weight compares equal (==) before and after. So the sign of a zero is free, and a
/// group of 128 weights that are all zero fits under any scale. Where source and target scale coincide the codes are
/// copied and the decoded bits are identical too.
///
/// kUnsupported, naming tensor, row, column and reason of the first weight that does not fit, when
///  - 128 neighbours and the next have different scales and the target has one scale for 256 (TQ1_0, TQ2_0) or for the
///  tensor (I2_S);
///  - the scale is an f32 that no f16 equals (from I2_S);
///  - the weight is +2 x scale and the target has no such code (PTQ1_0, TQ1_0, I2_S);
///  - the scale is not finite.
/// kUnsupported also for a format outside the five and for rows that are not whole blocks of the target.
std::vector<std::byte> transcode(const gguf::TensorInfo& t, std::span<const std::byte> bytes, TensorType target);

}  // namespace tern::quant
