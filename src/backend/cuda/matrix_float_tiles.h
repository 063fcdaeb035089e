// Float weights times many rows of activations on the tensor cores, in tf32, which holds F16 and BF16 weights as they
// are. Activations, and F32 weights, are the sum of two tf32 numbers (22 bits), so that a product keeps what a sum in
// f32 does.
//
// One k-step is 8 columns of 16 weight rows (operand A) and of 8 activation rows (operand B). Lane (g = lane / 4, t =
// lane % 4) holds columns t and t + 4 of them: which columns these are is free, as long as both operands agree, so a
// lane takes four columns that lie together for two k-steps.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_widen.h"
#include "backend/cuda/mma.h"

namespace tern::cuda {

/// A block takes kRows weight rows and kActs activation rows, kCols columns at a time, of which each four warps take
/// 16: a few tiles have to be done soon more often than many.
struct FloatTiles {
  static constexpr int kRows = 64, kActs = 32, kCols = 64, kParts = kCols / 16, kStages = 3, kThreads = kParts * 128;
};

/// Rows of a stage lie apart so that what eight (or sixteen, of shorter words) lanes read is in different banks.
template <typename T>
struct FloatStage {
  static constexpr int kWeightBytes = FloatTiles::kCols * sizeof(T),
                       kWeightStride = kWeightBytes + (sizeof(T) == 4 ? 64 : 32);
  static constexpr int kActStride = FloatTiles::kCols * 4 + 64;
  alignas(16) uint8_t weights[FloatTiles::kRows * kWeightStride];
  alignas(16) uint8_t acts[FloatTiles::kActs * kActStride];
};

/// x as the sum of two tf32 numbers.
__device__ __forceinline__ void split_tf32(float x, uint32_t& high, uint32_t& low) {
  high = __float_as_uint(x) & 0xffffe000u;
  low = __float_as_uint(x - __uint_as_float(high));
}
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/// Four columns of a weight row in shared memory.
template <typename T>
__device__ __forceinline__ void read_four(const uint8_t* at, float (&f)[4]) {
  if constexpr (sizeof(T) == 4) {
    const uint4 v = *reinterpret_cast<const uint4*>(at);
    widen<T>({v.x, v.y, v.z, v.w}, f);
  } else {
    const uint2 v = *reinterpret_cast<const uint2*>(at);
    widen<T>({v.x, v.y}, f);
  }
}

/// Columns from `col` on of the block's rows, on their way into a stage; zeros behind the last column. Rows that do not
/// exist repeat others; their sums go nowhere.
template <typename T>
__device__ __forceinline__ void copy_float_stage(const FloatArgs& p, const Target& target, int row, int act, int col,
                                                 FloatStage<T>& to) {
  using S = FloatStage<T>;
  constexpr int kPieces = S::kWeightBytes / 16, kColumns = 16 / sizeof(T);  // 16-byte pieces of a row of the stage
  const int tid = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = tid; i < FloatTiles::kRows * kPieces; i += FloatTiles::kThreads) {
    const int r = i / kPieces, piece = i % kPieces, at = col + piece * kColumns;
    copy_async16(
        to.weights + r * S::kWeightStride + piece * 16,
        target.w + min(row + r, target.rows - 1) * p.row_bytes + (at < p.cols ? at * static_cast<int>(sizeof(T)) : 0),
        at < p.cols);
  }
  constexpr int kActPieces = FloatTiles::kCols / 4;
#pragma unroll
  for (int i = tid; i < FloatTiles::kActs * kActPieces; i += FloatTiles::kThreads) {
    const int a = i / kActPieces, piece = i % kActPieces, at = col + piece * 4;
    copy_async16(to.acts + a * S::kActStride + piece * 16,
                 p.x + min(act + a, p.rows - 1) * p.cols + (at < p.cols ? at : 0), at < p.cols);
  }
  copy_async_commit();
}

