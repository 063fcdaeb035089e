// Products of one activation row behind each other in one launch, each with the norm, gate and rounding in front of it:
// the blocks stay, and the weights of a product are on their way while the activations it needs are still being
// computed. Between two products all blocks wait for each other, once; every block then computes all activations for
// itself, since a second wait would take longer. A rotation does not pay: one block after the other would go through
// the exchanges that a launch of its own shares out (27B: 3.6 ms of products a token instead of 2.9).
//
// A launch has a block a multiprocessor, whose memory no two blocks fit, so all of them run at a time and may wait for
// each other. What is launched beside them must end by itself: chains of two streams could hold half the
// multiprocessors each for ever (program.cpp has one at a time).
#pragma once
#include <algorithm>

#include "backend/cuda/gates.h"
#include "backend/cuda/matrix_columns.h"
#include "backend/cuda/matrix_row.h"

namespace tern::cuda {

constexpr int kChainDepth = 5, kChainThreads = kRowWarps * 32;
constexpr int kSpan = kChainThreads * 4, kMostSpans = 4;
/// Activations of a link: kMostSpans spans of registers.
constexpr int kMostColumns = kMostSpans * kSpan;

/// The stages of a warp through all links, in order.
template <typename L>
struct ChainCursor {
  using S = Stages<L>;
  const ChainArgs& c;
  int link = -1, left = 0, stage = 0, tile = 0, stages = 0, units = 0, warp;
  const uint8_t* from = nullptr;

  __device__ ChainCursor(const ChainArgs& args, int warp_of_block) : c(args), warp(warp_of_block) { next_link(); }
  __device__ void next_link() {
    while (left == 0 && ++link < c.links) {
      const ProductArgs& p = c.link[link].product;
      units = p.units;
      stages = S::count(units);
      const RowShare share(p, stages, least_tiles(p), warp);
      left = share.places;
      stage = share.first;
      tile = share.tile + share.first_tile;
    }
    find();
  }
  __device__ static int least_tiles(const ProductArgs& p) {
    return p.target[p.targets - 1].tiles_end / static_cast<int>(gridDim.x);
  }
  __device__ __forceinline__ void find() {
    if (left <= 0) return;
    int first;
    const Target& t = target_of_tile(c.link[link].product, tile, first);
    from = t.w + (tile - first) * (static_cast<int64_t>(units) * L::kUnitBytes) + stage * S::kBytes;
  }
  __device__ __forceinline__ int bytes() const {
    return left <= 0 ? 0 : stage + 1 == stages ? (units - stage * S::kUnits) * L::kUnitBytes : S::kBytes;
  }
  __device__ __forceinline__ void next() {
    if (left <= 0) return;
    from += S::kBytes;
    if (++stage == stages) stage = 0, ++tile;
    if (--left == 0) {
      next_link();
    } else if (stage == 0) {
      find();
    }
  }
};

/// The barrier of all blocks of a chain. Arrivals are counted on and on, so that nobody has to reset them.
struct BlocksBarrier {
  unsigned long long* arrivals;
  unsigned long long target = 0;  // of thread 0
  /// Chains before this one have ended.
  __device__ explicit BlocksBarrier(unsigned long long* counter) : arrivals(counter) {
    if (threadIdx.x != 0) return;
    unsigned long long before;  // the first wait is not over without this block
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(before) : "l"(arrivals) : "memory");
    target = before / gridDim.x * gridDim.x;
  }
  __device__ unsigned long long seen() const {
    unsigned long long v;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(arrivals) : "memory");
    return v;
  }
  /// What this block wrote is there for whoever waits.
  __device__ void arrive() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    target += gridDim.x;
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(arrivals) : "memory");
  }
  __device__ void wait() const {
    if (threadIdx.x == 0) {
      while (seen() < target) {
      }
    }
    __syncthreads();
  }
};

// ---- Activations ----
// As matrix_columns.h computes them, to the bit, but in as few instructions as can be: all blocks compute all of them.

