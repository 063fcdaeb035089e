// 17 and more activation rows, but few. Every byte of the weights is read once: the launch is one row of places, the
// stages of its groups of tiles one group behind the other, of which each block takes an even share. What a block reads
// of the activations serves all tiles of a group. A group that blocks share is put together by the last of them.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_lane.h"
#include "backend/cuda/matrix_matvec.h"
#include "backend/cuda/matrix_product.h"
#include "backend/cuda/matrix_row.h"
#include "backend/cuda/mma.h"

namespace tern::cuda {

constexpr int kGroupMostDepth = 8;       // stages under way
constexpr int kGroupReserved = 1 << 10;  // bytes of shared memory beside them and the sums

/// How a block of kN * 8 activation rows cuts a group. A warp multiplies kM tiles by one unit of each stage, or leaves
/// that to others.
template <typename L, int kN>
struct Group {
  static constexpr int kM = kTilesShareActs<L> && L::kUnitBytes <= 1200 && kN <= 4 ? 2 : 1;
  static constexpr int kWarps = L::kUnitBytes <= 1200 ? 16 : 8;
  static constexpr int kTiles = kGroupRows / kTileRows, kRowWarps = kTiles / kM;
  static constexpr int kUnits = kWarps / kRowWarps, kChunksOfUnit = L::kUnit / 128, kChunks = kUnits * kChunksOfUnit;
  static constexpr int kActs = kN * 8, kScales = L::kAct32 ? 4 : 1;  // scales of a chunk
  static constexpr bool kScaled = L::Scales::kFold != Fold::kWhole;
  // a stage: weights, activations and their scales as they lie in memory
  static constexpr int kTileBytes = kUnits * L::kUnitBytes, kWeightBytes = kTiles * kTileBytes;
  static constexpr int kActBytes = kChunks * kActs * 128;
  static constexpr int kFolds = kChunks * kScales, kScaleBytes = kScaled ? kFolds * kActs * 4 : 0;
  static constexpr int kBytes = kWeightBytes + kActBytes + kScaleBytes;
  // the warps' sums: [unit][act][row]
  static constexpr int kSumStride = kGroupRows + 4, kSumBytes = kUnits * kActs * kSumStride * 4;
  static_assert(kUnits >= 1 && kBytes % 16 == 0 && kSumBytes % 16 == 0);
  static_assert(kUnits * kChunksOfUnit <= 5, "a stage reads up to four chunks (512 columns) behind the last");
  __host__ __device__ static int stages(int units) { return (units + kUnits - 1) / kUnits; }
};

/// What a launch is beside its products.
struct GroupPlan {
  int depth = 0;                 // of the ring
  float* partials = nullptr;     // of a block: two of kGroupRows x activation rows
  unsigned* arrivals = nullptr;  // of a block; zero between launches
};

/// The places of a block: [begin, end) of `total`.
struct PlaceShare {
  unsigned total, blocks;
  __device__ unsigned begin(unsigned block) const {
    return static_cast<unsigned>(static_cast<uint64_t>(total) * block / blocks);
  }
  /// The block that has a place.
  __device__ unsigned owner(unsigned place) const {
    return static_cast<unsigned>(((static_cast<uint64_t>(place) + 1) * blocks - 1) / total);
  }
};

/// A group and a stage of it.
struct PlaceCursor {
  int group, stage, stages;
  __device__ PlaceCursor(int place, int stages_of_group)
      : group(place / stages_of_group), stage(place % stages_of_group), stages(stages_of_group) {}
  __device__ __forceinline__ void next() {
    if (++stage == stages) stage = 0, ++group;
  }
};

/// Where the parts of a stage come from, and go to in the ring.
template <typename L, int kN>
struct GroupFeed {
  using G = Group<L, kN>;
  const ProductArgs& p;
  uint8_t* const ring;
  const int lane;