/// Sums of a warp, 32 weight rows (two operands A) by 16 activation rows (two B), over 16 columns of a stage from
/// `col`.
template <typename T>
__device__ __forceinline__ void multiply_float_stage(const FloatStage<T>& stage, int warp_row, int warp_act, int col,
                                                     int lane, float (&sums)[2][2][4]) {
  using S = FloatStage<T>;
  const int g = lane / 4, t = lane % 4;
  uint32_t b[2][2][4];  // of activation rows n: high and low parts of the lane's four columns
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float4 v =
        *reinterpret_cast<const float4*>(stage.acts + (warp_act + n * 8 + g) * S::kActStride + (col + 4 * t) * 4);
    const float f[4] = {v.x, v.y, v.z, v.w};
    for (int k = 0; k < 4; ++k) split_tf32(f[k], b[n][0][k], b[n][1][k]);
  }
  // The tensor cores cut sums off instead of rounding them, so they only get those of a stage.
  float of_stage[2][2][4] = {};
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float w[2][4];  // rows g and g + 8
    for (int h = 0; h < 2; ++h)
      read_four<T>(stage.weights + (warp_row + m * 16 + h * 8 + g) * S::kWeightStride +
                       (col + 4 * t) * static_cast<int>(sizeof(T)),
                   w[h]);
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      uint32_t high[4], low[4];
      for (int i = 0; i < 4; ++i) split_tf32(w[i % 2][k + i / 2], high[i], low[i]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        multiply_tf32(of_stage[m][n], high, b[n][0][k], b[n][0][k + 1]);
        multiply_tf32(of_stage[m][n], high, b[n][1][k], b[n][1][k + 1]);
        if constexpr (sizeof(T) == 4) multiply_tf32(of_stage[m][n], low, b[n][0][k], b[n][0][k + 1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) (&sums[0][0][0])[i] += (&of_stage[0][0][0])[i];
}

/// Blocks: x: activation rows, y: weight rows, z: target.
template <typename T>
__global__ void __launch_bounds__(FloatTiles::kThreads) float_tiles_kernel(const __grid_constant__ FloatArgs p) {
  using F = FloatTiles;
  extern __shared__ __align__(16) uint8_t memory[];
  auto* const stages = reinterpret_cast<FloatStage<T>*>(memory);
  const Target& target = blockIdx.z == 0 ? p.target : p.other;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int act = static_cast<int>(blockIdx.x) * F::kActs, row = static_cast<int>(blockIdx.y) * F::kRows;
  const int steps = static_cast<int>((p.cols + F::kCols - 1) / F::kCols);
  begin_kernel();
  const auto copy = [&](int step) {
    if (step < steps) return copy_float_stage(p, target, row, act, step * F::kCols, stages[step % F::kStages]);
    copy_async_commit();
  };
  for (int i = 0; i < F::kStages - 1; ++i) copy(i);
  const int part = warp / 4, warp_row = warp % 2 * 32, warp_act = warp / 2 % 2 * 16;
  float sums[2][2][4] = {};
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<F::kStages - 2>();
    __syncthreads();  // the stage has arrived, and the one before it has been read
    copy(step + F::kStages - 1);
    multiply_float_stage(stages[step % F::kStages], warp_row, warp_act, part * 16, lane, sums);
  }
  copy_async_wait<0>();
  __syncthreads();
  auto* const parts = reinterpret_cast<float(*)[16][128]>(memory);  // sums of the warps of a part, lane by lane
  const int place = static_cast<int>(threadIdx.x % 128);
  if (part > 0) {
#pragma unroll
    for (int i = 0; i < 16; ++i) parts[part - 1][i][place] = (&sums[0][0][0])[i];
  }
  __syncthreads();
  if (part > 0) return;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int m = i / 8, n = i / 4 % 2, e = i % 4;
    const int r = row + warp_row + m * 16 + e / 2 * 8 + lane / 4, a = act + warp_act + n * 8 + lane % 4 * 2 + e % 2;
    if (r >= target.rows || a >= p.rows) continue;
    float sum = sums[m][n][e];
    for (int k = 0; k < F::kParts - 1; ++k) sum += parts[k][i][place];
    const int64_t at = static_cast<int64_t>(a) * target.rows + r;
    target.out[at] = sum * target.scale + (target.bias ? target.bias[r] : 0.0f) + (target.add ? target.add[at] : 0.0f);
  }
}

/// Where tiles pay: as many blocks as multiprocessors go through 5120 columns in some 65 us, and rows_kernel takes 2.1
/// ns for each pair of a weight row and an activation row of as many columns.
inline bool float_tiles_take(const FloatArgs& p) {
  const int64_t rows = p.target.rows + (p.other.w ? p.other.rows : 0);
  const int64_t tiles = int64_t{blocks(p.rows, FloatTiles::kActs)} * blocks(rows, FloatTiles::kRows),
                waves = (tiles + multiprocessors() - 1) / multiprocessors();
  return !p.ids && p.pairs_per_act == 1 && p.cols % 8 == 0 && p.rows * rows > 30000 * waves && multiplies_tf32();
}

template <typename T>
void launch_float_tiles(cudaStream_t stream, const FloatArgs& p) {
  using F = FloatTiles;
  constexpr size_t kShared = sizeof(FloatStage<T>) * F::kStages;
  static const cudaError_t ready = cudaFuncSetAttribute(
      float_tiles_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  check_launch(ready, "float tiles");
  const dim3 grid(blocks(p.rows, F::kActs), blocks(p.target.rows, F::kRows), p.other.w ? 2 : 1);
  launch("float tiles", float_tiles_kernel<T>, grid, F::kThreads, kShared, stream, p);
}

}  // namespace tern::cuda
