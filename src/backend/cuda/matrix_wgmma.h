// Many activation rows on Hopper: warpgroups multiply tiles of 64 weight rows, unpacked in registers, by
// activations that all warpgroups of a block share. For layouts whose scales hold for a chunk (128 columns) or longer:
// with shorter ones the folding into floats, not the product, sets the pace.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_gemm.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/mma_wgmma.h"

namespace tern::cuda {

template <typename L>
constexpr bool kHasWgmma = L::kUnit == 128 && L::Scales::kFoldCols == 128 && L::Scales::kFold != Fold::kSuper;

constexpr int kWgmmaStages = 4;

/// kParts products of kPartActs activation rows each, so that one is folded while the next multiplies.
template <int kPartActs, int kParts>
struct WgmmaStage {
  static constexpr int kActs = kPartActs * kParts;
  uint8_t q[kActs * 128];
  float scales[kActs];
  uint8_t padding[1024 - kActs * 4 % 1024];  // q of every stage at a multiple of 1024
};

#ifdef TERN_WGMMA
/// y += scale of row * scale of activation * sum, for the rows and activations of a lane.
template <int kN>
__device__ __forceinline__ void fold_part(const float (&row_scales)[2], const float* act_scales, int lane,
                                          const int (&c)[kN][4], float (&y)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 act = *reinterpret_cast<const float2*>(act_scales + n * 8 + lane % 4 * 2);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      y[n][e] += row_scales[e / 2] * ((e % 2 == 0 ? act.x : act.y) * from_magic(c[n][e] + kMagicBits));
  }
}
#endif

#ifdef TERN_WGMMA
/// Copies the chunks of a block's activations into the stages, as each is given back: one thread, all of the time.
template <typename Stage>
__device__ __forceinline__ void feed_stages(const ProductArgs& p, Stage* stages, uint64_t* full, uint64_t* empty,
                                            int first, int chunks) {
  const int tiles = (p.rows + kActTile - 1) / kActTile;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int slot = chunk % kWgmmaStages;
    Stage& stage = stages[slot];
    wait_barrier(&empty[slot], (chunk / kWgmmaStages + 1) % 2);
    expect_bytes(&full[slot], sizeof stage.q + sizeof stage.scales);
#pragma unroll
    for (int g = 0; g < Stage::kActs / kActTile; ++g) {  // tiles that do not exist repeat others; their sums go nowhere
      const int tile = min(first / kActTile + g, tiles - 1);
      copy_bulk(stage.q + g * kActChunkBytes,
                p.x.q + tile * kActTile * p.x.q_stride + static_cast<int64_t>(chunk) * kActChunkBytes, kActChunkBytes,
                &full[slot]);
    }
    copy_bulk(stage.scales, p.x.scales + chunk * p.x.stride + first, sizeof stage.scales, &full[slot]);
  }
}
#endif

#ifdef TERN_WGMMA
/// The sums of rows `row` and `row` + 8 and of activations `act`, `act` + 1, then those 8, 16 ... further, as the
/// product.
template <typename L, int kN>
__device__ __forceinline__ void store_part(const ProductArgs& p, const Target& target, int row, int act,
                                           const float (&sums)[kN][4]) {
  const auto exists = [&](int n, int e) { return row + e / 2 * 8 < target.rows && act + n * 8 + e % 2 < p.rows; };
  const int64_t origin = static_cast<int64_t>(act) * target.rows + row;
  const auto at = [&](int n, int e) { return origin + static_cast<int64_t>(n * 8 + e % 2) * target.rows + e / 2 * 8; };
  float add[kN][4] = {};
  if (target.add) {  // all of them on their way together
#pragma unroll
    for (int i = 0; i < kN * 4; ++i) {
      if (exists(i / 4, i % 4)) add[i / 4][i % 4] = target.add[at(i / 4, i % 4)];
    }
  }
  float bias[2] = {};
  for (int half = 0; target.bias && half < 2; ++half)
    bias[half] = exists(0, half * 2) ? target.bias[row + half * 8] : 0;
#pragma unroll
  for (int i = 0; i < kN * 4; ++i) {
    const int n = i / 4, e = i % 4;
    if (!exists(n, e)) continue;
    const float multiplier = p.x.multipliers ? p.x.multipliers[act + n * 8 + e % 2] : 1.0f;
    target.out[at(n, e)] =
        finish<L>(sums[n][e], multiplier, target.tensor_scale, target.scale, bias[e / 2]) + add[n][e];
  }
}
#endif

