// The delta rule of prompts: kChunk tokens at a time as matrix products. With G_t the product of the decays of a chunk
// up to token t and S the state before it, token t adds d_t k_t^T to the state, where
//   d_t   = b_t (v_t - G_t S k_t - sum_{s < t} G_t/G_s (k_s k_t) d_s)
//   out_t = (G_t S q_t + sum_{s <= t} G_t/G_s (k_s q_t) d_s) / sqrt(dim)
// The system is triangular, so d = T r: T, the inverse of the triangle, knows nothing of S, and r_t = b_t (v_t - G_t S
// k_t) nothing of the other tokens (Yang et al., "Gated Delta Networks", 2024, section 3.3).
//
// A first kernel finds, all chunks at once, what does not depend on the state: normed keys and queries, T, and M, the
// masked products of keys and queries times T, so that out = ... + M r. A second one walks over the chunks of a
// sequence with the state in registers: two warps share 16 of its rows (value dimensions), which know nothing of the
// others, by columns.
//
// Products are those of f32 but for the last bit: every operand is two halves, high + low (22 bits), and a product
// three of the tensor cores'. Keys, queries and triangles are at most 1 and have a fixed scale; rows of the state and
// of d are scaled by a power of two that their largest value decides. Sums of a chunk begin at zero and are added to
// the state by ordinary arithmetic: the tensor cores cut off what does not fit, always towards zero.
#include "backend/cuda/delta_open.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

/// The second kernel: kRows rows of a head a block.
template <int kWidth>
struct Walk {
  static constexpr int kParts = 2, kColumns = kWidth / kParts;  // of a row of the state, for as many warps
  static constexpr int kWarps = kWidth < 64 ? kWidth / 16 : 4, kBlock = 32 * kWarps * kParts, kRows = 16 * kWarps;
  struct Stage {
    ChunkOfKeys<kWidth> keys;
    ChunkOfHead head;
    float values[kChunk][kRows + 4];
  };
  struct Exchange {  // between the parts
    float4 of[kWarps * kParts][3 * kChunk / 16][32];
  };
  static constexpr size_t kShared = 2 * sizeof(Stage) + sizeof(Exchange);
  using State = float[kColumns / 8][4];  // tiles of 16 rows and 8 columns, as sums
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

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
    float even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      even = fmaxf(even, fabsf(x[i][2 * half]));
      odd = fmaxf(odd, fabsf(x[i][2 * half + 1]));
    }
    float largest = fmaxf(even, odd);
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    scales[half] = scale_of(fmaxf(largest, __shfl_xor_sync(~0u, largest, 2)));
  }
}

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

/// Starts the copies of a chunk.
template <int kWidth>
__device__ void load_stage(typename Walk<kWidth>::Stage& stage, const ChunkArgs& a, int slot, const Chunk& chunk) {
  using W = Walk<kWidth>;
  const DeltaArgs& d = a.delta;
  const int head = blockIdx.y, dim = static_cast<int>(d.head_dim), first_row = blockIdx.x * W::kRows;
  const auto copy = [](auto& to, const std::byte* all, int64_t index) {
    constexpr int kPieces = sizeof(to) / 16, kEach = (kPieces + W::kBlock - 1) / W::kBlock;
    const auto* const from = reinterpret_cast<const uint4*>(all + index * static_cast<int64_t>(sizeof(to)));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * W::kBlock;
      if ((i + 1) * W::kBlock <= kPieces || piece < kPieces)
        copy_async16(reinterpret_cast<uint4*>(&to) + piece, from + piece, true);
    }
  };
  copy(stage.keys, a.keys, static_cast<int64_t>(slot) * d.k_heads + head % d.k_heads);
  copy(stage.head, a.heads, static_cast<int64_t>(slot) * d.v_heads + head);
  constexpr int kPieces = W::kRows / 4, kTogether = W::kBlock / kPieces;
  static_assert(kChunk % kTogether == 0);
  const int first = static_cast<int>(threadIdx.x) / kPieces, row = static_cast<int>(threadIdx.x) % kPieces * 4;
  const float* from = d.v + (chunk.first + first) * d.v_stride + static_cast<int64_t>(head) * dim + first_row + row;
#pragma unroll
  for (int t = 0; t < kChunk; t += kTogether, from += kTogether * d.v_stride) {
    const bool exists = first + t < chunk.rows && first_row + row < dim;
    copy_async16(&stage.values[first + t][row], exists ? from : d.v, exists);
  }
  copy_async_commit();
}