/// Four integers of a lane, the rounded columns 4 lane .. of a chunk, become the record of the chunk (RowActs, kBits).
/// Each lane then gathers two of the 64 words: bits 2p and 2p + 1 of four words that are multiplied together.
__device__ __forceinline__ void write_record(uint8_t* record, uint32_t word, int lane) {
  const int w = lane / 4, t = lane % 4, pair = lane / 8, at = lane % 8;
  reinterpret_cast<uint32_t*>(record)[(t * 2 + w / 4) * 4 + w % 4] = word;
  __syncwarp();
  const uint4 words = reinterpret_cast<const uint4*>(record)[at];
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int n = 2 * pair + i;
    uint32_t bits = (words.w >> n) & 0x01010101u;
    bits = bits * 4 + ((words.z >> n) & 0x01010101u);
    bits = bits * 4 + ((words.y >> n) & 0x01010101u);
    bits = bits * 4 + ((words.x >> n) & 0x01010101u);
    reinterpret_cast<uint32_t*>(record)[n * 8 + at] = bits;
  }
}

/// Shared memory for what the warps of a block tell each other.
struct ChainShared {
  double squares[kRowWarps];
  float most[kMostSpans][kRowWarps];
};

/// The activations of a link of up to kSpans spans, as records. Returns the row's multiplier (1 where chunks have
/// scales). Constants are read before `wait`, which says when the inputs are there.
template <typename L, int kSpans, typename Wait>
__device__ __forceinline__ float compute_records(const ChainLink& link, int chunks, uint8_t* records,
                                                 ChainShared& shared, Wait wait) {
  const PrepareArgs& p = link.prepare;
  const Source& s = p.source;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32, cols = static_cast<int>(p.cols);
  const auto read = [&](Four(&to)[kSpans], const float* from) {
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      const int col = i * kSpan + tid * 4;
      float4 v{0, 0, 0, 0};
      if (col < cols) v = *reinterpret_cast<const float4*>(from + col);
      to[i] = {v.x, v.y, v.z, v.w};
    }
  };
  Four norm[kSpans], x[kSpans];
  if (s.norm) read(norm, s.norm);
  wait();
  read(x, s.x);
  if (const float* const gates = link.glu_gate ? link.glu_gate : s.gate) {
    Four gate[kSpans];
    read(gate, gates);
    const int kind = link.glu_gate ? link.glu_kind : s.gate_kind;
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      for (int k = 0; k < 4; ++k) x[i].v[k] *= gate_of(kind, gate[i].v[k]);
    }
  }
  if (s.norm) {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kSpans; ++i) sum += square(x[i]);
    sum = sum_of_lanes(sum, 32);
    if (lane == 0) shared.squares[warp] = sum;
    __syncthreads();
    double all[kRowWarps];  // added up in the order of sum_of_lanes()
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) all[w] = shared.squares[w];
#pragma unroll
    for (int apart = 1; apart < kRowWarps; apart *= 2) {
#pragma unroll
      for (int w = 0; w < kRowWarps; w += 2 * apart) all[w] += all[w + apart];
    }
    const float factor = norm_factor(all[0], p.reciprocal, s.eps);
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      for (int k = 0; k < 4; ++k) x[i].v[k] = x[i].v[k] * factor * norm[i].v[k];
    }
  }
  if (s.plain) {
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {  // a span by one block
      const int col = i * kSpan + tid * 4;
      if (static_cast<int>(blockIdx.x) == i && col < cols)
        *reinterpret_cast<float4*>(s.plain + col) = {x[i].v[0], x[i].v[1], x[i].v[2], x[i].v[3]};
    }
  }
  float most[kSpans], row = 1.0f;
#pragma unroll
  for (int i = 0; i < kSpans; ++i) most[i] = largest_of_warp(magnitude_of(x[i]));
  if (p.group != 128) {
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kSpans; ++i) shared.most[i][warp] = most[i];
    }
    __syncthreads();
    if (p.group == 256) {
#pragma unroll
      for (int i = 0; i < kSpans; ++i) most[i] = fmaxf(most[i], shared.most[i][warp ^ 1]);
    } else {
      float all = 0;
#pragma unroll
      for (int i = 0; i < kSpans; ++i) all = fmaxf(all, shared.most[i][lane % kRowWarps]);
      row = row_multiplier(largest_of_warp(all));
    }
  }
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    const int chunk = i * kRowWarps + warp;
    if (chunk >= chunks) break;
    const GroupScale by = p.group == 0 ? GroupScale{row, 1.0f} : group_scale(most[i]);
    const uint32_t word = round_columns(x[i], by.multiplier);
    uint8_t* const record = records + chunk * RowActs<L>::kChunkBytes;
    write_record(record, word, lane);
    if (lane == 0) *reinterpret_cast<float*>(record + RowActs<L>::kCodeBytes) = by.scale;
  }
  return row;
}

