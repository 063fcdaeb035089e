// One to 32 activation rows: every byte of the weights is read once, beyond 16 rows twice. As many blocks as the device
// holds walk over the tiles of the launch; the warps of a block share a tile, taking stages of some two kilobytes in
// turn, each through its own ring, across the ends of tiles, so memory never waits for arithmetic.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_product.h"
#include "backend/cuda/matrix_ring.h"

namespace tern::cuda {

constexpr int kMatvecWarps = 8;
constexpr int kMatvecCols = 16;  // act rows of a launch beyond eight
/// Stages under way: what a block holds must fit its shared memory.
template <int kM>
constexpr int kMatvecDepth = kM > 1 ? 2 : 4;

/// How a launch cuts tiles: stages of whole units, of up to kStageBytes a tile.
template <int kM>
constexpr int kStageBytes = 2400;
template <typename L, int kM>
struct Stages {
  static constexpr int kUnits = kStageBytes<kM> / L::kUnitBytes > 1 ? kStageBytes<kM> / L::kUnitBytes : 1;
  static constexpr int kChunksOfUnit = L::kUnit / 128, kChunks = kUnits * kChunksOfUnit;
  static constexpr int kBytes = kUnits * L::kUnitBytes;
  __host__ __device__ static int count(int units) { return (units + kUnits - 1) / kUnits; }
};
template <typename L, int kM>
using MatvecRing = WarpRing<Stages<L, kM>::kBytes, kM, kMatvecDepth<kM>>;

/// What a lane needs of the activations of a chunk: its 32 bytes of row n * 8 + lane / 4, scales and sums of rows
/// n * 8 + 2t and the next.
template <typename L, int kN>
struct LaneChunk {
  static constexpr int kGroups = L::kAct32 ? 4 : 1;
  static constexpr bool kSums = L::kTrits && kN == 1;
  uint4 q[kN][2];
  float scales[kN][2][kGroups];
  int sums[kN][2];
};

/// Rows that do not exist repeat the last one; their sums go nowhere.
template <typename L, int kN, bool kOne>
struct LaneActs {
  using Chunk = LaneChunk<L, kN>;
  const int8_t* q[kN];
  const float* scales[kN][2];
  const int32_t* sums[kN][2];

  __device__ LaneActs(const ActView& x, int first, int rows, int lane) {
    const int64_t groups = x.q_stride / (L::kAct32 ? 32 : 128);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      q[n] = x.q + (first + min(n * 8 + lane / 4, rows - 1)) * x.q_stride + lane % 4 * 32;
      for (int i = 0; i < 2; ++i) {
        const int64_t row = first + min(n * 8 + lane % 4 * 2 + i, rows - 1);
        scales[n][i] = x.scales + row * groups;
        sums[n][i] = x.sums + row * (x.q_stride / 128);
      }
    }
  }
  __device__ __forceinline__ void load(Chunk& to, int chunk) const {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const auto* p = reinterpret_cast<const uint4*>(q[n] + chunk * 128);
      to.q[n][0] = p[0], to.q[n][1] = p[1];
#pragma unroll
      for (int i = 0; i < (kOne ? 1 : 2); ++i) {
        if constexpr (L::kAct32) {
          const float4 v = *reinterpret_cast<const float4*>(scales[n][i] + chunk * 4);
          to.scales[n][i][0] = v.x, to.scales[n][i][1] = v.y, to.scales[n][i][2] = v.z, to.scales[n][i][3] = v.w;
        } else if constexpr (L::Scales::kFold != Fold::kWhole) {
          to.scales[n][i][0] = scales[n][i][chunk];
        }
        if constexpr (Chunk::kSums) to.sums[n][i] = kOne && threadIdx.x % 4 > 0 ? 0 : sums[n][i][chunk];
      }
    }
  }
};

template <typename L, int kC, bool kOne, int kM, int kN>
__device__ __forceinline__ void multiply_lane_chunk(const typename L::Frag (&w)[kM], const LaneChunk<L, kN>& x,
                                                    float (&y)[kM][kN][4]) {
  const auto b = [&](int s, uint32_t(&step)[kN][2]) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const uint4 v = x.q[n][s / 2];
      step[n][0] = s % 2 == 0 ? v.x : v.z, step[n][1] = s % 2 == 0 ? v.y : v.w;
    }
  };
  const auto d = [&](int n, int j) { return make_float2(x.scales[n][0][j], x.scales[n][kOne ? 0 : 1][j]); };
  if constexpr (LaneChunk<L, kN>::kSums) {
    const auto sums = [&](int n) { return make_int2(x.sums[n][0], x.sums[n][kOne ? 0 : 1]); };
    multiply_trit_chunk<L, kC, kOne>(w, b, d, sums, y);
  } else {
    multiply_chunk<L, kC, kOne>(w, b, d, y);
  }
}

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
    const uint8_t* w = t->w + (p.ids ? p.ids[blockIdx.y] * t->expert_bytes : 0);
