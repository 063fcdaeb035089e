// The delta rule of prompts: kChunk tokens at a time as matrix products. With G_t the product of the decays of a chunk
// up to token t and S the state before it, token t adds d_t k_t^T to the state, where
//   d_t   = b_t (v_t - G_t S k_t - sum_{s < t} G_t/G_s (k_s k_t) d_s)
//   out_t = (G_t S q_t + sum_{s <= t} G_t/G_s (k_s q_t) d_s) / sqrt(dim)
// The system is triangular, so d = T r: T, the inverse of the triangle, knows nothing of S, and r_t = b_t (v_t - G_t S
// k_t) nothing of the other tokens (Yang et al., "Gated Delta Networks", 2024, section 3.3).
//
// A first kernel finds, all chunks at once, what does not depend on the state: normed keys and queries, T, and the
// masked products of keys and queries. A second one walks over the chunks of a sequence with the state in registers: a
// warp has 16 of its rows (value dimensions), which know nothing of the others.
//
// Products are those of f32 but for the last bit: every operand is two halves, high + low (22 bits), and a product
// three of the tensor cores'. Keys, queries and triangles are at most 1 and have a fixed scale; rows of the state and
// of d are scaled by a power of two that their largest value decides. Sums of a chunk begin at zero and are added to
// the state by ordinary arithmetic: the tensor cores cut off what does not fit, always towards zero.
#include "backend/cuda/delta_gates.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma_f16.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

constexpr int kChunk = 32, kThreads = 128;

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
    float rows[2][kChunk][kRow];                        // keys, queries
    float triangle[kThreads / 32][kChunk][kChunk + 4];  // of a warp's head: column by column
  };
  float products[2][kChunk][kChunk + 1];  // [t][s]: k_t k_s, q_t k_s
};

/// Of the second: kRows rows of a head a block.
template <int kWidth>
struct Walk {
  static constexpr int kWarps = kWidth < 64 ? kWidth / 16 : 4, kBlock = 32 * kWarps, kRows = 16 * kWarps;
  struct Stage {
    ChunkOfKeys<kWidth> keys;
    ChunkOfHead head;
    float values[kChunk][kRows + 4];
  };
  static constexpr size_t kShared = 2 * sizeof(Stage);
  using State = float[kWidth / 8][4];  // tiles of 16 rows and 8 columns, as sums
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

constexpr float kFixedScale = 64;  // of what is at most 1: its low half stays a normal number

/// The first slot of sequence s: those before it have rows for at most as many, the last of each rounded up.
__device__ int first_slot(const SeqRows& seq, int s) {
  return seq.first_row / kChunk + s;
}

// ---- Before the state ----

struct Halves {
  __half high, low;
};
__device__ Halves halves_of(float x) {
  const __half high = __float2half_rn(x);
  return {high, __float2half_rn(x - __half2float(high))};
}

/// Rows of a chunk: `rows` from row `first` of the Step on.
struct Chunk {
  int64_t first;
  int rows;  // none in an empty slot
};
__device__ Chunk find_chunk(const ChunkArgs& a, int slot) {
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
  constexpr int kWarps = kThreads / 32, kRows = kChunk / kWarps;
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

__device__ void put(__half (&planes)[2][kChunk * kChunk], int row, int col, float x) {
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
       head += kThreads / 32 * a.delta.k_heads)
    solve_head(a.delta, chunk, head, stage, heads[head]);
}

// ---- With the state ----

/// A power of two that brings a row's largest value to [2^13, 2^14), and what undoes it and the fixed scale.
struct Scale {
  float by, back;
};
__device__ Scale scale_of(float largest) {
  const int exponent = max(__float_as_int(largest) >> 23, 40);
  return {__int_as_float((127 + 127 + 13 - exponent) << 23), __int_as_float((exponent - 13) << 23) / kFixedScale};
}
/// Of the two rows (g and g + 8) whose sums a lane holds.
template <int kTiles>
__device__ void scales_of(const float (&x)[kTiles][4], Scale (&scales)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) largest = fmaxf(largest, fmaxf(fabsf(x[i][2 * half]), fabsf(x[i][2 * half + 1])));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    scales[half] = scale_of(fmaxf(largest, __shfl_xor_sync(~0u, largest, 2)));
  }
}

/// Operand A of a k-step.
struct Operand {
  uint32_t high[4], low[4];
};
/// Of two tiles of sums side by side.
__device__ Operand operand_of(const float (&left)[4], const float (&right)[4], const Scale (&scales)[2]) {
  Operand a;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto& tile = i < 2 ? left : right;
    const float by = scales[i % 2].by, x = tile[i % 2 * 2] * by, y = tile[i % 2 * 2 + 1] * by;
    const __half2 high = __floats2half2_rn(x, y);
    a.high[i] = reinterpret_cast<const uint32_t&>(high);
    a.low[i] = pack(x - __low2float(high), y - __high2float(high));
  }
  return a;
}

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

