// Many activation rows: a block multiplies four warps' tiles of weight rows by 64 activation rows. Activations pass
// through shared memory in chunks of 128 columns, copied ahead; weights go straight from memory to the registers of the
// one warp that needs them, which unpacks them once for all 64 activation rows.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_product.h"

namespace tern::cuda {

constexpr int kGemmActs = kActTile, kGemmWarps = 4, kGemmStages = 4;
constexpr int kGemmStride = 144;  // bytes of an act row in shared memory: eight rows' 16 bytes fall into all banks

template <typename L>
struct GemmStage {
  static constexpr int kGroups = L::kAct32 ? 4 : 1;
  alignas(16) uint8_t q[kGemmActs * kGemmStride];
  alignas(16) float scales[kGemmActs][kGroups];
};

__device__ __forceinline__ void copy_async4(float* shared, const float* global) {
#if __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
#else
  *shared = *global;
#endif
}

/// The activations of a block: dense rows, or the pairs of one expert.
struct GemmActs {
  const ProductArgs& p;
  int expert = 0, first = 0, count;  // first: act row, or place in p.order
  __device__ explicit GemmActs(const ProductArgs& args) : p(args) {
    if (p.act_tiles) {
      const int4 t = p.act_tiles[blockIdx.y];
      expert = t.x, first = t.y, count = t.z;
    } else {
      first = static_cast<int>(blockIdx.y) * kGemmActs;
      count = min(kGemmActs, p.rows - first);
    }
  }
  /// Row of `out`.
  __device__ int out_row(int i) const { return p.order ? p.order[first + i] : first + i; }
  __device__ int act_row(int i) const { return out_row(min(i, count - 1)) / p.pairs_per_act; }
};

/// What a thread copies of each chunk: 16 bytes of four act rows, and scales of one.
template <typename L>
struct GemmCopy {
  static constexpr int kThreads = kGemmWarps * 32, kRows = kGemmActs * 8 / kThreads;
  const int8_t* q[kRows];
  const float* scales;
  const ActView& x;
  __device__ GemmCopy(const GemmActs& acts, int tid) : x(acts.p.x) {
    for (int i = 0; i < kRows; ++i) {
      q[i] = x.q + act_piece(acts.act_row(tid / 8 + i * kThreads / 8), 0, tid % 8, x.q_stride);
    }
    const int64_t row = acts.act_row(tid % kGemmActs);
    scales = x.scales + (L::kAct32 ? row * x.q_stride / 32 : row);
  }
  __device__ __forceinline__ void start(GemmStage<L>& to, int chunk, int tid) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      copy_async16(to.q + (tid / 8 + i * kThreads / 8) * kGemmStride + tid % 8 * 16, q[i] + chunk * kActChunkBytes,
                   true);
    }
    if (tid >= kGemmActs) return;
    if constexpr (L::kAct32) {
      copy_async16(to.scales[tid], scales + chunk * 4, true);
    } else {
      copy_async4(to.scales[tid], scales + chunk * x.stride);
    }
  }
};

template <typename L, int kM, int kN>
__device__ __forceinline__ void multiply_stage(const GemmStage<L>& stage, int lane, auto chunk_of_unit,
                                               const typename L::Frag (&w)[kM], float (&y)[kM][kN][4]) {
  const uint8_t* const matrices = stage.q + (lane / 16 * 8 + lane % 8) * kGemmStride + lane / 8 % 2 * 16;
  const auto b = [&](int s, uint32_t(&words)[kN][2]) {
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t r[4];
      load_matrices(r, matrices + n * 8 * kGemmStride + s * 32);
      words[n][0] = r[0], words[n][1] = r[1], words[n + 1][0] = r[2], words[n + 1][1] = r[3];
    }
  };
  const auto d = [&](int n, int j) {
    const int act = n * 8 + lane % 4 * 2;
    return make_float2(stage.scales[act][j], stage.scales[act + 1][j]);
  };
  multiply_chunk<L, chunk_of_unit, false>(w, b, d, y);
}

