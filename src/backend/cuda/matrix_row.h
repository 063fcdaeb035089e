// One activation row (with experts, one a pair). A block takes consecutive tiles, whose stages follow each other in
// memory; each warp streams an even share of them through its ring, whatever tiles that cuts, and leaves a partial sum
// a tile. The block's one barrier comes before these are added, in the order of the warps.
#pragma once
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_columns.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_lane.h"
#include "backend/cuda/matrix_product.h"
#include "backend/cuda/matrix_ring.h"

namespace tern::cuda {

constexpr int kRowWarps = 16;  // at most: a power of two
/// Stages of a warp under way. They take more than half the shared memory: two blocks on a multiprocessor, which the
/// early start of the next launch would lead to, leave another without.
constexpr int kRowDepth = 4;
template <typename L, int kDepth = kRowDepth>
using RowRing = WarpRing<Stages<L>::kBytes, 1, kDepth>;

/// What a block multiplies: all stages of `tiles` tiles from `tile` on, and what of it is a warp's: `places` of these
/// stages, from stage `first` of tile `first_tile` (of the share) on.
struct RowShare {
  int tile, tiles, first_tile, first, places;
  /// `least`: tiles of every block; the first ones have one more. `warps`: a power of two.
  __device__ RowShare(const ProductArgs& p, int stages, int least, int warp) {
    const int block = static_cast<int>(blockIdx.x),
              more = p.target[p.targets - 1].tiles_end - least * static_cast<int>(gridDim.x);
    tile = block * least + min(block, more);
    tiles = least + (block < more);
    const unsigned n = tiles * stages, shift = 31 - __clz(static_cast<int>(blockDim.x / 32)), begin = warp * n >> shift;
    places = static_cast<int>(((warp + 1) * n >> shift) - begin);
    first_tile = static_cast<int>(begin / static_cast<unsigned>(stages));
    first = static_cast<int>(begin) - first_tile * stages;
  }
};

/// The target that a tile of the launch belongs to, and the first tile of that.
__device__ __forceinline__ const Target& target_of_tile(const ProductArgs& p, int tile, int& first) {
  int at = 0;
  first = 0;
  while (tile >= p.target[at].tiles_end) first = p.target[at++].tiles_end;
  return p.target[at];
}

/// The stages of a warp in the order of its share.
template <typename L>
struct RowCursor {
  using S = Stages<L>;
  const ProductArgs& p;
  int left, stage, tile, stages;
  int64_t expert;
  const uint8_t* from = nullptr;

  __device__ RowCursor(const ProductArgs& args, const RowShare& share, int stages_of_tile, int64_t expert_of_pair)
      : p(args),
        left(share.places),
        stage(share.first),
        tile(share.tile + share.first_tile),
        stages(stages_of_tile),
        expert(expert_of_pair) {
    find();
  }
  __device__ __forceinline__ void find() {
    if (left <= 0) return;
    int first;
    const Target& t = target_of_tile(p, tile, first);
    from = t.w + expert * t.expert_bytes + (tile - first) * (static_cast<int64_t>(p.units) * L::kUnitBytes) +
           stage * S::kBytes;
  }
  __device__ __forceinline__ int bytes() const {
    return left <= 0 ? 0 : stage + 1 == stages ? (p.units - stage * S::kUnits) * L::kUnitBytes : S::kBytes;
  }
  __device__ __forceinline__ void next() {
    --left;
    from += S::kBytes;
    if (++stage == stages) {
      stage = 0, ++tile;
      find();
    }
  }
};

/// Stage i of a ring from where the cursor stands. False when it had nothing left.
template <typename Ring, typename Cursor>
__device__ __forceinline__ bool fill_next(const Ring& ring, int i, Cursor& next) {
  const int bytes = next.bytes();
  ring.fill(i, {next.from}, bytes);
  next.next();
  return bytes > 0;
}

/// The activations of a block in shared memory, a record a chunk: what the lanes multiply by, then the scales.
template <typename L>
struct RowActs {
  static constexpr int kScales = L::kAct32 ? 4 : 1, kCodeBytes = L::kBits ? 256 : 128, kChunkBytes = kCodeBytes + 16;

