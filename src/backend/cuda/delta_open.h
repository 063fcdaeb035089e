// What the delta rule of prompts needs of a chunk that does not depend on the state: ops_delta_chunks.cu says what for.
#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/delta_gates.h"
#include "backend/cuda/mma_f16.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {

constexpr int kChunk = 32, kOpenWarps = 4, kOpenThreads = 32 * kOpenWarps;

/// Index of (row, column) of a matrix of halves whose pieces of 8 are swapped about so that 8 rows of a column of
/// pieces lie in different banks.
template <int kCols>
__device__ constexpr int place(int row, int col) {
  static_assert(kCols % 32 == 0);
  const int swap = kCols >= 64 ? row % 8 : row / 2 % 4;
  return row * kCols + ((col / 8) ^ swap) * 8 + col % 8;
}

/// What the first kernel finds for a chunk, as the second has it in shared memory: matrices are high and low halves.
/// kWidth: columns of a row, zeros behind the head.
template <int kWidth>
struct alignas(16) ChunkOfKeys {  // one a key head
  __half keys[2][kChunk * kWidth], queries[2][kChunk * kWidth];
};
struct alignas(16) ChunkOfHead {           // one a value head
  __half solve[2][kChunk * kChunk];        // T, a row a column
  __half seen[2][kChunk * kChunk];         // M, the same
  float beta[kChunk], beta_grown[kChunk];  // b_t, b_t G_t
  float read[kChunk];                      // G_t / sqrt(dim)
  float left[kChunk];                      // G_last / G_t
  float grown[4];                          // G_last
};

/// Chunks of all sequences have slots in order, some of which stay empty.
__host__ __device__ constexpr int64_t most_slots(int64_t rows, int64_t n_seqs) {
  return rows / kChunk + n_seqs;
}

struct ChunkArgs {
  DeltaArgs delta;
  DeviceStep step;
  int32_t n_seqs;
  StateView state;
  std::byte *keys, *heads;  // ChunkOfKeys [slots][k_heads], ChunkOfHead [slots][v_heads]
  float* out;
};

/// Shared memory of the first kernel.
template <int kWidth>
struct ChunkStage {
  union {
    ChunkOfKeys<kWidth> keys;
    float triangle[kOpenThreads / 32][2][kChunk][kChunk + 4];  // of a warp's head: column by column
  };
  float products[2][kChunk][kChunk + 1];  // [t][s]: k_t k_s, q_t k_s
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

constexpr float kFixedScale = 64;  // of what is at most 1: its low half stays a normal number

/// The first slot of sequence s: those before it have rows for at most as many, the last of each rounded up.
inline __device__ int first_slot(const SeqRows& seq, int s) {
  return seq.first_row / kChunk + s;
}

/// Operand A of a k-step.
struct Operand {
  uint32_t high[4], low[4];
};
/// Adds the products of one operand with kTiles tiles of another, b[i]: high halves of a k-step, then low ones.
template <int kTiles>
__device__ void multiply_tiles(float (&sums)[kTiles][4], const Operand& a, const uint32_t (&b)[kTiles][4],
                               int from = 0) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if (i >= from) multiply_add(sums[i], a.low, b[i][0], b[i][1]);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if (i >= from) multiply_add(sums[i], a.high, b[i][2], b[i][3]);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if (i >= from) multiply_add(sums[i], a.high, b[i][0], b[i][1]);
  }
}

constexpr int kTiles = kChunk / 8;  // of tokens

/// Tokens are the columns of the other operand: columns 16 step.. of 8 of them a tile, from tile `first` on, of a
/// matrix with a row a token.
template <int kCols, int kCount>
__device__ void load_tokens(uint32_t (&b)[kCount][4], const __half (&planes)[2][kChunk * kCols], int step,
                            int first = 0, int from = 0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i >= from)
      load_matrices(b[i], planes[lane / 16] + place<kCols>(8 * (first + i) + lane % 8, 16 * step + lane / 8 % 2 * 8));
  }
}

/// The same of a triangle that lies column by column.
template <int kCount>
__device__ void load_triangle(uint32_t (&b)[kCount][4], const __half (&planes)[2][kChunk * kChunk], int step,
                              int first = 0, int from = 0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i >= from)
      load_matrices_transposed(b[i], planes[lane / 16] + place<kChunk>(16 * step + lane % 16, 8 * (first + i)));
  }
}

/// Rows of a chunk: `rows` from row `first` of the Step on.
struct Chunk {
  int64_t first;
  int rows;  // none in an empty slot
};
inline __device__ Chunk find_chunk(const ChunkArgs& a, int slot) {
  int begun = 0;  // sequences that begin at this slot or before
  for (int s = static_cast<int>(threadIdx.x % 32); s < a.n_seqs; s += 32)
    begun += first_slot(a.step.seqs[s], s) <= slot ? 1 : 0;
  const int s = __reduce_add_sync(~0u, begun) - 1;
  const SeqRows seq = a.step.seqs[s];
  const int before = (slot - first_slot(seq, s)) * kChunk;
  return {static_cast<int64_t>(seq.first_row) + before, max(0, min(kChunk, seq.n_rows - before))};
}