/// Tokens are the columns of the other operand: columns 16 step.. of 8 of them a tile, of a matrix with a row a token.
template <int kCols>
__device__ void load_tokens(uint32_t (&b)[kTiles][4], const __half (&planes)[2][kChunk * kCols], int step,
                            int from = 0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    if (i >= from)
      load_matrices(b[i], planes[lane / 16] + place<kCols>(8 * i + lane % 8, 16 * step + lane / 8 % 2 * 8));
  }
}

/// Starts the copies of a chunk.
template <int kWidth>
__device__ void load_stage(typename Walk<kWidth>::Stage& stage, const ChunkArgs& a, int slot, const Chunk& chunk) {
  using W = Walk<kWidth>;
  const DeltaArgs& d = a.delta;
  const int head = blockIdx.y, dim = static_cast<int>(d.head_dim), first_row = blockIdx.x * W::kRows;
  const auto copy = [](auto& to, const std::byte* all, int64_t index) {
    const auto* from = reinterpret_cast<const uint4*>(all + index * static_cast<int64_t>(sizeof(to)));
    for (int i = threadIdx.x; i < static_cast<int>(sizeof(to) / 16); i += W::kBlock)
      copy_async16(reinterpret_cast<uint4*>(&to) + i, from + i, true);
  };
  copy(stage.keys, a.keys, static_cast<int64_t>(slot) * d.k_heads + head % d.k_heads);
  copy(stage.head, a.heads, static_cast<int64_t>(slot) * d.v_heads + head);
  for (int i = threadIdx.x; i < kChunk * W::kRows / 4; i += W::kBlock) {
    const int t = i / (W::kRows / 4), row = first_row + i % (W::kRows / 4) * 4;
    const bool exists = t < chunk.rows && row < dim;
    const float* const from = d.v + (chunk.first + t) * d.v_stride + static_cast<int64_t>(head) * dim + row;
    copy_async16(&stage.values[t][row - first_row], exists ? from : d.v, exists);
  }
  copy_async_commit();
}

/// What a chunk does to the 16 rows of a warp's state, and what it reads of them: out[i][2 * half + e] for row g + 8 *
/// half and token 8 * i + 2 * (lane % 4) + e.
template <int kWidth>
__device__ void walk_chunk(const typename Walk<kWidth>::Stage& stage, typename Walk<kWidth>::State& state,
                           float (&out)[kTiles][4]) {
  const int lane = threadIdx.x % 32, row = static_cast<int>(threadIdx.x / 32) * 16 + lane / 4;
  const ChunkOfHead& head = stage.head;
  const auto token = [&](int i, int e) { return 8 * i + lane % 4 * 2 + e % 2; };
  float d[kTiles][4] = {}, seen[kTiles][4] = {};
  uint32_t b[kTiles][4];
  Scale scales[2];

  scales_of(state, scales);
  for (auto& tile : out) tile[0] = tile[1] = tile[2] = tile[3] = 0;
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    const Operand a = operand_of(state[2 * step], state[2 * step + 1], scales);
    load_tokens<kWidth>(b, stage.keys.keys, step);
    multiply_tiles(d, a, b);
    load_tokens<kWidth>(b, stage.keys.queries, step);
    multiply_tiles(out, a, b);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = token(i, e);
      d[i][e] = head.beta[t] * stage.values[t][row + e / 2 * 8] - head.beta_grown[t] * (d[i][e] * scales[e / 2].back);
      out[i][e] = out[i][e] * scales[e / 2].back * head.read[t];
    }
  }

  // d = T r: token t needs tokens up to t alone.
  scales_of(d, scales);
  float sums[kTiles][4] = {};
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
    const Operand a = operand_of(d[2 * step], d[2 * step + 1], scales);
    load_tokens<kChunk>(b, head.solve, step, 2 * step);
    multiply_tiles(sums, a, b, 2 * step);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) d[i][e] = sums[i][e] * scales[e / 2].back;
  }

  scales_of(d, scales);
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
    const Operand a = operand_of(d[2 * step], d[2 * step + 1], scales);
    load_tokens<kChunk>(b, head.seen, step, 2 * step);
    multiply_tiles(seen, a, b, 2 * step);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      out[i][e] += seen[i][e] * scales[e / 2].back;
      d[i][e] *= head.left[token(i, e)];
    }
  }

  Operand added[kChunk / 16];
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) added[step] = operand_of(d[2 * step], d[2 * step + 1], scales);
#pragma unroll
  for (int first = 0; first < kWidth / 8; first += kTiles) {
#pragma unroll
    for (auto& tile : sums) tile[0] = tile[1] = tile[2] = tile[3] = 0;
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
        load_matrices_transposed(b[i],
                                 stage.keys.keys[lane / 16] + place<kWidth>(16 * step + lane % 16, 8 * (first + i)));
      multiply_tiles(sums, added[step], b);
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        state[first + i][e] = state[first + i][e] * head.grown[0] + sums[i][e] * scales[e / 2].back;
    }
  }
}