template <typename L, typename Wait>
__device__ __forceinline__ float compute_records(const ChainLink& link, int chunks, uint8_t* records,
                                                 ChainShared& shared, Wait wait) {
  const int spans = (chunks + kRowWarps - 1) / kRowWarps;
  if (spans == 1) return compute_records<L, 1>(link, chunks, records, shared, wait);
  if (spans == 2) return compute_records<L, 2>(link, chunks, records, shared, wait);
  return compute_records<L, kMostSpans>(link, chunks, records, shared, wait);
}

/// Bounded so that registers are left for the small kernels around a chain, which come up while it ends.
template <typename L>
__global__ void __launch_bounds__(kChainThreads + 128, 1)
    chain_kernel(const __grid_constant__ ChainArgs c, int acts_bytes) {
  using S = Stages<L>;
  using Ring = RowRing<L, kChainDepth>;
  extern __shared__ uint4 block_memory[];
  __shared__ ChainShared shared;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  auto* const rings = reinterpret_cast<uint8_t*>(block_memory);
  uint8_t* const acts = rings + kRowWarps * Ring::kBytes;
  Ring ring(rings + warp * Ring::kBytes, lane);
  ChainCursor<L> next(c, warp);
#pragma unroll 1
  for (int i = 0; i < kChainDepth; ++i) fill_next(ring, i, next);  // in turn BitNet 2B has 994 tokens/s, not 1013
  let_next_kernel_start();
  wait_for_previous_kernel();
  BlocksBarrier barrier(c.arrivals);
  for (int k = 0; k < c.links; ++k) {
    const ProductArgs& p = c.link[k].product;
    const int stages = S::count(p.units), least = ChainCursor<L>::least_tiles(p);
    const RowShare share(p, stages, least, warp);
    const RowSums sums(acts + acts_bytes, kRowWarps, least + 1);
    sums.clear(kRowWarps + share.tiles);
    const float multiplier = compute_records<L>(c.link[k], p.units * S::kChunksOfUnit, acts, shared, [&] {
      if (k > 0) barrier.wait();
    });
    RowResults<L> results(p, share, 0, 0, multiplier);
    results.read_ahead();
    __syncthreads();
    multiply_share<L>(p.units, share, ring, next, acts, sums, warp, lane);
    __syncthreads();
    results.store(sums);
    if (k + 1 < c.links) barrier.arrive();
  }
}

/// Bytes of shared memory behind the rings.
struct ChainBytes {
  int acts = 0, sums = 0;
};
template <typename L>
ChainBytes chain_bytes(const ChainArgs& c) {
  ChainBytes most;
  for (int k = 0; k < c.links; ++k) {
    const ProductArgs& p = c.link[k].product;
    most.acts = std::max(most.acts, p.units * (L::kUnit / 128) * RowActs<L>::kChunkBytes);
    most.sums =
        std::max(most.sums, RowSums::bytes(kRowWarps, p.target[p.targets - 1].tiles_end / multiprocessors() + 1));
  }
  return most;
}
template <typename L>
int chain_shared_bytes(const ChainBytes& b) {
  return kRowWarps * RowRing<L, kChainDepth>::kBytes + b.acts + b.sums;
}

template <typename L>
bool chain_takes(const ChainArgs& c) {
  for (int k = 0; k < c.links; ++k) {
    const PrepareArgs& p = c.link[k].prepare;
    const Source& s = p.source;
    if (p.cols > kMostColumns || p.cols % 4 != 0 || p.block > 0 || p.group == 32) return false;
    if (s.x_columns.dim > 0 || s.gate_columns.dim > 0 || (s.norm && (s.group != p.cols || s.gate))) return false;
    if ((s.gate && c.link[k].glu_gate) || reinterpret_cast<uintptr_t>(s.norm) % 16 != 0) return false;
  }
  return overlaps_launches() &&
         chain_shared_bytes<L>(chain_bytes<L>(c)) + static_cast<int>(sizeof(ChainShared)) <= most_shared_memory();
}

template <typename L>
void launch_chain(cudaStream_t stream, const ChainArgs& c) {
  constexpr auto kKernel = chain_kernel<L>;
  static const cudaError_t ready = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        most_shared_memory() - static_cast<int>(sizeof(ChainShared)));
  check_launch(ready, "chain");
  const ChainBytes bytes = chain_bytes<L>(c);
  launch("chain", kKernel, dim3(static_cast<unsigned>(multiprocessors())), kChainThreads,
         static_cast<size_t>(chain_shared_bytes<L>(bytes)), stream, c, bytes.acts);
}

}  // namespace tern::cuda