/// Keys and queries of the chunk, normed where asked for, into the stage and, as halves, to where the second kernel
/// finds them.
template <int kWidth>
__device__ void load_rows(const DeltaArgs& a, const Chunk& chunk, int head, ChunkStage<kWidth>& stage,
                          ChunkOfKeys<kWidth>& to) {
  constexpr int kWarps = kOpenThreads / 32, kRows = kChunk / kWarps;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, col = 4 * lane, dim = static_cast<int>(a.head_dim);
  float4 x[2][kRows] = {};
  if (col < dim) {
    const float* const k = a.k + chunk.first * a.k_stride + static_cast<int64_t>(head) * dim + col;
    const float* const q = a.q + chunk.first * a.q_stride + static_cast<int64_t>(head) * dim + col;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int t = min(warp + kWarps * i, chunk.rows - 1);  // those that do not exist get a factor of 0
      x[0][i] = *reinterpret_cast<const float4*>(k + t * a.k_stride);
      x[1][i] = *reinterpret_cast<const float4*>(q + t * a.q_stride);
    }
  }
  // Every lane gets the sum of row lane % 16 of both.
  float sums[2 * kRows];
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    const float4& v = x[i / kRows][i % kRows];
    sums[i] = (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
#pragma unroll
  for (int level = 0; level < 4; ++level) {
    const int half = kRows >> level;
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i >= half) break;
      const float other = __shfl_xor_sync(~0u, upper ? sums[i] : sums[i + half], half);
      sums[i] = (upper ? sums[i + half] : sums[i]) + other;
    }
  }
  const float sum = sums[0] + __shfl_xor_sync(~0u, sums[0], 16);
  const float factors = (a.normalise ? 1.0f / fmaxf(sqrtf(sum), a.eps) : 1.0f) * kFixedScale;
#pragma unroll
  for (int i = 0; i < 2 * kRows; ++i) {
    const int t = warp + kWarps * (i % kRows), at = place<kWidth>(t, col);
    const float of_row = __shfl_sync(~0u, factors, i), factor = t < chunk.rows ? of_row : 0.0f;
    const float4& v = x[i / kRows][i % kRows];
    if (col >= kWidth) continue;
    const float y[4] = {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
    const __half2 left = __floats2half2_rn(y[0], y[1]), right = __floats2half2_rn(y[2], y[3]);
    const uint2 high{reinterpret_cast<const uint32_t&>(left), reinterpret_cast<const uint32_t&>(right)};
    const uint2 low{pack(y[0] - __low2float(left), y[1] - __high2float(left)),
                    pack(y[2] - __low2float(right), y[3] - __high2float(right))};
    auto& planes = i < kRows ? to.keys : to.queries;
    auto& here = i < kRows ? stage.keys.keys : stage.keys.queries;
    *reinterpret_cast<uint2*>(&planes[0][at]) = *reinterpret_cast<uint2*>(&here[0][at]) = high;
    *reinterpret_cast<uint2*>(&planes[1][at]) = *reinterpret_cast<uint2*>(&here[1][at]) = low;
  }
}

/// Products of keys (first half of the warps) and of queries with keys: 16 rows a warp.
template <int kWidth>
__device__ void multiply_rows(ChunkStage<kWidth>& stage) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, which = warp / 2, row = warp % 2 * 16;
  const auto& left = which == 0 ? stage.keys.keys : stage.keys.queries;
  float sums[kTiles][4] = {};
#pragma unroll 4
  for (int step = 0; step < kWidth / 16; ++step) {
    const int at = place<kWidth>(row + lane % 16, 16 * step + lane / 16 * 8);
    Operand a;
    load_matrices(a.high, left[0] + at);
    load_matrices(a.low, left[1] + at);
    uint32_t b[kTiles][4];
    load_tokens<kWidth>(b, stage.keys.keys, step);
    multiply_tiles(sums, a, b);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      stage.products[which][row + lane / 4 + e / 2 * 8][8 * i + lane % 4 * 2 + e % 2] =
          sums[i][e] * (1 / (kFixedScale * kFixedScale));
  }
}

