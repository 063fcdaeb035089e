// What a layout needs beside its fast products: repacking, row look-up, and products with unrounded activations.
#pragma once
#include "backend/cuda/formats_source.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"

namespace tern::cuda {

/// A thread a word of the device layout.
template <TensorType kType>
__global__ void repack_kernel(const RepackArgs p) {
  using L = typename FileBlock<kType>::DeviceLayout;
  constexpr int kWords = L::kUnitBytes / 4;
  const int unit = static_cast<int>(blockIdx.x), tile = static_cast<int>(blockIdx.y);
  const int64_t left = p.rows - static_cast<int64_t>(tile) * kTileRows;
  const FileTile<kType> source{p.from + tile * kTileRows * p.row_bytes, p.row_bytes,
                               static_cast<int64_t>(unit) * L::kUnit, p.cols,
                               static_cast<int>(left < kTileRows ? left : kTileRows)};
  auto* to = reinterpret_cast<uint32_t*>(p.to + (static_cast<int64_t>(tile) * p.units + unit) * L::kUnitBytes);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x)) to[i] = source.word(i);
}

/// The weights of k-step kS in this lane: w[row half][8], columns 4t.. and 16 + 4t... Exactly quant's decoders.
template <typename L, int kS>
__device__ __forceinline__ void decode_step(const typename L::Frag& f, float tensor_scale, float (&w)[2][8]) {
  using Scales = typename L::Scales;
  uint32_t a[4];
  f.codes.template codes<kS>(a);
  unrolled<0, 4>([&](auto r) {
    constexpr int kHalf = r % 2, kJ = (kS * 32 + r / 2 * 16) / Scales::kFoldCols;
    float scale = tensor_scale;
    if constexpr (Scales::kFold != Fold::kWhole) scale = f.scales.template scale<kJ, kHalf>();
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int code = static_cast<int>(a[r] << (24 - 8 * b)) >> 24;
      float v = __fmul_rn(static_cast<float>(code) * L::Codes::kCodeScale, scale);
      if constexpr (Scales::kMinima) v = __fadd_rn(v, f.scales.template minimum<kJ, kHalf>());
      w[kHalf][r / 2 * 4 + b] = v;
    }
  });
}

/// A warp a tile and unit, for every id: the one row of the tile is written.
template <typename L>
__global__ void lookup_kernel(const LookupArgs p) {
  const int lane = static_cast<int>(threadIdx.x), unit = static_cast<int>(blockIdx.x);
  const int64_t r = blockIdx.y, id = p.ids[r];
  if (id < 0 || id >= p.table_rows) return;
  typename L::Frag f;
  f.load(p.w + (id / kTileRows * p.units + unit) * L::kUnitBytes, lane);
  const int row = static_cast<int>(id % kTileRows);
  unrolled<0, L::kUnit / 32>([&](auto s) {
    float w[2][8];
    decode_step<L, s>(f, p.tensor_scale, w);
    if (row % 8 != lane / 4) return;
    const int64_t col = static_cast<int64_t>(unit) * L::kUnit + s * 32 + lane % 4 * 4;
    for (int half = 0; half < 2; ++half) {
      if (col + 16 * half >= p.cols) continue;
      const float* v = w[row / 8] + 4 * half;
      *reinterpret_cast<float4*>(p.out + r * p.cols + col + 16 * half) = make_float4(v[0], v[1], v[2], v[3]);
    }
  });
}

/// Lanes of a warp, then warps, in a fixed order.
__device__ __forceinline__ float sum_lanes(float v, int lanes) {
  for (int i = lanes / 2; i > 0; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  return v;
}

constexpr int kFloatRows = 4;  // act rows of a pass over integer layouts

template <typename L>
__global__ void __launch_bounds__(128) floats_kernel(const __grid_constant__ FloatArgs p) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * (p.ids ? 1 : kFloatRows);
  const int rows = p.ids ? 1 : static_cast<int>(p.rows - first < kFloatRows ? p.rows - first : kFloatRows);
  const uint8_t* w = p.target.w + (p.ids ? p.ids[first] * p.target.expert_bytes : 0) +
                     static_cast<int64_t>(blockIdx.x) * p.units * L::kUnitBytes;
  const float* x = p.x + first / p.pairs_per_act * p.cols;
  float sum[2][kFloatRows] = {};
  for (int unit = warp; unit < p.units; unit += 4) {
    typename L::Frag f;
    f.load(w + static_cast<int64_t>(unit) * L::kUnitBytes, lane);
    unrolled<0, L::kUnit / 32>([&](auto s) {
      float v[2][8];
      decode_step<L, s>(f, p.target.tensor_scale, v);
      const int64_t col = static_cast<int64_t>(unit) * L::kUnit + s * 32 + lane % 4 * 4;
      for (int r = 0; r < rows; ++r) {
        for (int i = 0; i < 2; ++i) {
          if (col + 16 * i >= p.cols) continue;
          const float4 a = *reinterpret_cast<const float4*>(x + r * p.cols + col + 16 * i);
          for (int half = 0; half < 2; ++half) {
            const float* u = v[half] + 4 * i;
            sum[half][r] += u[0] * a.x + u[1] * a.y + u[2] * a.z + u[3] * a.w;
          }
        }
      }
    });
  }
  __shared__ float sums[4][kFloatRows][kTileRows];
  for (int r = 0; r < kFloatRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      const float v = sum_lanes(sum[half][r], 4);
      if (lane % 4 == 0) sums[warp][r][lane / 4 + 8 * half] = v;
    }
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x) / kTileRows, row = static_cast<int>(threadIdx.x) % kTileRows;
  const int64_t out_row = static_cast<int64_t>(blockIdx.x) * kTileRows + row;
  if (r >= rows || out_row >= p.target.rows) return;
  const float v = sums[0][r][row] + sums[1][r][row] + sums[2][r][row] + sums[3][r][row];
  p.target.out[(first + r) * p.target.rows + out_row] =
      v * p.target.scale + (p.target.bias ? p.target.bias[out_row] : 0) +
      (p.target.add ? p.target.add[(first + r) * p.target.rows + out_row] : 0);
}

template <TensorType kType>
void launch_repack(cudaStream_t stream, const RepackArgs& p) {
  // The tiles of a launch are few enough for the grid: a piece of a file holds at most 2^16 rows.
  const dim3 grid(static_cast<unsigned>(p.units), blocks(p.rows, kTileRows));
  repack_kernel<kType><<<grid, 128, 0, stream>>>(p);
  launched("repack");
}

template <typename L>
void launch_lookup(cudaStream_t stream, const LookupArgs& p) {
  for (int64_t first = 0; first < p.rows; first += 65535) {  // the limit of a grid
    LookupArgs part = p;
    part.ids += first, part.out += first * p.cols;
    part.rows = p.rows - first < 65535 ? p.rows - first : 65535;
    lookup_kernel<L><<<dim3(static_cast<unsigned>(p.units), static_cast<unsigned>(part.rows)), 32, 0, stream>>>(part);
  }
  launched("lookup");
}

template <typename L>
void launch_floats(cudaStream_t stream, const FloatArgs& p) {
  const dim3 grid(blocks(p.target.rows, kTileRows), blocks(p.rows, p.ids ? 1 : kFloatRows));
  floats_kernel<L><<<grid, 128, 0, stream>>>(p);
  launched("floats");
}

}  // namespace tern::cuda