__device__ float4 vector_of(const float (&tile)[4]) {
  return {tile[0], tile[1], tile[2], tile[3]};
}
__device__ void add(float (&sum)[4], const float4& x) {
  sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
}

/// Keys times d (scaled so) are added to the warp's part of the state, which decays.
template <int kWidth>
__device__ void add_to_state(const typename Walk<kWidth>::Stage& stage, const float (&d)[kTiles][4],
                             const Scale (&scales)[2], typename Walk<kWidth>::State& state) {
  constexpr int kColumns = Walk<kWidth>::kColumns, kTogether = kColumns / 8 < kTiles ? kColumns / 8 : kTiles;
  const int lane = threadIdx.x % 32, first_col = threadIdx.x / 32 % 2 * kColumns;
  Operand a[kChunk / 16];
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) a[step] = operand_of(d[2 * step], d[2 * step + 1], scales);
#pragma unroll
  for (int first = 0; first < kColumns / 8; first += kTogether) {
    float sums[kTogether][4] = {};
    uint32_t b[kTogether][4];
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        load_matrices_transposed(
            b[i], stage.keys.keys[lane / 16] + place<kWidth>(16 * step + lane % 16, first_col + 8 * (first + i)));
      multiply_tiles(sums, a[step], b);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        state[first + i][e] = state[first + i][e] * stage.head.grown[0] + sums[i][e] * scales[e / 2].back;
    }
  }
}

/// Adds the products of a part of the state, as operands, with keys or queries.
template <int kWidth, int kSteps>
__device__ void read_state(float (&sums)[kTiles][4], const Operand (&state)[kSteps],
                           const __half (&planes)[2][kChunk * kWidth], int first_step) {
  uint32_t b[kTiles][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    load_tokens<kWidth>(b, planes, first_step + step);
    multiply_tiles(sums, state[step], b);
  }
}

/// What a chunk does to the columns of 16 rows of the state that a warp has, and what it reads of the rows, for half of
/// the tokens: out[i][2 * half + e] for row g + 8 * half and token 8 * (2 * part + i) + 2 * (lane % 4) + e.
/// meanwhile() happens where products are waited for.
template <int kWidth>
__device__ void walk_chunk(const typename Walk<kWidth>::Stage& stage, typename Walk<kWidth>::Exchange& exchange,
                           typename Walk<kWidth>::State& state, float (&out)[kTiles / 2][4], const auto& meanwhile) {
  using W = Walk<kWidth>;
  constexpr int kSteps = W::kColumns / 16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % 2, row = warp / 2 * 16 + lane / 4;
  const ChunkOfHead& head = stage.head;
  auto &mine = exchange.of[warp], &other = exchange.of[warp ^ 1];
  const auto token = [&](int i, int e) { return 8 * i + lane % 4 * 2 + e % 2; };
  float d[kTiles][4] = {}, read[kTiles][4] = {};
  Scale scales[2];

  // Both parts need all of d, and half of what is read by queries: the latter is found while the former is on its way.
  scales_of(state, scales);
  Operand of_state[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) of_state[step] = operand_of(state[2 * step], state[2 * step + 1], scales);
  read_state<kWidth>(d, of_state, stage.keys.keys, part * kSteps);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) d[i][e] *= scales[e / 2].back;
    mine[i][lane] = vector_of(d[i]);
  }
  arrive(1 + (warp ^ 1), 64);
  read_state<kWidth>(read, of_state, stage.keys.queries, part * kSteps);
  meanwhile();
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) read[i][e] *= scales[e / 2].back;
  }
#pragma unroll
  for (int i = 0; i < kTiles / 2; ++i) {
    mine[kTiles + i][lane] = part == 0 ? vector_of(read[kTiles / 2 + i]) : vector_of(read[i]);
#pragma unroll
    for (int e = 0; e < 4; ++e) out[i][e] = part == 0 ? read[i][e] : read[kTiles / 2 + i][e];
  }
  synchronise(1 + warp, 64);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    add(d[i], other[i][lane]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int t = token(i, e);
      d[i][e] = head.beta[t] * stage.values[t][row + e / 2 * 8] - head.beta_grown[t] * d[i][e];
    }
  }

  // d = T r: token t needs tokens up to t alone.
  scales_of(d, scales);
  float sums[kTiles][4] = {}, seen[kTiles / 2][4] = {};
  Operand r[kChunk / 16];
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) r[step] = operand_of(d[2 * step], d[2 * step + 1], scales);
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
    uint32_t b[kTiles][4];
    load_triangle(b, head.solve, step, 0, 2 * step);
    multiply_tiles(sums, r[step], b, 2 * step);
  }