  /// kBits: the two words of lane 4n + t of bit n.
  __device__ static void spread_bits(uint8_t* chunk, int t, int half, const uint32_t (&words)[4]) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      uint32_t bits = 0;
#pragma unroll
      for (int j = 3; j >= 0; --j) bits = bits * 4 + ((words[j] >> n) & 0x01010101u);
      *reinterpret_cast<uint32_t*>(chunk + (n * 4 + t) * 8 + half * 4) = bits;
    }
  }
  __device__ static void fill(uint8_t* to, const ActView& x, int64_t row, int chunks) {
    const auto* from = reinterpret_cast<const uint4*>(x.q) + row * 8;
    const float* scales = x.scales + row;
    const int swap = static_cast<int>(row % 2);
    for (int i = static_cast<int>(threadIdx.x); i < chunks * 8; i += static_cast<int>(blockDim.x)) {
      const uint4 v = from[i / 8 * x.together * 8 + (i % 8 ^ swap)];
      uint8_t* const chunk = to + i / 8 * kChunkBytes;
      if constexpr (L::kBits) {
        spread_bits(chunk, i % 8 / 2, i % 2, {v.x, v.y, v.z, v.w});
      } else {
        *reinterpret_cast<uint4*>(chunk + i % 8 * 16) = v;
      }
      if (i % 8 < kScales)
        *reinterpret_cast<float*>(chunk + kCodeBytes + i % 8 * 4) = scales[(i / 8 * kScales + i % 8) * x.together];
    }
  }
  template <int kC>
  __device__ static __forceinline__ void multiply(const typename L::Frag& w, const uint8_t* chunk, int lane,
                                                  float (&y)[1][1][4]) {
    if constexpr (L::kBits) {
      multiply_bits<L, kC>(w, *reinterpret_cast<const uint2*>(chunk + lane * 8),
                           *reinterpret_cast<const float*>(chunk + kCodeBytes), lane, y[0][0]);
    } else {
      const auto* q = reinterpret_cast<const uint2*>(chunk + lane % 4 * 32);
      const auto* scales = reinterpret_cast<const float*>(chunk + kCodeBytes);
      const typename L::Frag tile[1] = {w};
      multiply_chunk<L, kC, true>(
          tile, [&](int s, uint32_t(&step)[1][2]) { step[0][0] = q[s].x, step[0][1] = q[s].y; },
          [&](int, int j) { return make_float2(scales[j], scales[j]); }, y);
    }
  }
};

/// What the warps of a block leave: partial[warp + tile] (of the share) and, for each tile, its first and last warp.
struct RowSums {
  float (*partial)[kTileRows];
  int2* spans;
  float* factor;  // of the row's norm, where it is left to the product
  __device__ RowSums(uint8_t* memory, int warps, int tiles)
      : partial(reinterpret_cast<float (*)[kTileRows]>(memory)),
        spans(reinterpret_cast<int2*>(partial + warps + tiles)),
        factor(reinterpret_cast<float*>(spans + tiles)) {}
  /// A warp without stages leaves nothing.
  __device__ void clear(int parts) const {
    for (int i = static_cast<int>(threadIdx.x); i < parts * kTileRows; i += static_cast<int>(blockDim.x))
      partial[0][i] = 0;
  }
  /// The sums of a warp's part of a tile, which begins, ends, both or neither of it.
  template <typename L>
  __device__ __forceinline__ void leave(int warp, int tile, int lane, float (&y)[4], bool begins, bool ends) const {
    add_lanes<L>(y, lane);
    if (lane % 4 == 0) {
      partial[warp + tile][lane / 4] = y[0];
      partial[warp + tile][lane / 4 + 8] = y[2];
    }
    if (begins) spans[tile].x = warp;
    if (ends) spans[tile].y = warp;
  }
  __host__ __device__ static int bytes(int warps, int tiles) {  // a multiple of 16
    return (warps + tiles) * kTileRows * 4 + (tiles + 2) / 2 * 16;
  }
  template <typename L>
  __device__ __forceinline__ float of(int tile, int row) const {
    const int2 span = spans[tile];
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) {  // side by side, not one behind the other
      const bool in = w >= span.x && w <= span.y;
      const float part = in ? partial[w + tile][row] : 0.0f;
      if (in) sum = add_sums<L>(sum, part);
    }
    return sum;
  }
};

