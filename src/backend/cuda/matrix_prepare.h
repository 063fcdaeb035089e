// Rotating and rounding activations: kernels behind prepare() and rotate(). Included by device code.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/matrix_source.h"
#include "gguf/types.h"

namespace tern::cuda {

struct PrepareArgs {
  Source source;
  int64_t rows = 0, cols = 0;
  double reciprocal = 0;  // 1 / cols
  // Rotation; block 0: none.
  int64_t block = 0, width = 0;
  const float* signs = nullptr;
  float factor = 1.0f;   // 1 / sqrt(block)
  bool inverse = false;  // signs after the transform
  // Rounded: an ActView whose parts are written; group 32, 128, 256 or 0 for the row. Padding is zeroed.
  int8_t* q = nullptr;
  float* scales = nullptr;
  float* multipliers = nullptr;
  int64_t q_stride = 0, stride = 0;
  int group = 0;
  int together = 0;  // lane order of ActView; 0: tile order
  // Unrounded: f32 [rows][cols]. Exactly one of q and out is set.
  float* out = nullptr;
  double* squares = nullptr;  // launch_prepare_one: gets a sum a span of a row
};
void launch_prepare(cudaStream_t stream, const PrepareArgs& args);

constexpr int64_t kLeastSpan = 1024;  // columns of a row that a block takes
constexpr int kMostNormSpans = 16;
/// How many sums of squares launch_prepare_one leaves.
constexpr int64_t norm_spans(int64_t cols, int64_t rotation_block) {
  const int64_t span = rotation_block > kLeastSpan ? rotation_block : kLeastSpan;
  return (cols + span - 1) / span;
}
/// One row whose norm is left to the products: takes_whole_chunks, in groups of 128 or 256, and a norm over the row
/// without a gate. `floats`: weights of `float_type` whose products with the row as normed, neither rotated nor
/// rounded, are found in the same launch, or none.
struct FloatArgs;
void launch_prepare_one(cudaStream_t stream, const PrepareArgs& args, const FloatArgs* floats, TensorType float_type);

constexpr int64_t kMostRotationBlock = 4096;

}  // namespace tern::cuda