#pragma unroll
  for (int step = 0; step < kChunk / 16; ++step) {
    if (step > part) break;
    uint32_t b[kTiles / 2][4];
    load_triangle(b, head.seen, step, kTiles / 2 * part);
    multiply_tiles(seen, r[step], b);
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) d[i][e] = sums[i][e] * (scales[e / 2].back * head.left[token(i, e)]);
  }
  synchronise(9 + warp / 2, 64);
#pragma unroll
  for (int i = 0; i < kTiles / 2; ++i) {
    add(out[i], other[kTiles + i][lane]);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      out[i][e] = out[i][e] * head.read[token(kTiles / 2 * part + i, e)] + seen[i][e] * scales[e / 2].back;
  }
  scales_of(d, scales);
  add_to_state<kWidth>(stage, d, scales, state);
}

/// Blocks: x: rows of a head, y: value head, z: sequence.
template <int kWidth>
__device__ void walk_chunks(const ChunkArgs& a) {
  using W = Walk<kWidth>;
  extern __shared__ uint4 shared[];
  auto* const stages = reinterpret_cast<typename W::Stage*>(shared);
  const SeqRows seq = a.step.seqs[blockIdx.z];
  const int head = blockIdx.y, dim = static_cast<int>(a.delta.head_dim), lane = threadIdx.x % 32;
  auto& exchange = *reinterpret_cast<typename W::Exchange*>(stages + 2);
  const int warp = threadIdx.x / 32, part = warp % 2;
  const int row = static_cast<int>(blockIdx.x * W::kRows) + warp / 2 * 16 + lane / 4;
  typename W::State state;
  const auto each_pair = [&](const auto& act) {  // of columns of the state that exist
#pragma unroll
    for (int i = 0; i < W::kColumns / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + 8 * half, col = part * W::kColumns + 8 * i + lane % 4 * 2;
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
  const int first_token = 8 * (kTiles / 2 * part) + lane % 4 * 2;
  const int64_t token_floats = static_cast<int64_t>(a.delta.v_heads) * dim;
  float* to_out = a.out + (seq.first_row + first_token) * token_floats + static_cast<int64_t>(head) * dim + row;
  wait_for_previous_kernel();
  if (chunks > 0) load_stage<kWidth>(stages[0], a, slot, chunk(0));
  for (int c = 0; c < chunks; ++c) {
    copy_async_wait<0>();
    __syncthreads();  // the stage has arrived, and the one before it has been used
    float out[kTiles / 2][4];
    walk_chunk<kWidth>(stages[c % 2], exchange, state, out, [&] {
      if (c + 1 < chunks) load_stage<kWidth>(stages[(c + 1) % 2], a, slot + c + 1, chunk(c + 1));
    });
    const int rows = chunk(c).rows - first_token;
#pragma unroll
    for (int i = 0; i < kTiles / 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = 8 * i + e % 2, r = e / 2 * 8;
        if (t < rows && row + r < dim) to_out[t * token_floats + r] = out[i][e];
      }
    }
    to_out += kChunk * token_floats;
  }
  float* const to = a.state.delta + seq.state_out * a.state.delta_floats;
  each_pair([&](float& x, float& y, int64_t at) { *reinterpret_cast<float2*>(to + at) = {x, y}; });
}

#endif

template <int kWidth>
__global__ void __launch_bounds__(kOpenThreads, 4) open_chunks_kernel(const __grid_constant__ ChunkArgs a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  let_next_kernel_start();
  open_chunk<kWidth>(a);
#endif
}

template <int kWidth>
__global__ void __launch_bounds__(Walk<kWidth>::kBlock) walk_chunks_kernel(const __grid_constant__ ChunkArgs a) {
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
  const auto most = static_cast<size_t>(most_shared_memory());
  const bool fits = with_width(args, [=]<int kWidth>() { return Walk<kWidth>::kShared <= most; });
  return compute_capability >= 80 && args.head_dim <= 128 && fits;
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
           dim3(static_cast<unsigned>(slots), static_cast<unsigned>(args.k_heads),
                blocks(args.v_heads, kOpenWarps * args.k_heads)),
           kOpenThreads, 0, s, a);
    static const cudaError_t raised = cudaFuncSetAttribute(
        walk_chunks_kernel<kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(W::kShared));
    check_launch(raised, "delta_walk");
    launch("delta_walk", walk_chunks_kernel<kWidth>,
           dim3(blocks(args.head_dim, W::kRows), heads, static_cast<unsigned>(n_seqs)), W::kBlock, W::kShared, s, a);
  });
}

}  // namespace tern::cuda