  __device__ __forceinline__ uint8_t* slot_at(int slot) const { return ring + slot * G::kBytes; }
  /// Of a tile.
  __device__ __forceinline__ int weight_bytes(int stage) const {
    return min(G::kUnits, p.units - stage * G::kUnits) * L::kUnitBytes;
  }
  /// Tile i of a group at a stage. Tiles that do not exist repeat the last; their sums go nowhere.
  __device__ __forceinline__ const uint8_t* tile_at(const PlaceCursor& at, int i) const {
    const auto [target, first] = find_place<G::kTiles>(p, at.group);
    const int last = (target->rows + kTileRows - 1) / kTileRows - 1;
    return target->w + min(first + i, last) * (static_cast<int64_t>(p.units) * L::kUnitBytes) +
           at.stage * G::kTileBytes;
  }
  /// Calls copy(to, from, bytes) for what is contiguous of the `pieces` pieces, `row_bytes` of each row, that a stage
  /// has of the activations or of their scales. i, n: which of them, of how many at a time.
  template <typename Copy>
  __device__ __forceinline__ void rows(uint8_t* to, const void* base, int stage, int pieces, int row_bytes, int i,
                                       int n, Copy copy) const {
    const int here = whole_eights(p.rows), piece = here * row_bytes;
    const auto* const from =
        static_cast<const uint8_t*>(base) + static_cast<int64_t>(stage) * pieces * p.x.together * row_bytes;
    if (here == p.x.together) {
      if (i == 0) copy(to, from, pieces * piece);
    } else {
      for (; i < pieces; i += n) copy(to + i * piece, from + i * p.x.together * row_bytes, piece);
    }
  }

#if __CUDA_ARCH__ >= 900
  /// What a warp brings of a stage, if anything, side by side with others: a tile, or the activations.
  static constexpr int kFeeders = G::kTiles + 1;
  __device__ __forceinline__ void weights(int warp, int slot, const PlaceCursor& at, uint64_t* full) const {
    if (warp >= G::kTiles || lane != 0) return;
    const int bytes = weight_bytes(at.stage);
    expect_bytes(full, bytes);
    copy_bulk(slot_at(slot) + warp * G::kTileBytes, tile_at(at, warp), bytes, full);
  }
  __device__ __forceinline__ void acts(int warp, int slot, int stage, uint64_t* full) const {
    if (warp != G::kTiles % G::kWarps) return;
    const auto copy = [&](uint8_t* to, const uint8_t* from, int bytes) { copy_bulk(to, from, bytes, full); };
    uint8_t* const to = slot_at(slot) + G::kWeightBytes;
    if (lane == 0) expect_bytes(full, whole_eights(p.rows) * (G::kChunks * 128 + (G::kScaled ? G::kFolds * 4 : 0)));
    rows(to, p.x.q, stage, G::kChunks, 128, lane, 32, copy);
    if constexpr (G::kScaled) rows(to + G::kActBytes, p.x.scales, stage, G::kFolds, 4, lane, 32, copy);
  }
#else
  /// By all threads of the block, 16 bytes at a time.
  __device__ __forceinline__ void all(int slot, const PlaceCursor& at) const {
    const auto copy = [](uint8_t* to, const uint8_t* from, int bytes) {
      for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += G::kWarps * 512)
        copy_async16(to + i, from + i, true);
    };
    for (int i = 0; i < G::kTiles; ++i) copy(slot_at(slot) + i * G::kTileBytes, tile_at(at, i), weight_bytes(at.stage));
    uint8_t* const to = slot_at(slot) + G::kWeightBytes;
    rows(to, p.x.q, at.stage, G::kChunks, 128, 0, 1, copy);
    if constexpr (G::kScaled) rows(to + G::kActBytes, p.x.scales, at.stage, G::kFolds, 4, 0, 1, copy);
    copy_async_commit();
  }
#endif
};

