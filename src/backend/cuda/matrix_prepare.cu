// A block takes a span of a row, four consecutive elements a thread. Butterflies of the Hadamard transform run in
// registers (strides 1, 2), between lanes (4 .. 64) and between warps (128 ..): every pair is added and subtracted as
// quant::walsh_hadamard does it, so the bits agree. Rounding follows quant::quantize_row to the last integer.
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_prepare.h"
#include "quant/activation.h"

namespace tern::cuda {
namespace {

constexpr int kLeastSpan = 1024;

struct Four {
  float v[4];
};

__device__ void butterfly(float& a, float& b) {
  const float sum = a + b, difference = a - b;
  a = sum, b = difference;
}

/// H of blocks of `block` elements that lie in the span; `shared` has two buffers of a float4 a thread.
__device__ void transform(Four& x, int block, float factor, float4* shared) {
  const int tid = static_cast<int>(threadIdx.x);
  for (float& v : x.v) v = __fmul_rn(v, factor);
  if (block > 1) {
    butterfly(x.v[0], x.v[1]);
    butterfly(x.v[2], x.v[3]);
  }
  if (block > 2) {
    butterfly(x.v[0], x.v[2]);
    butterfly(x.v[1], x.v[3]);
  }
  for (int lanes = 1; lanes < 32 && lanes * 4 < block; lanes *= 2) {
    const bool upper = tid & lanes;
    for (float& v : x.v) {
      const float other = __shfl_xor_sync(~0u, v, lanes);
      v = upper ? other - v : v + other;
    }
  }
  int buffer = 0;
  for (int threads = 32; threads * 4 < block; threads *= 2, buffer ^= 1) {
    float4* const here = shared + buffer * static_cast<int>(blockDim.x);
    here[tid] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    __syncthreads();
    const float4 other = here[tid ^ threads];
    const float o[4] = {other.x, other.y, other.z, other.w};
    const bool upper = tid & threads;
    for (int i = 0; i < 4; ++i) x.v[i] = upper ? o[i] - x.v[i] : x.v[i] + o[i];
  }
}

__device__ Four load_span(const PrepareArgs& p, int64_t row, int64_t col, float4* shared) {
  Four x{};
  for (int i = 0; i < 4; ++i) {
    if (col + i < p.cols) x.v[i] = p.x[row * p.cols + col + i];
  }
  if (p.block == 0) return x;
  const auto apply_signs = [&] {
    for (int i = 0; i < 4; ++i) {
      if (p.signs && col + i < p.cols) x.v[i] = __fmul_rn(x.v[i], p.signs[(col + i) % p.width]);
    }
  };
  if (!p.inverse) apply_signs();
  transform(x, static_cast<int>(p.block), p.factor, shared);
  if (p.inverse) apply_signs();
  return x;
}

__device__ float magnitude_of(const Four& x) {
  return fmaxf(fmaxf(fabsf(x.v[0]), fabsf(x.v[1])), fmaxf(fabsf(x.v[2]), fabsf(x.v[3])));
}
__device__ float most_of_lanes(float v, int lanes) {
  for (int i = 1; i < lanes; i *= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
  return v;
}

/// The four integers of a thread to their place, and the sum of its warp's 128.
__device__ void store(const PrepareArgs& p, int64_t row, int64_t col, const Four& x, float multiplier) {
  uint32_t packed = 0;
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int q = max(-128, min(127, __float2int_rn(__fmul_rn(x.v[i], multiplier))));
    packed |= (static_cast<uint32_t>(q) & 255u) << (8 * i);
    sum += q;
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (col >= p.q_stride) return;
  const int64_t at = p.lane_order ? col / 128 * 128 + act_position(static_cast<int>(col % 128)) : col;
  *reinterpret_cast<uint32_t*>(p.q + row * p.q_stride + at) = packed;
  if (threadIdx.x % 32 == 0) p.sums[col / 128 * p.stride + row] = sum;
}

__global__ void __launch_bounds__(1024) prepare_kernel(const __grid_constant__ PrepareArgs p) {
  extern __shared__ float4 shared[];
  __shared__ float most[32];
  const int64_t span = static_cast<int64_t>(blockDim.x) * 4, row = blockIdx.x,
                col = blockIdx.y * span + threadIdx.x * 4;
  const Four x = load_span(p, row, col, shared);
  if (p.out) {
    for (int i = 0; i < 4; ++i) {
      if (col + i < p.cols) p.out[row * p.cols + col + i] = x.v[i];
    }
    return;
  }
  float amax = most_of_lanes(magnitude_of(x), p.group == 32 ? 8 : 32);
  if (p.group == 256) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (threadIdx.x % 32 == 0) most[warp] = amax;
    __syncthreads();
    amax = fmaxf(amax, most[warp ^ 1]);
  }
  const bool zero = amax < quant::kSmallestAmax;
  const float d = __fdiv_rn(amax, 127.0f);
  store(p, row, col, x, zero ? 0.0f : __fdiv_rn(127.0f, amax));
  if (col < p.q_stride && col % p.group == 0) {
    p.scales[col / p.group * p.stride + row] = zero ? 0.0f : p.group == 32 ? quant::half_scale(d) : d;
  }
}

/// One scale a row: a block a row, which it reads twice.
__global__ void __launch_bounds__(1024) prepare_row_kernel(const __grid_constant__ PrepareArgs p) {
  extern __shared__ float4 shared[];
  __shared__ float most[32];
  const int64_t span = static_cast<int64_t>(blockDim.x) * 4, row = blockIdx.x;
  float amax = 0;
  for (int64_t at = 0; at < p.cols; at += span) {
    amax = fmaxf(amax, magnitude_of(load_span(p, row, at + threadIdx.x * 4, shared)));
    __syncthreads();
  }
  amax = most_of_lanes(amax, 32);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = amax;
  __syncthreads();
  for (unsigned i = 0; i < blockDim.x / 32; ++i) amax = fmaxf(amax, most[i]);
  const auto multiplier = static_cast<float>(127.0 / fmax(1e-5, static_cast<double>(amax)));
  if (threadIdx.x == 0) p.scales[row] = multiplier;
  for (int64_t at = 0; at < p.q_stride; at += span) {
    const int64_t col = at + threadIdx.x * 4;
    store(p, row, col, load_span(p, row, col, shared), multiplier);
    __syncthreads();
  }
}

}  // namespace

void launch_prepare(cudaStream_t stream, const PrepareArgs& p) {
  const int64_t span = p.block > kLeastSpan ? p.block : kLeastSpan;
  const auto threads = static_cast<unsigned>(span / 4);
  const size_t shared = p.block > 128 ? threads * 2 * sizeof(float4) : 0;
  const bool by_row = p.q && p.group == 0;
  const dim3 grid(static_cast<unsigned>(p.rows), by_row ? 1u : blocks(p.q ? p.q_stride : p.cols, span));
  if (by_row) {
    prepare_row_kernel<<<grid, threads, shared, stream>>>(p);
  } else {
    prepare_kernel<<<grid, threads, shared, stream>>>(p);
  }
  launched("prepare");
}

}  // namespace tern::cuda
