// What the delta rule of prompts needs of a chunk that does not depend on the state: ops_delta_chunks.cu says what for.
#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/delta_gates.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {

constexpr int kChunk = 32, kOpenThreads = 128;

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
  __half solve[2][kChunk * kChunk];        // T
  __half seen[2][kChunk * kChunk];         // G_t/G_s (k_s q_t) / sqrt(dim), s <= t
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
  static constexpr int kRow = kWidth + 4;  // rows in different banks
  union {
    float rows[2][kChunk][kRow];                            // keys, queries
    float triangle[kOpenThreads / 32][kChunk][kChunk + 4];  // of a warp's head: column by column
  };
  float products[2][kChunk][kChunk + 1];  // [t][s]: k_t k_s, q_t k_s
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

constexpr float kFixedScale = 64;  // of what is at most 1: its low half stays a normal number

/// The first slot of sequence s: those before it have rows for at most as many, the last of each rounded up.
inline __device__ int first_slot(const SeqRows& seq, int s) {
  return seq.first_row / kChunk + s;
}

struct Halves {
  __half high, low;
};
inline __device__ Halves halves_of(float x) {
  const __half high = __float2half_rn(x);
  return {high, __float2half_rn(x - __half2float(high))};
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
  float4 x[2][kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int t = warp + kWarps * i;
    const bool exists = t < chunk.rows && col < dim;
    const int64_t at = static_cast<int64_t>(head) * dim + col, row = chunk.first + t;
    x[0][i] = exists ? *reinterpret_cast<const float4*>(a.k + row * a.k_stride + at) : float4{0, 0, 0, 0};
    x[1][i] = exists ? *reinterpret_cast<const float4*>(a.q + row * a.q_stride + at) : float4{0, 0, 0, 0};
  }
#pragma unroll
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int t = warp + kWarps * i;
      float4 v = x[which][i];
      float sum = (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
      for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
      const float factor = a.normalise ? 1.0f / fmaxf(sqrtf(sum), a.eps) : 1.0f;
      v = {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
      if (col >= kWidth) continue;
      *reinterpret_cast<float4*>(&stage.rows[which][t][col]) = v;
      const Halves h[4] = {halves_of(v.x * kFixedScale), halves_of(v.y * kFixedScale), halves_of(v.z * kFixedScale),
                           halves_of(v.w * kFixedScale)};
      auto& planes = which == 0 ? to.keys : to.queries;
      const __half high[4] = {h[0].high, h[1].high, h[2].high, h[3].high};
      const __half low[4] = {h[0].low, h[1].low, h[2].low, h[3].low};
      *reinterpret_cast<uint2*>(&planes[0][place<kWidth>(t, col)]) = reinterpret_cast<const uint2&>(high);
      *reinterpret_cast<uint2*>(&planes[1][place<kWidth>(t, col)]) = reinterpret_cast<const uint2&>(low);
    }
  }
}

/// Products of keys (first half of the threads) and of queries with keys: 4 x 4 a thread.
template <int kWidth>
__device__ void multiply_rows(ChunkStage<kWidth>& stage) {
  const int which = threadIdx.x / 64, x = threadIdx.x % 8, y = threadIdx.x / 8 % 8;
  float sums[4][4] = {};
#pragma unroll 4
  for (int c = 0; c < kWidth; c += 4) {
    float4 left[4], right[4];
    for (int i = 0; i < 4; ++i) left[i] = *reinterpret_cast<const float4*>(&stage.rows[which][y + 8 * i][c]);
    for (int j = 0; j < 4; ++j) right[j] = *reinterpret_cast<const float4*>(&stage.rows[0][x + 8 * j][c]);
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        sums[i][j] += left[i].x * right[j].x;
        sums[i][j] += left[i].y * right[j].y;
        sums[i][j] += left[i].z * right[j].z;
        sums[i][j] += left[i].w * right[j].w;
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) stage.products[which][y + 8 * i][x + 8 * j] = sums[i][j];
  }
}

inline __device__ void put(__half (&planes)[2][kChunk * kChunk], int row, int col, float x) {
  const Halves h = halves_of(x * kFixedScale);
  planes[0][place<kChunk>(row, col)] = h.high;
  planes[1][place<kChunk>(row, col)] = h.low;
}

/// What a value head needs, by one warp; lane s has column s of the triangles.
template <int kWidth>
__device__ void solve_head(const DeltaArgs& a, const Chunk& chunk, int head, ChunkStage<kWidth>& stage,
                           ChunkOfHead& to) {
  const int lane = threadIdx.x % 32;
  auto& triangle = stage.triangle[threadIdx.x / 32];
  DeltaGates gates{0, 0};  // behind the last token nothing decays and nothing is added
  if (lane < chunk.rows) gates = delta_gates(a, chunk.first + lane, head);
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
#pragma unroll 8
  for (int t = 0; t < kChunk; ++t) {
    const float ratio = expf(static_cast<float>(__shfl_sync(~0u, grown, t) - grown));
    const float beta = __shfl_sync(~0u, gates.beta, t);
    put(to.seen, t, lane, t >= lane ? ratio * stage.products[1][t][lane] * inverse_root : 0.0f);
    triangle[lane][t] = t > lane ? beta * ratio * stage.products[0][t][lane] : 0.0f;
  }
  __syncwarp();
  float column[kChunk];  // of T
#pragma unroll
  for (int t = 0; t < kChunk; ++t) column[t] = t == lane ? 1.0f : 0.0f;
#pragma unroll
  for (int s = 0; s < kChunk; ++s) {
#pragma unroll
    for (int t = s / 4 * 4; t < kChunk; t += 4) {
      const float4 of_s = *reinterpret_cast<const float4*>(&triangle[s][t]);  // zeros up to s
      const float solved = column[s];
      column[t] -= of_s.x * solved;
      column[t + 1] -= of_s.y * solved;
      column[t + 2] -= of_s.z * solved;
      column[t + 3] -= of_s.w * solved;
    }
  }
#pragma unroll
  for (int t = 0; t < kChunk; ++t) put(to.solve, t, lane, column[t]);
  __syncwarp();  // the triangle may be written again
}

/// Blocks: x: slot, y: key head.
template <int kWidth>
__device__ void open_chunk(const ChunkArgs& a) {
  __shared__ ChunkStage<kWidth> stage;
  const int slot = blockIdx.x, key_head = blockIdx.y;
  const Chunk chunk = find_chunk(a, slot);
  if (chunk.rows == 0) return;
  auto* const keys = reinterpret_cast<ChunkOfKeys<kWidth>*>(a.keys) + static_cast<int64_t>(slot) * a.delta.k_heads;
  auto* const heads = reinterpret_cast<ChunkOfHead*>(a.heads) + static_cast<int64_t>(slot) * a.delta.v_heads;
  load_rows(a.delta, chunk, key_head, stage, keys[key_head]);
  __syncthreads();
  multiply_rows(stage);
  __syncthreads();  // triangles take the place of the rows
  for (int head = key_head + static_cast<int>(threadIdx.x / 32) * a.delta.k_heads; head < a.delta.v_heads;
       head += kOpenThreads / 32 * a.delta.k_heads)
    solve_head(a.delta, chunk, head, stage, heads[head]);
}

#endif

}  // namespace tern::cuda