/// y += a unit of a warp's tiles times the activations of a stage.
template <typename L, int kN, int kM>
__device__ __forceinline__ void multiply_slot(const uint8_t* slot, int together, int row_warp, int part, int lane,
                                              float (&y)[kM][kN][4]) {
  using G = Group<L, kN>;
  typename L::Frag w[kM];
#pragma unroll
  for (int m = 0; m < kM; ++m) w[m].load(slot + (row_warp * kM + m) * G::kTileBytes + part * L::kUnitBytes, lane);
  const uint8_t* const acts = slot + G::kWeightBytes + lane / 4 * 128;
  const int half[2] = {lane % 4 * 32 + lane / 4 % 2 * 16, lane % 4 * 32 + (lane / 4 % 2 ^ 1) * 16};
  const auto* const scales = reinterpret_cast<const float*>(slot + G::kWeightBytes + G::kActBytes) + lane % 4 * 2;
  unrolled<0, G::kChunksOfUnit>([&](auto c) {
    const int chunk = part * G::kChunksOfUnit + c;
    const uint8_t* const of_chunk = acts + chunk * together * 128;
    const float* const scales_of_chunk = scales + chunk * G::kScales * together;
    uint4 q[kN];
    const auto b = [&](int s, uint32_t(&step)[kN][2]) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        if (s % 2 == 0) q[n] = *reinterpret_cast<const uint4*>(of_chunk + n * 1024 + half[s / 2]);
        step[n][0] = s % 2 == 0 ? q[n].x : q[n].z, step[n][1] = s % 2 == 0 ? q[n].y : q[n].w;
      }
    };
    const auto d = [&](int n, int j) {
      return *reinterpret_cast<const float2*>(scales_of_chunk + j * together + n * 8);
    };
    multiply_chunk<L, c, false>(w, b, d, y);
  });
}

/// What a block's warps have summed up of a group's stages [first, end): the product, or a part of it.
template <typename L, int kN>
struct GroupSums {
  using G = Group<L, kN>;
  const ProductArgs& p;
  const GroupPlan& plan;
  const PlaceShare& share;
  float* const sums;
  const int stages;

  template <int kM>
  __device__ __forceinline__ void leave(const float (&y)[kM][kN][4], int row_warp, int part, int lane) const {
    float* const to = sums + part * G::kActs * G::kSumStride + row_warp * kM * kTileRows + lane / 4;
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) {
      const int e = i % 4, act = i / 4 % kN * 8 + lane % 4 * 2 + e % 2;
      to[act * G::kSumStride + i / 4 / kN * kTileRows + e / 2 * 8] = (&y[0][0][0])[i];
    }
  }
  /// The parts' sum of element i, [act][row].
  __device__ __forceinline__ float of(int i) const {
    const float* const from = sums + i / kGroupRows * G::kSumStride + i % kGroupRows;
    float sum = from[0];
#pragma unroll
    for (int k = 1; k < G::kUnits; ++k) sum = add_sums<L>(sum, from[k * G::kActs * G::kSumStride]);
    return sum;
  }
  /// for_each(i) over this thread's elements of rows that exist.
  template <typename Do>
  __device__ __forceinline__ void each(Do apply) const {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < p.rows * kGroupRows; i += G::kWarps * 32) apply(i);
  }
  __device__ __forceinline__ void store(const Spot& spot, int i, float sum) const {
    const int act = i / kGroupRows, row = spot.tile * kTileRows + i % kGroupRows;
    if (row < spot.target->rows)
      store_sum<L>(p, *spot.target, act, row, sum, read_finish(p, *spot.target, act, act, row));
  }
  __device__ __forceinline__ float* partial(unsigned block, bool second) const {
    return plan.partials + (2 * block + second) * (kGroupRows * kGroupMostActs);
  }
  /// The group's product, or this block's part of it. The warps' sums are complete.
  __device__ __forceinline__ void finish(int group, bool whole) const {
    const Spot spot = find_place<G::kTiles>(p, group);
    if (whole) return each([&](int i) { store(spot, i, of(i)); });
    float* const to = partial(blockIdx.x, share.begin(blockIdx.x) < static_cast<unsigned>(group * stages));
    each([&](int i) { __stcg(to + i, of(i)); });
  }
  /// Blocks of which each has a part of a group.
  struct Sharers {
    int group;
    unsigned start, from, to;
    bool last;  // this block is the last that has left its part
  };
  __device__ __forceinline__ Sharers sharers(int group) const {
    const auto start = static_cast<unsigned>(group * stages);
    return {group, start, share.owner(start), share.owner(start + stages - 1), false};
  }
  /// One thread, once all threads' parts are in memory.
  __device__ __forceinline__ void arrive(Sharers& of) const {
    if (of.from == of.to) return;
    of.last = atomicAdd(&plan.arrivals[of.from], 1u) == of.to - of.from;
    if (of.last) plan.arrivals[of.from] = 0;
  }
  /// Adds up the parts, in the order of the blocks.
  __device__ __forceinline__ void put_together(const Sharers& of) const {
    const Spot spot = find_place<G::kTiles>(p, of.group);
    const float* const first = partial(of.from, share.begin(of.from) < of.start);
    constexpr int kAtOnce = 8, kThreads = G::kWarps * 32;
    const int end = p.rows * kGroupRows;
    for (int i = static_cast<int>(threadIdx.x); i < end; i += kAtOnce * kThreads) {
      float sum[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) sum[j] = __ldcg(first + i + j * kThreads);
#pragma unroll 1
      for (unsigned block = of.from + 1; block <= of.to; ++block) {
        const float* const next = partial(block, false) + i;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) sum[j] = add_sums<L>(sum[j], __ldcg(next + j * kThreads));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j * kThreads < end) store(spot, i + j * kThreads, sum[j]);
      }
    }
  }
};

