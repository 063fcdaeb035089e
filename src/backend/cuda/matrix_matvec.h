// One to 32 activation rows: every byte of the weight is read once, straight into registers; the warps of a block share
// a tile and take its units in turn.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_product.h"

namespace tern::cuda {

constexpr int kMatvecWarps = 8;

/// Units that a warp has under way: about 64 bytes a lane.
template <typename L, int kM>
constexpr int matvec_depth() {
  constexpr int kLaneBytes = L::kUnitBytes / 32 * kM;
  return kLaneBytes >= 64 ? 1 : kLaneBytes >= 32 ? 2 : 4;
}

/// What a lane reads of the activations: its 32 bytes of each chunk of row n * 8 + lane / 4, scales and sums of rows
/// n * 8 + 2t and the next.
template <int kN, bool kOne>
struct LaneActs {
  const int8_t* q[kN];
  bool valid[kN];
  const ActView& x;
  int first;  // act row

  __device__ LaneActs(const ActView& view, int first_row, int rows, int lane) : x(view), first(first_row) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int row = n * 8 + lane / 4;
      valid[n] = row < rows;
      q[n] = x.q + (first_row + (valid[n] ? row : 0)) * x.q_stride + lane % 4 * 32;
    }
  }
  __device__ __forceinline__ void load(int chunk, uint32_t (&b)[kN][8]) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      uint4 v[2] = {};
      if (valid[n]) {
        const auto* p = reinterpret_cast<const uint4*>(q[n] + chunk * 128);
        v[0] = __ldg(p), v[1] = __ldg(p + 1);
      }
      b[n][0] = v[0].x, b[n][1] = v[0].y, b[n][2] = v[0].z, b[n][3] = v[0].w;
      b[n][4] = v[1].x, b[n][5] = v[1].y, b[n][6] = v[1].z, b[n][7] = v[1].w;
    }
  }
  __device__ __forceinline__ float2 scales(int group, int n, int lane) const {
    if (x.row_rule) return {1.0f, 1.0f};
    const float* p = x.scales + group * x.stride + first;
    if constexpr (kOne) return {__ldg(p), 0.0f};
    return __ldg(reinterpret_cast<const float2*>(p + n * 8 + lane % 4 * 2));
  }
  __device__ __forceinline__ int2 sums(int chunk, int n, int lane) const {
    const int32_t* p = x.sums + chunk * x.stride + first;
    if constexpr (kOne) return {__ldg(p), 0};
    return __ldg(reinterpret_cast<const int2*>(p + n * 8 + lane % 4 * 2));
  }
};

template <typename L, bool kOne, int kM, int kN>
__device__ __forceinline__ void multiply_unit(const typename L::Frag (&w)[kM], const LaneActs<kN, kOne>& acts, int unit,
                                              int lane, float (&y)[kM][kN][4]) {
  constexpr int kChunks = L::kUnit / 128;
  unrolled<0, kChunks>([&](auto c) {
    const int chunk = unit * kChunks + c;
    uint32_t words[kN][8];
    acts.load(chunk, words);
    const auto b = [&](int s, uint32_t(&step)[kN][2]) {
#pragma unroll
      for (int n = 0; n < kN; ++n) step[n][0] = words[n][2 * s], step[n][1] = words[n][2 * s + 1];
    };
    const auto d = [&](int n, int j) {
      return acts.scales(L::kAct32 ? chunk * 4 + j : chunk >> acts.x.group_shift, n, lane);
    };
    if constexpr (L::kTrits && kN == 1) {
      multiply_trit_chunk<L, c, kOne>(
          w, b, d, [&](int n) { return acts.sums(chunk, n, lane); }, y);
    } else {
      multiply_chunk<L, c, kOne>(w, b, d, y);
    }
  });
}