/// Blocks: x: kGemmWarps * kM tiles of a target; y: 64 act rows.
template <typename L, int kM>
__global__ void __launch_bounds__(kGemmWarps * 32, 2) gemm_kernel(const __grid_constant__ ProductArgs p) {
  constexpr int kN = kGemmActs / 8, kChunks = L::kUnit / 128;
  constexpr bool kAhead = kChunks == 1;  // the next unit's weights are loaded while this one's multiply
  using Frag = typename L::Frag;
  __shared__ GemmStage<L> stages[kGemmStages];
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const GemmActs acts(p);
  if (acts.count <= 0) return;
  int at = 0;
  while (static_cast<int>(blockIdx.x) >= p.target[at].tiles_end) ++at;
  const Target& target = p.target[at];
  const int block = static_cast<int>(blockIdx.x) - (at > 0 ? p.target[at - 1].tiles_end : 0);
  const int tile = (block * kGemmWarps + warp) * kM, tiles = (target.rows + kTileRows - 1) / kTileRows;
  const int64_t tile_bytes = static_cast<int64_t>(p.units) * L::kUnitBytes;
  const uint8_t* w[kM];
#pragma unroll
  for (int m = 0; m < kM; ++m)
    w[m] = target.w + acts.expert * target.expert_bytes + min(tile + m, tiles - 1) * tile_bytes;
  const auto load = [&](Frag(&f)[kM], int unit) {
#pragma unroll
    for (int m = 0; m < kM; ++m) f[m].load(w[m] + static_cast<int64_t>(unit) * L::kUnitBytes, lane);
  };

  const GemmCopy<L> copy(acts, tid);
  const int chunks = p.units * kChunks;
#pragma unroll
  for (int i = 0; i < kGemmStages - 1; ++i) {
    if (i < chunks) copy.start(stages[i], i, tid);
    copy_async_commit();
  }
  float y[kM][kN][4] = {};
  Frag frag[kM], ahead[kM];
  if constexpr (kAhead) load(ahead, 0);
  for (int unit = 0; unit < p.units; ++unit) {
    if constexpr (kAhead) {
#pragma unroll
      for (int m = 0; m < kM; ++m) frag[m] = ahead[m];
      if (unit + 1 < p.units) load(ahead, unit + 1);
    } else {
      load(frag, unit);
    }
    unrolled<0, kChunks>([&](auto c) {
      const int chunk = unit * kChunks + c, next = chunk + kGemmStages - 1;
      copy_async_wait<kGemmStages - 2>();
      __syncthreads();
      if (next < chunks) copy.start(stages[next % kGemmStages], next, tid);
      copy_async_commit();
      multiply_stage<L>(stages[chunk % kGemmStages], lane, c, frag, y);
    });
  }
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int i = 0; i < kN * 4; ++i) {
      const int row = (tile + m) * kTileRows + lane / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (row >= target.rows || col >= acts.count) continue;
      const float multiplier = p.x.multipliers ? p.x.multipliers[acts.act_row(col)] : 1.0f;
      const float bias = target.bias ? target.bias[row] : 0.0f;
      const int64_t at = static_cast<int64_t>(acts.out_row(col)) * target.rows + row;
      target.out[at] = finish<L>(y[m][i / 4][i % 4], multiplier, target.tensor_scale, target.scale, bias) +
                       (target.add ? target.add[at] : 0.0f);
    }
  }
}

/// tiles_end counts tiles of 16 rows on entry. p.rows: act rows, or (experts) the number of act tiles.
template <typename L>
void launch_gemm(cudaStream_t stream, const ProductArgs& args) {
  constexpr int kM = kTilesShareActs<L> ? 2 : 1, kTiles = kM * kGemmWarps;
  ProductArgs p = args;
  const dim3 grid(static_cast<unsigned>(cut_tiles(p, kTiles)),
                  p.act_tiles ? static_cast<unsigned>(p.rows) : blocks(p.rows, kGemmActs));
  gemm_kernel<L, kM><<<grid, kGemmWarps * 32, 0, stream>>>(p);
  launched("gemm");
}

}  // namespace tern::cuda