/// Blocks take even shares of the launch's places.
template <typename L, int kN>
__global__ void __launch_bounds__(Group<L, kN>::kWarps * 32, 1)
    group_kernel(const __grid_constant__ ProductArgs p, GroupPlan plan) {
  using G = Group<L, kN>;
  constexpr int kM = G::kM;
  extern __shared__ uint4 group_memory[];
  uint8_t* const ring = reinterpret_cast<uint8_t*>(group_memory) + G::kSumBytes;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            stages = G::stages(p.units);
  const PlaceShare share{static_cast<unsigned>(p.target[p.targets - 1].tiles_end * stages), gridDim.x};
  const int begin = static_cast<int>(share.begin(blockIdx.x)),
            places = static_cast<int>(share.begin(blockIdx.x + 1)) - begin;
  const GroupFeed<L, kN> feed{p, ring, lane};
#if __CUDA_ARCH__ >= 900
  __shared__ uint64_t full[kGroupMostDepth], empty[kGroupMostDepth];
  if (threadIdx.x == 0) {
    for (int i = 0; i < plan.depth; ++i) init_barrier(&full[i], feed.kFeeders), init_barrier(&empty[i], G::kWarps * 32);
    fence_barriers();
  }
  __syncthreads();
  let_next_kernel_start();
  const int filled = min(plan.depth, places);
  PlaceCursor ahead(begin, stages), acts_ahead(begin, stages);
  for (int i = 0; i < filled; ++i, ahead.next()) feed.weights(warp, i, ahead, &full[i]);
  wait_for_previous_kernel();
  for (int i = 0; i < filled; ++i, acts_ahead.next()) feed.acts(warp, i, acts_ahead.stage, &full[i]);
  int used[2] = {}, used_phase[2] = {};  // the slots of the stage before and of the one before that
#else
  if (places > 0) feed.all(0, PlaceCursor(begin, stages));
#endif
  const GroupSums<L, kN> sums{p, plan, share, reinterpret_cast<float*>(group_memory), stages};
  const int row_warp = warp % G::kRowWarps, part = warp / G::kRowWarps;
  float y[kM][kN][4] = {};
  PlaceCursor at(begin, stages);
  const int first_group = at.group;
  int first = at.stage, slot = 0, phase = 0;
  for (int i = 0; i < places; ++i, at.next()) {
#if __CUDA_ARCH__ >= 900
    wait_barrier(&full[slot], phase);
#else
    copy_async_wait<0>();
    __syncthreads();  // the stage has arrived, and the one before it has been used
    if (i + 1 < places) feed.all(slot + 1 == plan.depth ? 0 : slot + 1, PlaceCursor(begin + i + 1, stages));
#endif
    if (at.stage * G::kUnits + part < p.units)
      multiply_slot<L, kN>(ring + slot * G::kBytes, whole_eights(p.rows), row_warp, part, lane, y);
#if __CUDA_ARCH__ >= 900
    arrive_barrier(&empty[slot]);                // every lane for what it has read: as fast as one for a warp
    if (i > 1 && i - 2 + plan.depth < places) {  // two stages back: nobody waits long for the last warp
      if (warp < feed.kFeeders) {
        wait_barrier(&empty[used[1]], used_phase[1]);
        feed.weights(warp, used[1], ahead, &full[used[1]]);
        feed.acts(warp, used[1], ahead.stage, &full[used[1]]);
      }
      ahead.next();
    }
    used[1] = used[0], used_phase[1] = used_phase[0];
    used[0] = slot, used_phase[0] = phase;
#endif
    if (++slot == plan.depth) slot = 0, phase ^= 1;
    if (at.stage + 1 < stages && i + 1 < places) continue;
    sums.leave(y, row_warp, part, lane);
#pragma unroll
    for (int j = 0; j < kM * kN * 4; ++j) (&y[0][0][0])[j] = 0;
    __syncthreads();
    sums.finish(at.group, first == 0 && at.stage + 1 == stages);
    __syncthreads();
    first = 0;
  }

  using Sharers = typename GroupSums<L, kN>::Sharers;
  __shared__ Sharers ends[2];  // the groups this block begins and ends with
  const int last_group = PlaceCursor(begin + places - 1, stages).group;
  if (threadIdx.x < 2) ends[threadIdx.x] = sums.sharers(threadIdx.x == 0 ? first_group : last_group);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) sums.arrive(ends[0]);
  if (threadIdx.x == 32 && last_group != first_group) sums.arrive(ends[1]);
  __syncthreads();
  if (!ends[0].last && !ends[1].last) return;
  __threadfence();
  for (const Sharers& end : ends) {
    if (end.last) sums.put_together(end);
  }
}