/// Blocks: x: rows of a head, y: value head, z: sequence.
template <int kWidth>
__device__ void walk_chunks(const ChunkArgs& a) {
  using W = Walk<kWidth>;
  extern __shared__ uint4 shared[];
  auto* const stages = reinterpret_cast<typename W::Stage*>(shared);
  const SeqRows seq = a.step.seqs[blockIdx.z];
  const int head = blockIdx.y, dim = static_cast<int>(a.delta.head_dim), lane = threadIdx.x % 32;
  const int row = static_cast<int>(blockIdx.x * W::kRows + threadIdx.x / 32 * 16) + lane / 4;
  typename W::State state;
  const auto each_pair = [&](const auto& act) {  // of columns of the state that exist
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + 8 * half, col = 8 * i + lane % 4 * 2;
        if (r < dim && col < dim)
          act(state[i][2 * half], state[i][2 * half + 1], (static_cast<int64_t>(head) * dim + r) * dim + col);
      }
    }
  };
  for (auto& tile : state) tile[0] = tile[1] = tile[2] = tile[3] = 0;
  if (seq.state_in != kZeroState) {
    const float* const from = a.state.delta + seq.state_in * a.state.delta_floats;
    each_pair([&](float& x, float& y, int64_t at) {
      const float2 v = *reinterpret_cast<const float2*>(from + at);
      x = v.x, y = v.y;
    });
  }
  const int chunks = (seq.n_rows + kChunk - 1) / kChunk, slot = first_slot(seq, static_cast<int>(blockIdx.z));
  const auto chunk = [&](int c) {
    return Chunk{static_cast<int64_t>(seq.first_row) + c * kChunk, min(kChunk, seq.n_rows - c * kChunk)};
  };
  wait_for_previous_kernel();
  if (chunks > 0) load_stage<kWidth>(stages[0], a, slot, chunk(0));
  for (int c = 0; c < chunks; ++c) {
    copy_async_wait<0>();
    __syncthreads();  // the stage has arrived, and the one before it has been used
    if (c + 1 < chunks) load_stage<kWidth>(stages[(c + 1) % 2], a, slot + c + 1, chunk(c + 1));
    float out[kTiles][4];
    walk_chunk<kWidth>(stages[c % 2], state, out);
    const Chunk now = chunk(c);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = 8 * i + lane % 4 * 2 + e % 2, r = row + e / 2 * 8;
        if (t < now.rows && r < dim) a.out[((now.first + t) * a.delta.v_heads + head) * dim + r] = out[i][e];
      }
    }
  }
  float* const to = a.state.delta + seq.state_out * a.state.delta_floats;
  each_pair([&](float& x, float& y, int64_t at) { *reinterpret_cast<float2*>(to + at) = {x, y}; });
}

#endif

template <int kWidth>
__global__ void __launch_bounds__(kThreads) open_chunks_kernel(const __grid_constant__ ChunkArgs a) {
  begin_kernel();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  open_chunk<kWidth>(a);
#endif
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) walk_chunks_kernel(const __grid_constant__ ChunkArgs a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  let_next_kernel_start();
  walk_chunks<kWidth>(a);
#endif
}

template <int kWidth>
int64_t bytes_of_keys(const DeltaArgs& a, int64_t slots) {
  return slots * a.k_heads * static_cast<int64_t>(sizeof(ChunkOfKeys<kWidth>));
}

/// act.operator()<kWidth>() for the head.
template <typename Act>
auto with_width(const DeltaArgs& a, const Act& act) {
  if (a.head_dim <= 32) return act.template operator()<32>();
  if (a.head_dim <= 64) return act.template operator()<64>();
  return act.template operator()<128>();
}

}  // namespace

bool delta_chunks_supports(const DeltaArgs& args, int compute_capability) {
  return compute_capability >= 80 && args.head_dim <= 128;
}

int64_t delta_chunks_bytes(const DeltaArgs& args, int64_t rows, int64_t n_seqs) {
  const int64_t slots = most_slots(rows, n_seqs);
  return with_width(args, [&]<int kWidth>() { return bytes_of_keys<kWidth>(args, slots); }) +
         slots * args.v_heads * static_cast<int64_t>(sizeof(ChunkOfHead));
}

void delta_chunks(cudaStream_t s, const DeltaArgs& args, const DeviceStep& step, int64_t rows, int64_t n_seqs,
                  const StateView& state, std::byte* scratch, float* out) {
  if (n_seqs == 0) return;
  const int64_t slots = most_slots(rows, n_seqs);
  const auto heads = static_cast<unsigned>(args.v_heads);
  with_width(args, [&]<int kWidth>() {
    using W = Walk<kWidth>;
    const ChunkArgs a{
        args, step, static_cast<int32_t>(n_seqs), state, scratch, scratch + bytes_of_keys<kWidth>(args, slots), out};
    launch("delta_open", open_chunks_kernel<kWidth>,
           dim3(static_cast<unsigned>(slots), static_cast<unsigned>(args.k_heads)), kThreads, 0, s, a);
    static const cudaError_t raised = cudaFuncSetAttribute(
        walk_chunks_kernel<kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(W::kShared));
    check_launch(raised, "delta_walk");
    launch("delta_walk", walk_chunks_kernel<kWidth>,
           dim3(blocks(args.head_dim, W::kRows), heads, static_cast<unsigned>(n_seqs)), W::kBlock, W::kShared, s, a);
  });
}

}  // namespace tern::cuda
