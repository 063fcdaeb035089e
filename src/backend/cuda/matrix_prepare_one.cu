// The activations of one row, as in a decode step, whose norm is left to the products: a norm multiplies a row by a
// factor, which a rotation and integers under a scale carry along. So no block has to read the whole row before it
// rounds its span of it; it leaves the sum of its squares, and a product multiplies its results by the factor that the
// sums of all spans make. Blocks behind those of the spans multiply rows of float weights by the same row, and find the
// factor for themselves.
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_columns.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_rotate.h"
#include "backend/cuda/matrix_widen.h"
#include "backend/cuda/mma.h"

namespace tern::cuda {
namespace {

constexpr int kMostThreads = 512;

__device__ Four read_four(const float* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  return {v.x, v.y, v.z, v.w};
}

__device__ void round_span_of_one(const PrepareArgs& p) {
  extern __shared__ float4 shared[];  // little: the next product's rings come up beside it
  __shared__ double squares[kMostThreads / 32];
  __shared__ float most[kMostThreads / 32];
  const Source& s = p.source;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32, cols = static_cast<int>(p.cols),
            col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  const bool in = col < cols;
  Four by{}, x{};
  if (in) {
    by = read_four(s.norm + col);
    if (p.signs) {
      const Four signs = read_four(p.signs + (p.width == cols ? col : col % static_cast<int>(p.width)));
      for (int i = 0; i < 4; ++i) by.v[i] *= signs.v[i];
    }
    if (p.block > 0) {
      for (float& v : by.v) v *= p.factor;
    }
  }
  wait_for_previous_kernel();
  if (in) x = read_four(s.x + col);
  const double sum = sum_of_lanes(square(x), 32);
  for (int i = 0; i < 4; ++i) x.v[i] *= by.v[i];
  if (p.block > 0) transform_span(x, static_cast<int>(p.block), shared, shared + blockDim.x);
  float largest = largest_of_warp(magnitude_of(x));
  if (lane == 0) squares[warp] = sum, most[warp] = largest;
  __syncthreads();
  if (p.group == 256) largest = fmaxf(largest, most[warp ^ 1]);
  if (warp == 0) {
    const double all = sum_of_lanes(lane < static_cast<int>(blockDim.x / 32) ? squares[lane] : 0.0, kMostThreads / 32);
    if (lane == 0) p.squares[blockIdx.x] = all;
  }
  if (col >= p.q_stride) return;
  const GroupScale scale = group_scale(largest);
  *reinterpret_cast<uint32_t*>(p.q + lane_place(0, col / 128, col % 128, 1)) = round_columns(x, scale.multiplier);
  if (lane == 0) p.scales[col / 128] = scale.scale;
}

/// Row `row` of a float weight times the normed row.
template <typename T>
__device__ void multiply_one(const PrepareArgs& p, const FloatArgs& f, const Target& target, int64_t row) {
  constexpr int kValues = 16 / sizeof(T), kAhead = 3;
  __shared__ double squares[kMostThreads / 32];
  __shared__ float sums[kMostThreads / 32];
  const int tid = static_cast<int>(threadIdx.x), cols = static_cast<int>(p.cols),
            step = static_cast<int>(blockDim.x) * kValues;
  const uint8_t* const w = target.w + row * f.row_bytes;
  const Source& s = p.source;
  float ahead[kAhead][kValues];
  const auto read = [&](int col, float(&v)[kValues]) {
    const uint4 weights = load_once(w + static_cast<int64_t>(col) * sizeof(T));
    widen<T>({weights.x, weights.y, weights.z, weights.w}, v);
#pragma unroll
    for (int k = 0; k < kValues; k += 4) {
      const Four by = read_four(s.norm + col + k);
      for (int i = 0; i < 4; ++i) v[k + i] *= by.v[i];
    }
  };
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if (tid * kValues + j * step < cols) read(tid * kValues + j * step, ahead[j]);
  }
  wait_for_previous_kernel();
  double square_sum = 0;
  float sum = 0;
  const auto add = [&](int col, const float(&v)[kValues]) {
#pragma unroll
    for (int k = 0; k < kValues; k += 4) {
      const Four x = read_four(s.x + col + k);
      square_sum += square(x);
      for (int i = 0; i < 4; ++i) sum += v[k + i] * x.v[i];
    }
  };
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if (tid * kValues + j * step < cols) add(tid * kValues + j * step, ahead[j]);
  }
  for (int col = tid * kValues + kAhead * step; col < cols; col += step) {
    float v[kValues];
    read(col, v);
    add(col, v);
  }
  square_sum = sum_of_lanes(square_sum, 32);
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (tid % 32 == 0) squares[tid / 32] = square_sum, sums[tid / 32] = sum;
  __syncthreads();
  if (tid >= 32) return;
  const bool in = tid < static_cast<int>(blockDim.x / 32);
  square_sum = sum_of_lanes(in ? squares[tid] : 0.0, kMostThreads / 32);
  sum = in ? sums[tid] : 0.0f;
  for (int i = 1; i < kMostThreads / 32; i *= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (tid != 0) return;
  const float v = sum * norm_factor(square_sum, p.reciprocal, s.eps);
  target.out[row] = v * target.scale + (target.bias ? target.bias[row] : 0.0f) + (target.add ? target.add[row] : 0.0f);
}

/// Blocks: the spans of the row, then the rows of the float weights.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    prepare_one_kernel(const __grid_constant__ PrepareArgs p, const __grid_constant__ FloatArgs f, int spans) {
  let_next_kernel_start();
  if (static_cast<int>(blockIdx.x) < spans) return round_span_of_one(p);
  const int row = static_cast<int>(blockIdx.x) - spans;
  const bool first = row < f.target.rows;
  multiply_one<T>(p, f, first ? f.target : f.other, first ? row : row - f.target.rows);
}

}  // namespace

void launch_prepare_one(cudaStream_t stream, const PrepareArgs& p, const FloatArgs* floats, TensorType float_type) {
  const FloatArgs none{}, &f = floats ? *floats : none;
  const auto spans = static_cast<int>(norm_spans(p.cols, p.block));
  const int64_t span = p.block > kLeastSpan ? p.block : kLeastSpan;
  const auto threads = static_cast<unsigned>(span / 4);
  const size_t shared = p.block > 128 ? threads * 2 * sizeof(float4) : 0;
  const auto run = [&](auto kernel) {
    launch("prepare", kernel, dim3(blocks(spans + f.target.rows + f.other.rows)), threads, shared, stream, p, f, spans);
  };
  if (float_type == TensorType::F32) return run(prepare_one_kernel<float>);
  if (float_type == TensorType::F16) return run(prepare_one_kernel<__half>);
  run(prepare_one_kernel<__nv_bfloat16>);
}

}  // namespace tern::cuda
