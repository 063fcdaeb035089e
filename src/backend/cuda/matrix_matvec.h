// Two to 32 activation rows: every byte of the weights is read once, beyond 16 rows twice. As many blocks as the device
// holds walk over the tiles of the launch; the warps of a block share a tile, taking stages of some two kilobytes in
// turn, each through its own ring, across the ends of tiles, so memory never waits for arithmetic.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_lane.h"
#include "backend/cuda/matrix_ring.h"
#include "backend/cuda/matrix_row.h"

namespace tern::cuda {

constexpr int kMatvecWarps = 8;
constexpr int kMatvecCols = 16;  // act rows of a launch beyond eight
/// Stages under way: what a block holds must fit its shared memory.
template <int kM>
constexpr int kMatvecDepth = kM > 1 ? 2 : 4;

template <typename L, int kM>
using MatvecRing = WarpRing<Stages<L, kM>::kBytes, kM, kMatvecDepth<kM>>;

/// Rows that do not exist repeat the last one; their sums go nowhere.
template <typename L, int kN>
struct LaneActs {
  using Chunk = LaneChunk<L, kN, false>;
  const int8_t* q[kN];
  const float* scales[kN][2];

  __device__ LaneActs(const ActView& x, int rows, int lane) {
    const int64_t groups = x.q_stride / (L::kAct32 ? 32 : 128);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      q[n] = x.q + min(n * 8 + lane / 4, rows - 1) * x.q_stride + lane % 4 * 32;
      for (int i = 0; i < 2; ++i) {
        const int64_t row = min(n * 8 + lane % 4 * 2 + i, rows - 1);
        scales[n][i] = x.scales + row * groups;
      }
    }
  }
  __device__ __forceinline__ void load(Chunk& to, int chunk) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const auto* p = reinterpret_cast<const uint4*>(q[n] + chunk * 128);
      to.q[n][0] = p[0], to.q[n][1] = p[1];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (L::kAct32) {
          const float4 v = *reinterpret_cast<const float4*>(scales[n][i] + chunk * 4);
          to.scales[n][i][0] = v.x, to.scales[n][i][1] = v.y, to.scales[n][i][2] = v.z, to.scales[n][i][3] = v.w;
        } else if constexpr (L::Scales::kFold != Fold::kWhole) {
          to.scales[n][i][0] = scales[n][i][chunk];
        }
      }
    }
  }
};

/// Which target a place of a launch belongs to, and its first tile there.
struct Spot {
  const Target* target;
  int tile;
};
template <int kM>
__device__ __forceinline__ Spot find_place(const ProductArgs& p, int place) {
  int at = 0;
  while (place >= p.target[at].tiles_end) ++at;
  return {&p.target[at], (place - (at > 0 ? p.target[at - 1].tiles_end : 0)) * kM};
}

/// The stages that a warp reads, in order: `first`, first + step ... of every place of its block.
template <typename L, int kM>
struct StageCursor {
  using S = Stages<L, kM>;
  const ProductArgs& p;
  int place, stage, first, step, stages, last_bytes;
  const uint8_t* tile[kM] = {};

  __device__ StageCursor(const ProductArgs& args, int warp, int warps)
      : p(args),
        place(static_cast<int>(blockIdx.x)),
        stage(warp),
        first(warp),
        step(warps),
        stages(S::count(args.units)),
        last_bytes((args.units - (stages - 1) * S::kUnits) * L::kUnitBytes) {
    find();
  }
  __device__ __forceinline__ bool more() const { return place < p.target[p.targets - 1].tiles_end; }
  __device__ __forceinline__ void find() {
    if (!more()) return;
    const auto [t, index] = find_place<kM>(p, place);
    const int64_t bytes = static_cast<int64_t>(p.units) * L::kUnitBytes;
#pragma unroll
    for (int m = 0; m < kM; ++m) tile[m] = t->w + ((index + m) * kTileRows < t->rows ? index + m : index) * bytes;
  }
  template <typename Fill>
  __device__ __forceinline__ void take(Fill fill) {
    const uint8_t* from[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) from[m] = tile[m] + stage * S::kBytes;
    fill(from, bytes());
    next();
  }
  __device__ __forceinline__ int bytes() const {
    return !more() ? 0 : stage + 1 == stages ? last_bytes : S::kBytes;
  }
  __device__ __forceinline__ void next() {
    stage += step;
    if (stage < stages) return;
    stage = first;
    place += static_cast<int>(gridDim.x);
    find();
  }
};