/// Stages that a block of kN * 8 rows has room for; 0: not for as many as it needs.
template <typename L, int kN>
int group_depth() {
  using G = Group<L, kN>;
  const int least = overlaps_launches() ? 3 : 2, most = overlaps_launches() ? kGroupMostDepth : 2,
            depth = (most_shared_memory() - kGroupReserved - G::kSumBytes) / G::kBytes;
  return depth < least ? 0 : depth < most ? depth : most;
}

/// tiles_end counts tiles of 16 rows on entry.
template <typename L, int kN>
void launch_groups_of(cudaStream_t stream, ProductArgs p, GroupPlan plan) {
  using G = Group<L, kN>;
  constexpr auto kKernel = group_kernel<L, kN>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_memory() - kGroupReserved);
  check_launch(ready, "group");
  plan.depth = group_depth<L, kN>();
  const int places = cut_tiles(p, G::kTiles) * G::stages(p.units), most = multiprocessors();
  launch("group", kKernel, dim3(static_cast<unsigned>(places < most ? places : most)),
         static_cast<unsigned>(G::kWarps * 32), static_cast<size_t>(G::kSumBytes + plan.depth * G::kBytes), stream, p,
         plan);
}

/// The same products of up to `most` rows from `first` on.
inline ProductArgs rows_from(ProductArgs p, int first, int most) {
  p.rows = p.rows - first < most ? p.rows - first : most;
  p.x.q += first * 128;
  p.x.scales += first;
  if (p.x.multipliers) p.x.multipliers += first;
  for (Target& t : p.target) {
    const int64_t skip = int64_t{first} * t.rows;
    if (t.out) t.out += skip;
    if (t.add) t.add += skip;
  }
  return p;
}

/// More than 16 rows, where the shared memory has room for them.
template <typename L, int kN>
bool launch_groups(cudaStream_t stream, const ProductArgs& p) {
  if (group_depth<L, kN>() == 0) return false;
  const GroupPlan plan{.partials = reinterpret_cast<float*>(p.workspace + kArrivalBytes),
                       .arrivals = reinterpret_cast<unsigned*>(p.workspace)};
  for (int first = 0; first < p.rows; first += kN * 8)
    launch_groups_of<L, kN>(stream, rows_from(p, first, kN * 8), plan);
  return true;
}

/// Few activation rows.
template <typename L>
void launch_few(cudaStream_t stream, const ProductArgs& p) {
  constexpr int kMost = 16;  // of matvec
  if (p.rows == 1 || p.ids) return launch_row<L>(stream, p, p.rows);
  if (p.rows > 32 && launch_groups<L, 8>(stream, p)) return;
  if (p.rows > kMost && launch_groups<L, 4>(stream, p)) return;
  for (int first = 0; first < p.rows; first += kMost) launch_matvec_tiles<L>(stream, rows_from(p, first, kMost));
}

}  // namespace tern::cuda
