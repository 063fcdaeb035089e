// What the matrix-vector kernels share: how tiles are cut into stages, and how a sum becomes the product.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_product.h"

namespace tern::cuda {

/// How a launch of one row cuts tiles: stages of whole units, of up to kStageBytes.
constexpr int kStageBytes = 2400;
template <typename L>
struct Stages {
  static constexpr int kUnits = kStageBytes / L::kUnitBytes > 1 ? kStageBytes / L::kUnitBytes : 1;
  static constexpr int kChunksOfUnit = L::kUnit / 128, kChunks = kUnits * kChunksOfUnit;
  static constexpr int kBytes = kUnits * L::kUnitBytes;
  __host__ __device__ static int count(int units) { return (units + kUnits - 1) / kUnits; }
};

/// The sum of two sums of a row, floats or (Fold::kWhole) the bits of integers.
template <typename L>
__device__ __forceinline__ float add_sums(float a, float b) {
  if constexpr (L::Scales::kFold == Fold::kWhole) return __int_as_float(__float_as_int(a) + __float_as_int(b));
  return a + b;
}
/// Adds up the lanes of a row (kOne).
template <typename L>
__device__ __forceinline__ void add_lanes(float (&y)[4], int lane) {
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    if constexpr (L::kBits && L::Scales::kFold == Fold::kWhole) {
      y[e] = __int_as_float(__float_as_int(y[e]) * -(bit_unit(lane) << L::Codes::kWholeShift));
    } else if constexpr (L::kBits) {
      y[e] *= static_cast<float>(bit_unit(lane));
    }
#pragma unroll
    for (int i = 1; i < 4; i *= 2) y[e] = add_sums<L>(y[e], __shfl_xor_sync(~0u, y[e], i));
  }
}

/// What a sum is finished with. All of it is there before the sum is.
struct Finish {
  float multiplier = 1, bias = 0, add = 0;
};
/// `act`: the act row; `out`: the row of the result.
__device__ __forceinline__ Finish read_finish(const ProductArgs& p, const Target& target, int act, int out, int row) {
  return {.multiplier = p.x.multipliers ? p.x.multipliers[act] : 1.0f,
          .bias = target.bias ? target.bias[row] : 0.0f,
          .add = target.add ? target.add[static_cast<int64_t>(out) * target.rows + row] : 0.0f};
}
template <typename L>
__device__ __forceinline__ void store_sum(const ProductArgs& p, const Target& target, int out, int row, float sum,
                                          const Finish& f) {
  target.out[static_cast<int64_t>(out) * target.rows + row] =
      finish<L>(sum, f.multiplier, target.tensor_scale, target.scale, f.bias) + f.add;
}

}  // namespace tern::cuda