/// Column `col` of a triangle.
inline __device__ void put(__half (&planes)[2][kChunk * kChunk], int col, const float (&x)[kChunk]) {
#pragma unroll
  for (int first = 0; first < kChunk; first += 8) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float y = x[first + 2 * i] * kFixedScale, z = x[first + 2 * i + 1] * kFixedScale;
      const __half2 h = __floats2half2_rn(y, z);
      high[i] = reinterpret_cast<const uint32_t&>(h);
      low[i] = pack(y - __low2float(h), z - __high2float(h));
    }
    *reinterpret_cast<uint4*>(&planes[0][place<kChunk>(col, first)]) = uint4{high[0], high[1], high[2], high[3]};
    *reinterpret_cast<uint4*>(&planes[1][place<kChunk>(col, first)]) = uint4{low[0], low[1], low[2], low[3]};
  }
}
/// sums += column s of the triangle times by, from the diagonal on.
inline __device__ void add_column(float (&sums)[kChunk], const float (&column)[kChunk + 4], int s, float by) {
#pragma unroll
  for (int t = s / 4 * 4; t < kChunk; t += 4) {
    const float4 of_s = *reinterpret_cast<const float4*>(&column[t]);  // zeros before the diagonal
    sums[t] = fmaf(of_s.x, by, sums[t]);
    sums[t + 1] = fmaf(of_s.y, by, sums[t + 1]);
    sums[t + 2] = fmaf(of_s.z, by, sums[t + 2]);
    sums[t + 3] = fmaf(of_s.w, by, sums[t + 3]);
  }
}

/// What a value head needs, by one warp; lane s has column s of the triangles.
template <int kWidth>
__device__ void solve_head(const DeltaArgs& a, const DeltaGates& gates, ChunkStage<kWidth>& stage, ChunkOfHead& to) {
  const int lane = threadIdx.x % 32;
  auto& triangle = stage.triangle[threadIdx.x / 32];
  // Logarithms of G reach -1000 where their differences must be good to 1e-7.
  double grown = gates.log_decay;
  for (int below = 1; below < 32; below *= 2) {
    const double other = __shfl_up_sync(~0u, grown, below);
    if (lane >= below) grown += other;
  }
  const double last = __shfl_sync(~0u, grown, 31);
  const float inverse_root = 1.0f / sqrtf(static_cast<float>(a.head_dim)), g = expf(static_cast<float>(grown));
  to.beta[lane] = gates.beta;
  to.beta_grown[lane] = gates.beta * g;
  to.read[lane] = g * inverse_root;
  to.left[lane] = expf(static_cast<float>(last - grown));
  if (lane == 31) to.grown[0] = g;
#pragma unroll 1
  for (int first = 0; first < kChunk; first += 4) {  // no more code than needed: a block runs it once
    float x[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = first + i;
      const float ratio = expf(static_cast<float>(__shfl_sync(~0u, grown, t) - grown));
      const float beta = __shfl_sync(~0u, gates.beta, t);
      x[0][i] = t > lane ? beta * ratio * stage.products[0][t][lane] : 0.0f;
      x[1][i] = t >= lane ? ratio * stage.products[1][t][lane] * inverse_root : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<float4*>(&triangle[i][lane][first]) = float4{x[i][0], x[i][1], x[i][2], x[i][3]};
  }
  __syncwarp();
  float solved[kChunk], of_rests[kChunk] = {};  // columns of T and M
#pragma unroll
  for (int t = 0; t < kChunk; ++t) solved[t] = t == lane ? 1.0f : 0.0f;
#pragma unroll
  for (int s = 0; s < kChunk; ++s) add_column(solved, triangle[0][s], s, -solved[s]);
  put(to.solve, lane, solved);
#pragma unroll
  for (int s = 0; s < kChunk; ++s) add_column(of_rests, triangle[1][s], s, solved[s]);
  put(to.seen, lane, of_rests);
}

/// Blocks: x: slot, y: key head, z: value heads of the key head, kOpenWarps of them.
template <int kWidth>
__device__ void open_chunk(const ChunkArgs& a) {
  __shared__ ChunkStage<kWidth> stage;
  const int slot = blockIdx.x, key_head = blockIdx.y;
  const Chunk chunk = find_chunk(a, slot);
  if (chunk.rows == 0) return;
  auto* const keys = reinterpret_cast<ChunkOfKeys<kWidth>*>(a.keys) + static_cast<int64_t>(slot) * a.delta.k_heads;
  auto* const heads = reinterpret_cast<ChunkOfHead*>(a.heads) + static_cast<int64_t>(slot) * a.delta.v_heads;
  const int lane = threadIdx.x % 32,
            head = key_head + static_cast<int>(blockIdx.z * kOpenWarps + threadIdx.x / 32) * a.delta.k_heads;
  wait_for_previous_kernel();
  DeltaGates gates{0, 0};  // behind the last token nothing decays and nothing is added
  if (lane < chunk.rows && head < a.delta.v_heads) gates = delta_gates(a.delta, chunk.first + lane, head);
  load_rows(a.delta, chunk, key_head, stage, keys[key_head]);
  __syncthreads();
  multiply_rows(stage);
  __syncthreads();  // triangles take the place of the rows
  if (head < a.delta.v_heads) solve_head(a.delta, gates, stage, heads[head]);
}

#endif

}  // namespace tern::cuda
