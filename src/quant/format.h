// The table of weight formats: what the engine can decode, how, and with which activations each is multiplied.
// One header a format (q4_0.h ...) holds the block struct and its scalar codec; this is the only list of them.
#pragma once
#include <cstdint>
#include <span>

#include "gguf/types.h"

namespace tern::quant {

/// How the activations of a matrix product are rounded before it. This is part of what a low-bit model computes, so
/// `ref` implements each exactly and fast kernels agree with it to the last integer.
enum class Activation : uint8_t {
  kF32,     // no rounding
  kI8x32,   // int8 in groups of 32 along the row: q = nearest_even(x * (127 / amax)), scale = amax / 127 rounded to
            // f16 where that is a normal f16 (2^-14 .. 65504), as llama.cpp rounds before Q8_0 and Q4_0, otherwise f32
  kI8x128,  // the same in groups of 128, with the scale in f32
  kI8x256,  // the same in groups of 256
  kI8Row,   // one scale a row (BitNet): s = f32(127 / max(1e-5, amax)), q = nearest_even(x * s), value = q / s
};

struct Format {
  TensorType type;
  /// Decodes `n` consecutive weights (a multiple of the block) that start at a block boundary. `tensor_scale` is the
  /// scale of a format that keeps one per tensor (I2_S), otherwise ignored. Blocks may lie at any address.
  void (*decode)(const std::byte* blocks, float* out, int64_t n, float tensor_scale) noexcept;
  /// The rule used with this format unless the family states its own. The group divides the block of every blocked
  /// format (Q2_0: 64 weights a block, groups of 32 as ggml multiplies it), so a kernel never meets two weight scales
  /// in one group.
  Activation activation;
  /// True when every weight is scale * {-1, 0, 1} (or +2 where the code exists): the formats `transcode` moves between.
  bool ternary = false;
  /// Rounds `n` finite weights (a multiple of the block) into blocks; `tensor_scale` as for decode. nullptr: read only.
  void (*encode)(const float* x, std::byte* blocks, int64_t n, float tensor_scale) noexcept = nullptr;
};

/// Every decodable format.
std::span<const Format> formats() noexcept;
/// The row of `type`; nullptr when this engine cannot decode it.
const Format* find_format(TensorType type) noexcept;

/// The scale a tensor keeps after its blocks (I2_S), 1 for every other format. `tensor` is all of its bytes, tail
/// included.
float tensor_scale(TensorType type, std::span<const std::byte> tensor) noexcept;

}  // namespace tern::quant