/// Blocks: x: kM tiles of a target; y (kOne): act row or pair.
template <typename L, bool kOne, int kM, int kN>
__global__ void __launch_bounds__(kMatvecWarps * 32, kN == 1 ? 2 : 1)
    matvec_kernel(const __grid_constant__ ProductArgs p) {
  using Frag = typename L::Frag;
  constexpr int kDepth = matvec_depth<L, kM>();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            warps = static_cast<int>(blockDim.x / 32);
  int at = 0;
  while (static_cast<int>(blockIdx.x) >= p.target[at].tiles_end) ++at;
  const Target& target = p.target[at];
  const int tile = (static_cast<int>(blockIdx.x) - (at > 0 ? p.target[at - 1].tiles_end : 0)) * kM;
  const int pair = kOne ? static_cast<int>(blockIdx.y) : 0;
  const int64_t tile_bytes = static_cast<int64_t>(p.units) * L::kUnitBytes;
  const uint8_t* w = target.w + (p.ids ? p.ids[pair] * target.expert_bytes : 0) + tile * tile_bytes;
  const LaneActs<kN, kOne> acts(p.x, pair / p.pairs_per_act, kOne ? 1 : p.rows, lane);

  Frag frag[kDepth][kM];
  const auto load = [&](int i, int unit) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const bool exists = m == 0 || (tile + m) * kTileRows < target.rows;
      frag[i][m].load(w + (exists ? m : 0) * tile_bytes + static_cast<int64_t>(unit) * L::kUnitBytes, lane);
    }
  };
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (warp + i * warps < p.units) load(i, warp + i * warps);
  }
  float y[kM][kN][4] = {};
  for (int first = warp; first < p.units; first += kDepth * warps) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const int unit = first + i * warps, next = unit + kDepth * warps;
      if (unit < p.units) multiply_unit<L>(frag[i], acts, unit, lane, y);
      if (next < p.units) load(i, next);
    }
  }

  // The warps' sums, added in the order of the warps.
  constexpr int kCols = kOne ? 1 : kN * 8, kRows = kM * kTileRows;
  __shared__ float sums[kMatvecWarps][kCols][kRows];
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = m * kTileRows + lane / 4 + e / 2 * 8, col = n * 8 + lane % 4 * 2 + e % 2;
        if (!kOne || col == 0) sums[warp][kOne ? 0 : col][row] = y[m][n][e];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kCols * kRows; i += static_cast<int>(blockDim.x)) {
    const int col = i / kRows, row = i % kRows, out_row = tile * kTileRows + row;
    if (out_row >= target.rows || (!kOne && col >= p.rows)) continue;
    float sum = sums[0][col][row];
    for (int k = 1; k < warps; ++k) {
      if constexpr (L::Scales::kFold == Fold::kWhole) {
        sum = __int_as_float(__float_as_int(sum) + __float_as_int(sums[k][col][row]));
      } else {
        sum += sums[k][col][row];
      }
    }
    const float multiplier = p.x.row_rule ? p.x.scales[kOne ? acts.first : col] : 1.0f;
    const float bias = target.bias ? target.bias[out_row] : 0.0f;
    target.out[static_cast<int64_t>(kOne ? pair : col) * target.rows + out_row] =
        finish<L>(sum, multiplier, target.tensor_scale, target.scale, bias);
  }
}

/// tiles_end counts tiles of 16 rows on entry.
template <typename L, bool kOne, int kM, int kN>
void launch_matvec_of(cudaStream_t stream, ProductArgs p, int columns) {
  int blocks_so_far = 0, tiles_before = 0;
  for (int i = 0; i < p.targets; ++i) {
    blocks_so_far += (p.target[i].tiles_end - tiles_before + kM - 1) / kM;
    tiles_before = p.target[i].tiles_end;
    p.target[i].tiles_end = blocks_so_far;
  }
  const int warps = p.units < kMatvecWarps ? (p.units < 4 ? p.units : 4) : kMatvecWarps;
  const dim3 grid(static_cast<unsigned>(blocks_so_far), static_cast<unsigned>(columns));
  matvec_kernel<L, kOne, kM, kN><<<grid, static_cast<unsigned>(warps * 32), 0, stream>>>(p);
  launched("matvec");
}

template <typename L>
void launch_matvec(cudaStream_t stream, const ProductArgs& p) {
  if (p.rows == 1 || p.ids) {
    launch_matvec_of<L, true, 1, 1>(stream, p, p.rows);
  } else if (p.rows <= 8) {
    launch_matvec_of<L, false, 1, 1>(stream, p, 1);
  } else {
    launch_matvec_of<L, false, kTilesShareActs<L> ? 2 : 1, 4>(stream, p, 1);
  }
}

}  // namespace tern::cuda