/// The warps' sums of a place, added in the order of the warps, as the product.
template <typename L, int kM, int kN>
__device__ __forceinline__ void store_place(const ProductArgs& p, int place, int warps,
                                            const float (*sums)[kN * 8][kM * kTileRows]) {
  constexpr int kRows = kM * kTileRows;
  const auto [target, tile] = find_place<kM>(p, place);
  for (int i = static_cast<int>(threadIdx.x); i < kN * 8 * kRows; i += static_cast<int>(blockDim.x)) {
    const int col = i / kRows, row = i % kRows, out_row = tile * kTileRows + row;
    if (out_row >= target->rows || col >= p.rows) continue;
    float sum = sums[0][col][row];
    for (int k = 1; k < warps; ++k) sum = add_sums<L>(sum, sums[k][col][row]);
    store_sum<L>(p, *target, col, out_row, sum, read_finish(p, *target, col, col, out_row));
  }
}

/// Blocks walk over the places of the launch, kM tiles each.
template <typename L, int kM, int kN>
__global__ void __launch_bounds__(kMatvecWarps * 32, 2) matvec_kernel(const __grid_constant__ ProductArgs p) {
  using S = Stages<L, kM>;
  using Ring = MatvecRing<L, kM>;
  constexpr int kBuffers = kN == 1 ? 2 : 1;  // two: the next place's sums do not wait for this one's to be read
  constexpr int kAhead = kN == 1 && S::kChunks <= 4 ? S::kChunks : 2;  // chunks of activations in registers
  extern __shared__ uint4 rings[];
  __shared__ float sums[kBuffers][kMatvecWarps][kN * 8][kM * kTileRows];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            warps = static_cast<int>(blockDim.x / 32);
  Ring ring(reinterpret_cast<uint8_t*>(rings) + warp * Ring::kBytes, lane);
  StageCursor<L, kM> cursor(p, warp, warps);
#pragma unroll
  for (int i = 0; i < kMatvecDepth<kM>; ++i) {
    cursor.take([&](const auto& from, int bytes) { ring.fill(i, from, bytes); });
  }
  let_next_kernel_start();
  wait_for_previous_kernel();

  const LaneActs<L, kN> acts(p.x, p.rows, lane);
  int buffer = 0;
  for (int place = static_cast<int>(blockIdx.x); place < p.target[p.targets - 1].tiles_end;
       place += static_cast<int>(gridDim.x), buffer ^= kBuffers - 1) {
    float y[kM][kN][4] = {};
    for (int stage = warp; stage < cursor.stages; stage += warps) {
      LaneChunk<L, kN, false> x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead - (kAhead < S::kChunks); ++i) acts.load(x[i], stage * S::kChunks + i);
      const uint8_t* const units = ring.wait();
      const auto multiply_units = [&](auto whole) {
        unrolled<0, S::kUnits>([&](auto u) {
          if (!whole && stage * S::kUnits + u >= p.units) return;
          typename L::Frag w[kM];
#pragma unroll
          for (int m = 0; m < kM; ++m) w[m].load(units + m * S::kBytes + u * L::kUnitBytes, lane);
          unrolled<0, S::kChunksOfUnit>([&](auto c) {
            constexpr int kI = u * S::kChunksOfUnit + c;
            if constexpr (kAhead < S::kChunks && kI + 1 < S::kChunks) {
              acts.load(x[(kI + 1) % kAhead], stage * S::kChunks + kI + 1);
            }
            multiply_lane_chunk<L, c, false>(w, x[kI % kAhead], y);
          });
        });
      };
      if ((stage + 1) * S::kUnits <= p.units) {  // without tests between them, units overlap
        multiply_units(std::true_type{});
      } else {
        multiply_units(std::false_type{});
      }
      cursor.take([&](const auto& from, int bytes) { ring.refill(from, bytes); });
    }
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) {
      const int e = i % 4, col = i / 4 % kN * 8 + lane % 4 * 2 + e % 2,
                row = i / 4 / kN * kTileRows + lane / 4 + e / 2 * 8;
      sums[buffer][warp][col][row] = (&y[0][0][0])[i];
    }
    __syncthreads();
    store_place<L, kM, kN>(p, place, warps, sums[buffer]);
    if constexpr (kBuffers == 1) __syncthreads();
  }
}