/// The products of a warp's share: `ring` has its stages under way, `next` what follows those, `acts` the activations.
template <typename L, typename Ring, typename Cursor>
__device__ __forceinline__ void multiply_share(int units, const RowShare& share, Ring& ring, Cursor& next,
                                               const uint8_t* acts, const RowSums& sums, int warp, int lane) {
  using S = Stages<L>;
  const int stages = S::count(units);
  int tile = share.first_tile, stage = share.first;
  bool begins = stage == 0;
  float y[1][1][4] = {};
  for (int left = share.places; left > 0;) {
    const uint8_t* const at = ring.wait();
    const uint8_t* const x = acts + stage * (S::kChunks * RowActs<L>::kChunkBytes);
    const auto multiply_units = [&](int here) {
      unrolled<0, S::kUnits>([&](auto u) {
        if (u >= here) return;
        typename L::Frag w;
        w.load(at + u * L::kUnitBytes, lane);
        unrolled<0, S::kChunksOfUnit>([&](auto c) {
          RowActs<L>::template multiply<c>(w, x + (u * S::kChunksOfUnit + c) * RowActs<L>::kChunkBytes, lane, y);
        });
      });
    };
    const int here = units - stage * S::kUnits;
    if (here >= S::kUnits) {  // without tests between them, units overlap
      multiply_units(S::kUnits);
    } else {
      multiply_units(here);
    }
    ring.refill({next.from}, next.bytes());
    next.next();
    --left;
    if (++stage == stages || left == 0) {
      sums.leave<L>(warp, tile, lane, y[0][0], begins, stage == stages);
      y[0][0][0] = y[0][0][2] = 0;
      stage = 0, ++tile;
      begins = true;
    }
  }
}

/// The results of a block's share, a row a thread; all but its sum is read ahead for the first of a thread.
template <typename L, bool kConvolves = false>
struct RowResults {
  const ProductArgs& p;
  const RowShare& share;
  int act, pair;
  float multiplier;  // of the activations, beside that of p.x
  struct Row {
    float* out = nullptr;  // none: a row behind the last
    float scale, tensor_scale;
    Finish with;
    int channels = 0;  // of the convolution that it goes through, if any
  } ahead{};
  __device__ RowResults(const ProductArgs& args, const RowShare& of, int act_row, int out_row,
                        float act_multiplier = 1.0f)
      : p(args), share(of), act(act_row), pair(out_row), multiplier(act_multiplier) {}
  __device__ __forceinline__ Row read(int i) const {
    if (i >= share.tiles * kTileRows) return {};
    int first;
    const Target& t = target_of_tile(p, share.tile + i / kTileRows, first);
    const int row = (share.tile + i / kTileRows - first) * kTileRows + i % kTileRows;
    if (row >= t.rows) return {};
    Row r{t.out + static_cast<int64_t>(pair) * t.rows + row, t.scale, t.tensor_scale,
          read_finish(p, t, act, pair, row)};
    r.with.multiplier *= multiplier;
    if constexpr (kConvolves) {
      if (&t == &p.target[p.convolved]) r.channels = t.rows;
    }
    return r;
  }
  __device__ __forceinline__ void read_ahead() { ahead = read(static_cast<int>(threadIdx.x)); }
  /// What convolved rows need, to [tiles * kTileRows], by threads that have no row to store.
  __device__ __forceinline__ void read_channels(ConvChannel* to) const {
    const int threads = static_cast<int>(blockDim.x);
    for (int i = (static_cast<int>(threadIdx.x) + threads / 2) % threads; i < share.tiles * kTileRows; i += threads) {
      int first;
      const Target& t = target_of_tile(p, share.tile + i / kTileRows, first);
      const int row = (share.tile + i / kTileRows - first) * kTileRows + i % kTileRows;
      if (&t == &p.target[p.convolved] && row < t.rows) to[i] = read_channel(p.convolution, row, t.rows);
    }
  }
  /// `factor`: of all results.
  __device__ __forceinline__ void store(const RowSums& sums, float factor = 1.0f,
                                        [[maybe_unused]] const ConvChannel* channels = nullptr) const {
    Row r = ahead;
    for (int i = static_cast<int>(threadIdx.x);;) {
      if (r.out) {
        const float sum = sums.of<L>(i / kTileRows, i % kTileRows);
        float v = finish<L>(sum, r.with.multiplier, r.tensor_scale * factor, r.scale, r.with.bias) + r.with.add;
        if constexpr (kConvolves) {
          if (r.channels > 0) v = convolve(channels[i], v, r.channels);
        }
        *r.out = v;
      }
      i += static_cast<int>(blockDim.x);
      if (i >= share.tiles * kTileRows) return;
      r = read(i);
    }
  }
};

