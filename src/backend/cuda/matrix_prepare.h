// Rotating and rounding activations: kernels behind prepare() and rotate(). Included by device code.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/matrix_source.h"

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
};
void launch_prepare(cudaStream_t stream, const PrepareArgs& args);

constexpr int64_t kMostRotationBlock = 4096;

}  // namespace tern::cuda