/// Twice the warps, one part each (112 registers), took 171 ms instead of 163 for the products of 2048 rows of 27B; a
/// conversion by one multiplication and addition, (sum + 2^23 * 1.5) * scale - 2^23 * 1.5 * scale, 179.
/// Blocks: x: kGroups * 64 weight rows of a target; y: the stage's activation rows. The last warpgroup only copies, and
/// leaves its registers to the others.
template <typename L, int kPartActs, int kParts, int kGroups>
__global__ void __launch_bounds__(kGroups * 128 + 128, 1) wgmma_kernel(const __grid_constant__ ProductArgs p) {
#ifdef TERN_WGMMA
  static_assert(kParts == 2);
  using Stage = WgmmaStage<kPartActs, kParts>;
  using Frag = typename L::Frag;
  constexpr bool kWhole = L::Scales::kFold == Fold::kWhole;
  static_assert(L::kUnit == 128);
  constexpr int kN = kPartActs / 8;
  constexpr int kAhead = 2;  // chunks whose weights are under way
  extern __shared__ uint8_t memory[];
  __shared__ uint64_t full[kWgmmaStages], empty[kWgmmaStages];
  auto* const stages =
      reinterpret_cast<Stage*>(memory + (1024 - static_cast<uint32_t>(__cvta_generic_to_shared(memory)) % 1024) % 1024);
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int first = static_cast<int>(blockIdx.y) * Stage::kActs, chunks = p.units;
  if (tid == 0) {
    for (int i = 0; i < kWgmmaStages; ++i) init_barrier(&full[i], 1), init_barrier(&empty[i], kGroups * 128);
    fence_barriers();
  }
  __syncthreads();
  if (warp >= kGroups * 4) {
    give_registers<40>();
    wait_for_previous_kernel();
    if (warp == kGroups * 4 && lane == 0) feed_stages(p, stages, full, empty, first, chunks);
    return;
  }
  take_registers<232>();

  int at = 0;
  while (static_cast<int>(blockIdx.x) >= p.target[at].tiles_end) ++at;
  const Target& target = p.target[at];
  const int block = static_cast<int>(blockIdx.x) - (at > 0 ? p.target[at - 1].tiles_end : 0);
  const int tile = block * kGroups * 4 + warp, tiles = (target.rows + kTileRows - 1) / kTileRows;
  const uint8_t* const w = target.w + min(tile, tiles - 1) * (static_cast<int64_t>(p.units) * L::kUnitBytes);
  Frag ring[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) ring[i].load(w + static_cast<int64_t>(min(i, p.units - 1)) * L::kUnitBytes, lane);

  float y[kParts][kN][4] = {};
  int c[kParts][kN][4] = {};
  float row_scales[2] = {};
  const float* act_scales = stages[0].scales;  // of the chunk whose last part is not folded yet
  const uint64_t acts = wgmma_acts(stages[0].q);
  const auto issue = [&](int part, const uint32_t(&a)[4][4], int slot, bool add) {
    const uint64_t from = acts + (slot * sizeof(Stage) + part * kPartActs * 128) / 16;  // in the descriptor's units
    wgmma_begin();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma_s8(c[part], a[s], from + s * 2, add || s > 0);
    wgmma_commit();
  };
  const auto release = [&](int chunk) { arrive_barrier(&empty[chunk % kWgmmaStages]); };
  uint32_t a[kWhole ? 2 : 1][4][4];
  const auto multiply_chunk = [&](auto i, int chunk) {
    constexpr int kA = kWhole ? i % 2 : 0;
    const Frag f = ring[i];
    ring[i].load(w + static_cast<int64_t>(min(chunk + kAhead, chunks - 1)) * L::kUnitBytes, lane);
    const int slot = chunk % kWgmmaStages;
    unrolled<0, 4>([&](auto s) { f.codes.template codes<s>(a[kA][s]); });
    wait_barrier(&full[slot], chunk / kWgmmaStages % 2);
    if constexpr (kWhole) {
      issue(0, a[kA], slot, true);
      issue(1, a[kA], slot, true);
      wgmma_wait<2>();
      if (chunk > 0) release(chunk - 1);
    } else {  // each part is folded while another multiplies
      issue(0, a[kA], slot, false);
      fold_part(row_scales, act_scales, lane, c[1], y[1]);
      if (chunk > 0) release(chunk - 1);
      issue(1, a[kA], slot, false);
      row_scales[0] = f.scales.template scale<0, 0>() * L::Codes::kCodeScale;
      row_scales[1] = f.scales.template scale<0, 1>() * L::Codes::kCodeScale;
      wgmma_wait<1>();
      fold_part(row_scales, stages[slot].scales, lane, c[0], y[0]);
      act_scales = stages[slot].scales + kPartActs;
      wgmma_wait<0>();
    }
  };
  int base = 0;
  for (; base + kAhead <= chunks; base += kAhead) {
    unrolled<0, kAhead>([&](auto i) { multiply_chunk(i, base + i); });
  }
  if (base < chunks) multiply_chunk(std::integral_constant<int, 0>{}, base);
  wgmma_wait<0>();
  if constexpr (!kWhole) fold_part(row_scales, act_scales, lane, c[1], y[1]);
  wait_for_previous_kernel();  // `add` and the multipliers are other kernels'
  const int row = tile * kTileRows + lane / 4;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < kN * 4; ++i) (&y[part][0][0])[i] = __int_as_float((&c[part][0][0])[i]);
    }
    store_part<L>(p, target, row, first + part * kPartActs + lane % 4 * 2, y[part]);
  }
#endif
}

template <typename L, int kPartActs, int kParts, int kGroups>
void launch_wgmma(cudaStream_t stream, ProductArgs p) {
  constexpr int kTiles = kGroups * 4;
  constexpr size_t kShared = sizeof(WgmmaStage<kPartActs, kParts>) * kWgmmaStages + 1024;
  constexpr auto kKernel = wgmma_kernel<L, kPartActs, kParts, kGroups>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  check_launch(ready, "wgmma");
  const dim3 grid(static_cast<unsigned>(cut_tiles(p, kTiles)), blocks(p.rows, kPartActs * kParts));
  launch("wgmma", kKernel, grid, kGroups * 128 + 128, kShared, stream, p);
}

/// More rows than the matrix-vector kernel takes.
template <typename L>
void launch_tiled(cudaStream_t stream, const ProductArgs& p) {
  if constexpr (kHasWgmma<L>) {
    if (!p.act_tiles && wgmma_runs()) {
      return launch_wgmma<L, 64, 2, 2>(stream, p);
    }
  }
  launch_gemm<L>(stream, p);
}

}  // namespace tern::cuda