/// Warps of a block: as many as share the stages of a tile evenly.
inline int matvec_warps(int stages) {
  if (stages <= kMatvecWarps) return stages;
  int best = kMatvecWarps;
  const auto waste = [&](int warps) { return (stages + warps - 1) / warps * warps * 16 / stages; };  // in sixteenths
  for (int warps = kMatvecWarps - 1; warps >= kMatvecWarps / 2; --warps) {
    if (waste(warps) < waste(best)) best = warps;
  }
  return best;
}

/// tiles_end counts tiles of 16 rows on entry.
template <typename L, int kM, int kN>
void launch_matvec_of(cudaStream_t stream, ProductArgs p) {
  constexpr size_t kRing = MatvecRing<L, kM>::kBytes;
  constexpr auto kKernel = matvec_kernel<L, kM, kN>;
  int places = 0, tiles_before = 0;
  for (int i = 0; i < p.targets; ++i) {
    places += (p.target[i].tiles_end - tiles_before + kM - 1) / kM;
    tiles_before = p.target[i].tiles_end;
    p.target[i].tiles_end = places;
  }
  static const auto resident = [] {  // blocks a multiprocessor holds, by warps
    struct Table {
      int blocks[kMatvecWarps + 1];
    } table{};
    check_launch(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kRing * kMatvecWarps)),
                 "matvec");
    for (int w = 1; w <= kMatvecWarps; ++w) {
      check_launch(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&table.blocks[w], kKernel, w * 32,
                                                                 static_cast<size_t>(w) * kRing),
                   "matvec");
    }
    return table;
  }();
  const int warps = matvec_warps(Stages<L, kM>::count(p.units));
  const int room = multiprocessors() * resident.blocks[warps];
  const dim3 grid(static_cast<unsigned>(places < room ? places : room));
  launch("matvec", kKernel, grid, static_cast<unsigned>(warps * 32), static_cast<size_t>(warps) * kRing, stream, p);
}

/// The same products of the rows from `first` on.
template <typename L>
ProductArgs rows_from(ProductArgs p, int first) {
  p.rows -= first;
  if (p.rows > kMatvecCols) p.rows = kMatvecCols;
  p.x.q += first * p.x.q_stride;
  p.x.scales += first * (p.x.q_stride / (L::kAct32 ? 32 : 128));
  if (p.x.multipliers) p.x.multipliers += first;
  for (Target& t : p.target) {
    const int64_t skip = int64_t{first} * t.rows;
    if (t.out) t.out += skip;
    if (t.add) t.add += skip;
  }
  return p;
}

template <typename L>
void launch_matvec(cudaStream_t stream, const ProductArgs& p) {
  if (p.rows == 1 || p.ids) {
    launch_row<L>(stream, p, p.rows);
  } else if (p.rows <= 8) {
    launch_matvec_of<L, 1, 1>(stream, p);
  } else {  // a pair of tiles shares what is read of the activations and what a stage costs
    constexpr int kM = kTilesShareActs<L> ? 2 : 1;
    for (int first = 0; first < p.rows; first += kMatvecCols)
      launch_matvec_of<L, kM, 2>(stream, rows_from<L>(p, first));
  }
}

}  // namespace tern::cuda
