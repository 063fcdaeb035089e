// F32, F16 and BF16 weights: rows as in the file, each padded to 16 bytes; activations are not rounded. Sums in f32.
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_float_tiles.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_widen.h"
#include "backend/cuda/mma.h"

namespace tern::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int64_t kManyRows = 4096;  // from here on a warp a row fills the device

/// kActs act rows (or one pair of experts) against one weight row; a warp a row, or the warps of a block one row
/// together.
template <typename T, int kActs>
__global__ void __launch_bounds__(kWarps * 32) rows_kernel(const __grid_constant__ FloatArgs p, bool together) {
  let_next_kernel_start();
  if (p.ids) wait_for_previous_kernel();  // the ids are another kernel's, the weights no one's
  constexpr int kValues = 16 / sizeof(T), kAhead = 5;
  const Target& target = blockIdx.z == 0 ? p.target : p.other;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t row = together ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kActs;
  const int acts = static_cast<int>(p.rows - first < kActs ? p.rows - first : kActs);
  const bool exists = row < target.rows;
  const uint8_t* w = target.w + (p.ids ? p.ids[first] * target.expert_bytes : 0) + (exists ? row : 0) * p.row_bytes;
  const float* x = p.x + first / p.pairs_per_act * p.cols;
  float sum[kActs] = {};
  const int64_t step = together ? kWarps * 32 : 32;
  const int64_t begin = together ? threadIdx.x : lane;
  const auto add = [&](int64_t i, const uint4& weights) {
    float v[kValues];
    widen<T>({weights.x, weights.y, weights.z, weights.w}, v);
    const int64_t col = i * kValues;
    const bool whole = p.cols % 4 == 0 && col + kValues <= p.cols;
#pragma unroll
    for (int a = 0; a < kActs; ++a) {
      if (a >= acts) break;
      const float* xa = x + a * p.cols + col;
      if (whole) {
#pragma unroll
        for (int k = 0; k < kValues; k += 4) {
          const float4 f = __ldg(reinterpret_cast<const float4*>(xa + k));
          sum[a] += v[k] * f.x + v[k + 1] * f.y + v[k + 2] * f.z + v[k + 3] * f.w;
        }
      } else {
        for (int k = 0; k < kValues; ++k) {
          if (col + k < p.cols) sum[a] += v[k] * xa[k];
        }
      }
    }
  };
  uint4 ahead[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if ((begin + j * step) * kValues < p.cols) ahead[j] = load_once(w + (begin + j * step) * 16);
  }
  wait_for_previous_kernel();
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if ((begin + j * step) * kValues < p.cols) add(begin + j * step, ahead[j]);
  }
#pragma unroll 4
  for (int64_t i = begin + kAhead * step; i * kValues < p.cols; i += step) add(i, load_once(w + i * 16));
  __shared__ float sums[kWarps][kActs];
#pragma unroll
  for (int a = 0; a < kActs; ++a) {
    for (int i = 16; i > 0; i /= 2) sum[a] += __shfl_xor_sync(~0u, sum[a], i);
    if (lane == 0) sums[warp][a] = sum[a];
  }
  __syncthreads();
  const int a = together ? static_cast<int>(threadIdx.x) : lane;
  if (a >= acts || !exists) return;
  float v = sums[together ? 0 : warp][a];
  for (int k = 1; together && k < kWarps; ++k) v += sums[k][a];
  const int64_t at = (first + a) * target.rows + row;
  target.out[at] = v * target.scale + (target.bias ? target.bias[row] : 0.0f) + (target.add ? target.add[at] : 0.0f);
}

template <typename T>
void launch_rows(cudaStream_t stream, const FloatArgs& p) {
  if (float_tiles_take(p)) return launch_float_tiles<T>(stream, p);
  const bool together = p.target.rows < kManyRows;
  constexpr int kActs = 8;
  const bool one = p.rows == 1 || p.ids;
  const dim3 grid(blocks(p.target.rows, together ? 1 : kWarps), blocks(p.rows, one ? 1 : kActs), p.other.w ? 2 : 1);
  launch("float rows", one ? rows_kernel<T, 1> : rows_kernel<T, kActs>, grid, kWarps * 32, 0, stream, p, together);
}

template <typename T>
__global__ void lookup_kernel(const LookupArgs p) {
  const int64_t r = blockIdx.x, id = p.ids[r];
  if (id < 0 || id >= p.table_rows) return;
  const auto* row = reinterpret_cast<const T*>(p.w + id * p.row_bytes);
  for (int64_t i = threadIdx.x; i < p.cols; i += blockDim.x) p.out[r * p.cols + i] = static_cast<float>(row[i]);
}
template <typename T>
void launch_lookup(cudaStream_t stream, const LookupArgs& p) {
  lookup_kernel<T><<<static_cast<unsigned>(p.rows), 256, 0, stream>>>(p);
  launched("lookup");
}

template <typename T>
constexpr FormatKernels kernels(TensorType type) {
  return {.type = type, .floats = launch_rows<T>, .lookup = launch_lookup<T>};
}

}  // namespace

template <>
FormatKernels format_kernels<TensorType::F32>() {
  return kernels<float>(TensorType::F32);
}
template <>
FormatKernels format_kernels<TensorType::F16>() {
  return kernels<__half>(TensorType::F16);
}
template <>
FormatKernels format_kernels<TensorType::BF16>() {
  return kernels<__nv_bfloat16>(TensorType::BF16);
}

}  // namespace tern::cuda
