// Two to 16 activation rows: every byte of the weights is read once. As many blocks as the device holds walk over the
// tiles of the launch; the warps of a block share a tile, taking stages of some two kilobytes in turn, each through its
// own ring, across the ends of tiles, so memory never waits for arithmetic.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_lane.h"
#include "backend/cuda/matrix_ring.h"
#include "backend/cuda/matrix_row.h"

namespace tern::cuda {

constexpr int kMatvecWarps = 8;
/// Stages under way: what a block holds must fit its shared memory.
template <int kM>
constexpr int kMatvecDepth = kM > 1 ? 2 : 4;

template <typename L, int kM>
using MatvecRing = WarpRing<Stages<L>::kBytes, kM, kMatvecDepth<kM>>;

/// What a lane needs of the activations of a chunk: its 32 bytes of row n * 8 + lane / 4, scales of rows n * 8 + 2t and
/// the next.
template <typename L, int kN>
struct LaneChunk {
  uint4 q[kN][2];
  float scales[kN][2][L::kAct32 ? 4 : 1];
};

template <typename L, int kC, int kM, int kN>
__device__ __forceinline__ void multiply_lane_chunk(const typename L::Frag (&w)[kM], const LaneChunk<L, kN>& x,
                                                    float (&y)[kM][kN][4]) {
  const auto b = [&](int s, uint32_t(&step)[kN][2]) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const uint4 v = x.q[n][s / 2];
      step[n][0] = s % 2 == 0 ? v.x : v.z, step[n][1] = s % 2 == 0 ? v.y : v.w;
    }
  };
  const auto d = [&](int n, int j) { return make_float2(x.scales[n][0][j], x.scales[n][1][j]); };
  multiply_chunk<L, kC, false>(w, b, d, y);
}

/// Rows that do not exist repeat the last one; their sums go nowhere.
template <typename L, int kN>
struct LaneActs {
  static constexpr int kGroups = L::kAct32 ? 4 : 1;
  using Chunk = LaneChunk<L, kN>;
  const int8_t* q[kN];
  int half[kN];  // bytes from the first 16 of a lane's to the second: odd rows have them exchanged
  const float* scales[kN][2];
  int together;

  __device__ LaneActs(const ActView& x, int rows, int lane) : together(x.together) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int row = min(n * 8 + lane / 4, rows - 1);
      q[n] = x.q + row * 128 + lane % 4 * 32 + row % 2 * 16;
      half[n] = row % 2 == 0 ? 16 : -16;
      for (int i = 0; i < 2; ++i) scales[n][i] = x.scales + min(n * 8 + lane % 4 * 2 + i, rows - 1);
    }
  }
  __device__ __forceinline__ void load(Chunk& to, int chunk) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const int8_t* const p = q[n] + chunk * together * 128;
      to.q[n][0] = *reinterpret_cast<const uint4*>(p);
      to.q[n][1] = *reinterpret_cast<const uint4*>(p + half[n]);
#pragma unroll
      for (int i = 0; i < 2 * kGroups; ++i) {
        if constexpr (L::Scales::kFold != Fold::kWhole)
          to.scales[n][i / kGroups][i % kGroups] = scales[n][i / kGroups][(chunk * kGroups + i % kGroups) * together];
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
  using S = Stages<L>;
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
  using S = Stages<L>;
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
      LaneChunk<L, kN> x[kAhead];
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
            multiply_lane_chunk<L, c>(w, x[kI % kAhead], y);
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
  const int places = cut_tiles(p, kM);
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
  const int warps = matvec_warps(Stages<L>::count(p.units));
  const int room = multiprocessors() * resident.blocks[warps];
  const dim3 grid(static_cast<unsigned>(places < room ? places : room));
  launch("matvec", kKernel, grid, static_cast<unsigned>(warps * 32), static_cast<size_t>(warps) * kRing, stream, p);
}

/// Two to 16 rows.
template <typename L>
void launch_matvec_tiles(cudaStream_t stream, const ProductArgs& p) {
  constexpr int kM = kTilesShareActs<L> ? 2 : 1;  // a pair of tiles shares what is read of many activations
  if (p.rows <= 8) return launch_matvec_of<L, 1, 1>(stream, p);
  launch_matvec_of<L, kM, 2>(stream, p);
}

}  // namespace tern::cuda