#pragma unroll
    for (int m = 0; m < kM; ++m) tile[m] = w + ((index + m) * kTileRows < t->rows ? index + m : index) * bytes;
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

/// Adds up the lanes of a row (kOne).
template <typename L>
__device__ __forceinline__ void add_lanes(float (&y)[4]) {
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
#pragma unroll
    for (int i = 1; i < 4; i *= 2) {
      const float other = __shfl_xor_sync(~0u, y[e], i);
      if constexpr (L::Scales::kFold == Fold::kWhole) {
        y[e] = __int_as_float(__float_as_int(y[e]) + __float_as_int(other));
      } else {
        y[e] += other;
      }
    }
  }
}

/// What a sum is finished with. All of it is there before the sum is.
struct Finish {
  float multiplier, bias, add;
};
template <bool kOne>
__device__ __forceinline__ Finish read_finish(const ProductArgs& p, const Target& target, int pair, int col,
                                              int out_row) {
  const int64_t at = static_cast<int64_t>(kOne ? pair : col) * target.rows + out_row;
  return {.multiplier = p.x.multipliers ? p.x.multipliers[kOne ? pair / p.pairs_per_act : col] : 1.0f,
          .bias = target.bias ? target.bias[out_row] : 0.0f,
          .add = target.add ? target.add[at] : 0.0f};
}

/// The warps' sums of a place, added in the order of the warps, as the product. kOne: `ahead` is of this thread's row.
template <typename L, bool kOne, int kM, int kN>
__device__ __forceinline__ void store_place(const ProductArgs& p, int place, int pair, int warps, const Finish& ahead,
                                            const float (*sums)[kOne ? 1 : kN * 8][kM * kTileRows]) {
  constexpr int kCols = kOne ? 1 : kN * 8, kRows = kM * kTileRows;
  const auto [target, tile] = find_place<kM>(p, place);
  for (int i = static_cast<int>(threadIdx.x); i < kCols * kRows; i += static_cast<int>(blockDim.x)) {
    const int col = i / kRows, row = i % kRows, out_row = tile * kTileRows + row;
    if (out_row >= target->rows || (!kOne && col >= p.rows)) continue;
    float sum = sums[0][col][row];
    for (int k = 1; k < warps; ++k) {
      if constexpr (L::Scales::kFold == Fold::kWhole) {
        sum = __int_as_float(__float_as_int(sum) + __float_as_int(sums[k][col][row]));
      } else {
        sum += sums[k][col][row];
      }
    }
    const Finish f = kOne ? ahead : read_finish<kOne>(p, *target, pair, col, out_row);
    target->out[static_cast<int64_t>(kOne ? pair : col) * target->rows + out_row] =
        finish<L>(sum, f.multiplier, target->tensor_scale, target->scale, f.bias) + f.add;
  }
}