/// Blocks: x: share the tiles, `least_tiles` or one more each; y: act row or pair.
template <typename L, bool kConvolves>
__global__ void __launch_bounds__(kRowWarps * 32, 2)
    row_kernel(const __grid_constant__ ProductArgs p, int least_tiles) {
  using S = Stages<L>;
  using Ring = RowRing<L>;
  extern __shared__ uint4 block_memory[];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            warps = static_cast<int>(blockDim.x / 32), pair = static_cast<int>(blockIdx.y),
            act = pair / p.pairs_per_act, stages = S::count(p.units), chunks = p.units * S::kChunksOfUnit;
  auto* const rings = reinterpret_cast<uint8_t*>(block_memory);
  uint8_t* const acts = rings + warps * Ring::kBytes;
  const RowSums sums(acts + chunks * RowActs<L>::kChunkBytes, warps, least_tiles + 1);
  auto* const channels =
      reinterpret_cast<ConvChannel*>(acts + chunks * RowActs<L>::kChunkBytes + RowSums::bytes(warps, least_tiles + 1));
  Ring ring(rings + warp * Ring::kBytes, lane);
  if (p.ids) wait_for_previous_kernel();  // the ids are another kernel's, the weights no one's
  const RowShare share(p, stages, least_tiles, warp);
  RowCursor<L> next(p, share, stages, p.ids ? p.ids[pair] : 0);
  ring.fill_in_turn([&](int i) { return fill_next(ring, i, next); });
  sums.clear(warps + share.tiles);
  RowResults<L, kConvolves> results(p, share, act, pair);
  wait_for_previous_kernel();

  RowActs<L>::fill(acts, p.x, act, chunks);
  if (p.x.squares && warp == 0) {
    const double squares = sum_of_lanes(lane < p.x.n_squares ? p.x.squares[lane] : 0.0, 32);
    if (lane == 0) *sums.factor = norm_factor(squares, p.x.reciprocal, p.x.eps);
  }
  results.read_ahead();
  if constexpr (kConvolves) results.read_channels(channels);
  __syncthreads();
  multiply_share<L>(p.units, share, ring, next, acts, sums, warp, lane);
  __syncthreads();
  results.store(sums, p.x.squares ? *sums.factor : 1.0f, channels);
}

template <typename L, bool kConvolves = false>
void launch_row(cudaStream_t stream, const ProductArgs& p, int pairs) {
  if constexpr (L::kBits && !kConvolves) {
    if (p.convolved >= 0) return launch_row<L, true>(stream, p, pairs);
  }
  constexpr auto kKernel = row_kernel<L, kConvolves>;
  const int tiles = p.target[p.targets - 1].tiles_end, room = (multiprocessors() + pairs - 1) / pairs,
            blocks = tiles < room ? tiles : room, least = tiles / blocks,
            acts = p.units * (L::kUnit / 128) * RowActs<L>::kChunkBytes;
  const auto shared = [&](int warps) {
    return warps * RowRing<L>::kBytes + acts + RowSums::bytes(warps, least + 1) +
           (kConvolves ? (least + 1) * kTileRows * static_cast<int>(sizeof(ConvChannel)) : 0);
  };
  int warps = kRowWarps;
  while (warps > 1 && shared(warps) > most_shared_memory()) warps /= 2;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_memory());
  check_launch(ready, "matvec");
  launch("matvec", kKernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(pairs)),
         static_cast<unsigned>(warps * 32), static_cast<size_t>(shared(warps)), stream, p, least);
}

}  // namespace tern::cuda