/// Blocks: x: walk over the places of the launch, kM tiles each; y (kOne): act row or pair.
template <typename L, bool kOne, int kM, int kN>
__global__ void __launch_bounds__(kMatvecWarps * 32, kOne&& kM == 1 ? 3 : 2)
    matvec_kernel(const __grid_constant__ ProductArgs p) {
  using S = Stages<L, kM>;
  using Ring = MatvecRing<L, kM>;
  constexpr int kBuffers = kN == 1 ? 2 : 1;  // two: the next place's sums do not wait for this one's to be read
  constexpr int kAhead = kN == 1 && S::kChunks <= 4 ? S::kChunks : 2;  // chunks of activations in registers
  extern __shared__ uint4 rings[];
  __shared__ float sums[kBuffers][kMatvecWarps][kOne ? 1 : kN * 8][kM * kTileRows];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            warps = static_cast<int>(blockDim.x / 32);
  const int pair = kOne ? static_cast<int>(blockIdx.y) : 0;
  Ring ring(reinterpret_cast<uint8_t*>(rings) + warp * Ring::kBytes, lane);
  if (p.ids) wait_for_previous_kernel();  // the ids are another kernel's, the weights no one's
  StageCursor<L, kM> cursor(p, warp, warps);
#pragma unroll
  for (int i = 0; i < kMatvecDepth<kM>; ++i) {
    cursor.take([&](const auto& from, int bytes) { ring.fill(i, from, bytes); });
  }
  let_next_kernel_start();
  wait_for_previous_kernel();

  const LaneActs<L, kN, kOne> acts(p.x, pair / p.pairs_per_act, kOne ? 1 : p.rows, lane);
  int buffer = 0;
  for (int place = static_cast<int>(blockIdx.x); place < p.target[p.targets - 1].tiles_end;
       place += static_cast<int>(gridDim.x), buffer ^= kBuffers - 1) {
    Finish ahead{};
    if constexpr (kOne) {
      static_assert(kM * kTileRows <= 32, "a thread a row of the place");
      const auto [target, tile] = find_place<kM>(p, place);
      const int out_row = tile * kTileRows + static_cast<int>(threadIdx.x);
      if (threadIdx.x < kM * kTileRows && out_row < target->rows)
        ahead = read_finish<kOne>(p, *target, pair, 0, out_row);
    }
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
            multiply_lane_chunk<L, c, kOne>(w, x[kI % kAhead], y);
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
    if constexpr (kOne) {
#pragma unroll
      for (int m = 0; m < kM; ++m) add_lanes<L>(y[m][0]);
    }
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) {
      const int e = i % 4, col = i / 4 % kN * 8 + lane % 4 * 2 + e % 2,
                row = i / 4 / kN * kTileRows + lane / 4 + e / 2 * 8;
      if (!kOne || col == 0) sums[buffer][warp][kOne ? 0 : col][row] = (&y[0][0][0])[i];
    }
    __syncthreads();
    store_place<L, kOne, kM, kN>(p, place, pair, warps, ahead, sums[buffer]);
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

inline int multiprocessors() {
  static const int count = [] {
    int device = 0, n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
  }();
  return count;
}

/// tiles_end counts tiles of 16 rows on entry.
template <typename L, bool kOne, int kM, int kN>
void launch_matvec_of(cudaStream_t stream, ProductArgs p, int columns) {
  constexpr size_t kRing = MatvecRing<L, kM>::kBytes;
  constexpr auto kKernel = matvec_kernel<L, kOne, kM, kN>;
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
  const int room = (multiprocessors() * resident.blocks[warps] + columns - 1) / columns;
  const dim3 grid(static_cast<unsigned>(places < room ? places : room), static_cast<unsigned>(columns));
  launch("matvec", kKernel, grid, static_cast<unsigned>(warps * 32), static_cast<size_t>(warps) * kRing, stream, p);
}

/// The same products of the rows from `first` on.
template <typename L>
ProductArgs rows_from(ProductArgs p, int first) {
  p.rows -= first;
  if (p.rows > kMatvecCols) p.rows = kMatvecCols;
  p.x.q += first * p.x.q_stride;
  p.x.scales += first * (p.x.q_stride / (L::kAct32 ? 32 : 128));
  p.x.sums += first * (p.x.q_stride / 128);
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
  // A pair of tiles shares what is read of the activations and what a stage costs, where pairs are enough for every
  // multiprocessor.
  constexpr bool kPairs = kTilesShareActs<L>;
  constexpr bool kPairsOfOne = kPairs && L::Scales::kFold != Fold::kWhole;  // so little work that blocks count for more
  const bool many = !p.ids && p.target[p.targets - 1].tiles_end >= 6 * multiprocessors();
  if (kPairsOfOne && p.rows == 1 && many) {
    launch_matvec_of<L, true, kPairsOfOne ? 2 : 1, 1>(stream, p, 1);
  } else if (p.rows == 1 || p.ids) {
    launch_matvec_of<L, true, 1, 1>(stream, p, p.rows);
  } else if (p.rows <= 8) {
    launch_matvec_of<L, false, 1, 1>(stream, p, 1);
  } else {
    for (int first = 0; first < p.rows; first += kMatvecCols)
      launch_matvec_of<L, false, kPairs ? 2 : 1, 2>(stream, rows_from<L>(p, first), 1);
  }
}

}  // namespace tern::cuda
