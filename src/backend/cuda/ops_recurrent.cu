// The recurrences of a gated delta net: a causal convolution and the delta rule. Both keep a sequence's state in
// registers while they go through its rows, so that one launch serves a prompt and a decode step. A Step's description
// and the states before it are there before the first kernel of the Step: they are read while the kernel before ends.
#include "backend/cuda/delta_gates.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

// ---- Convolution: a thread a channel of a sequence ----

constexpr int kConvThreads = 128;
constexpr int32_t kConvRows = 32;  // of a sequence that a block takes, when it does not take all

/// Inputs of the convolution at row r of the sequence; rows before it are its history, oldest first.
template <int kTaps>
__device__ float conv_input(const float* x, const float* history, int64_t channels, int64_t r) {
  constexpr int kPast = kTaps - 1;
  return r >= 0 ? x[r * channels] : history ? history[(kPast + r) * channels] : 0.0f;
}
__device__ const float* history_of(const StateView& state, const SeqRows& seq, int64_t channel) {
  return seq.state_in == kZeroState ? nullptr : state.conv + seq.state_in * state.conv_floats + channel;
}

/// Rows [begin, begin + rows_a_block) of a sequence. With all of them in one block also the history for the next step:
/// then nobody else reads the old one.
template <int kTaps>
__global__ void conv_kernel(const float* x, const float* kernel, DeviceStep step, int64_t channels, StateView state,
                            int32_t rows_a_block, bool all_rows, float* out) {
  let_next_kernel_start();
  const int64_t c = thread_index();
  if (c >= channels) return;
  const SeqRows seq = step.seqs[blockIdx.y];
  const int32_t begin = blockIdx.z * rows_a_block, end = all_rows ? seq.n_rows : min(begin + rows_a_block, seq.n_rows);
  if (begin >= end) return;
  constexpr int kPast = kTaps - 1;
  const float* const history = history_of(state, seq, c);
  x += seq.first_row * channels + c;
  out += seq.first_row * channels + c;
  float window[kTaps], taps[kTaps];
  for (int t = 0; t < kTaps; ++t) taps[t] = kernel[c * kTaps + t];
  for (int t = 0; begin == 0 && t < kPast; ++t) window[t] = history ? history[t * channels] : 0.0f;
  wait_for_previous_kernel();
  for (int t = 0; begin > 0 && t < kPast; ++t) window[t] = conv_input<kTaps>(x, history, channels, begin - kPast + t);
#pragma unroll 8
  for (int32_t r = begin; r < end; ++r) {
    window[kPast] = x[r * channels];
    float sum = 0;
    for (int t = 0; t < kTaps; ++t) sum += taps[t] * window[t];
    out[r * channels] = sum * sigmoid(sum);
    for (int t = 0; t < kPast; ++t) window[t] = window[t + 1];
  }
  if (!all_rows) return;
  for (int t = 0; t < kPast; ++t) state.conv[seq.state_out * state.conv_floats + t * channels + c] = window[t];
}

/// The history after the rows of every sequence.
template <int kTaps>
__global__ void conv_history_kernel(const float* x, DeviceStep step, int64_t channels, StateView state) {
  begin_kernel();
  const int64_t c = thread_index();
  if (c >= channels) return;
  const SeqRows seq = step.seqs[blockIdx.y];
  constexpr int kPast = kTaps - 1;
  float kept[kPast];
  for (int t = 0; t < kPast; ++t)
    kept[t] = conv_input<kTaps>(x + seq.first_row * channels + c, history_of(state, seq, c), channels,
                                seq.n_rows - kPast + t);
  for (int t = 0; t < kPast; ++t) state.conv[seq.state_out * state.conv_floats + t * channels + c] = kept[t];
}

struct Conv {
  const float *x, *kernel;
  const DeviceStep& step;
  int64_t rows, n_seqs, channels;
  const StateView& state;
  float* out;
};

template <int kTaps = 2>
void launch_conv(int64_t taps, cudaStream_t s, const Conv& c) {
  if constexpr (kTaps <= kMostTaps) {
    if (taps != kTaps) return launch_conv<kTaps + 1>(taps, s, c);
    const unsigned columns = blocks(c.channels, kConvThreads), seqs = static_cast<unsigned>(c.n_seqs);
    const bool all_rows = c.rows <= kConvRows * c.n_seqs;
    const dim3 grid(columns, seqs, all_rows ? 1 : blocks(c.rows, kConvRows));
    launch("conv", conv_kernel<kTaps>, grid, kConvThreads, 0, s, c.x, c.kernel, c.step, c.channels, c.state, kConvRows,
           all_rows, c.out);
    if (!all_rows)
      launch("conv_history", conv_history_kernel<kTaps>, dim3(columns, seqs), kConvThreads, 0, s, c.x, c.step,
             c.channels, c.state);
  }
}

// ---- Delta rule ----

// A row of S (one value dimension of one head) lies in the registers of kLanes threads, as chunks of four floats that
// the threads take in turn; a thread has the same columns of kRows rows, so that what it reads of keys and queries
// serves all of them. Keys, queries and values of kTokens tokens are staged in shared memory while the tokens before
// are worked on.
constexpr int kLanes = 4, kRows = 2, kDeltaThreads = 64;
constexpr int kRowsABlock = kDeltaThreads / kLanes * kRows;

__device__ float lanes_sum(float v) {
  for (int lane = kLanes / 2; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
  return v;
}
__device__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ void add_products(float4& sum, const float4& a, const float4& b) {
  sum = {sum.x + a.x * b.x, sum.y + a.y * b.y, sum.z + a.z * b.z, sum.w + a.w * b.w};
}
__device__ float total(const float4& v) {
  return (v.x + v.y) + (v.z + v.w);
}

/// kWidth: columns of a row, zeros behind the head.
template <int kWidth>
struct DeltaStage {
  static constexpr int kTokens = kWidth > 128 ? 4 : 16;
  float4 keys[kTokens][kWidth / 4], queries[kTokens][kWidth / 4], values[kTokens][kRowsABlock / 4];
  float decays[kTokens], betas[kTokens];
  float products[kTokens];  // of the key and the query
};

/// Starts the copies of `tokens` tokens from row `first` on, and finds their decays.
template <int kWidth>
__device__ void load_stage(DeltaStage<kWidth>& stage, const DeltaArgs& a, int64_t first, int tokens) {
  const int head = blockIdx.y, dim = static_cast<int>(a.head_dim), first_row = blockIdx.x * kRowsABlock;
  const int64_t k_offset = static_cast<int64_t>(head % a.k_heads) * dim,
                v_offset = static_cast<int64_t>(head) * dim + first_row;
  for (int i = threadIdx.x; i < tokens * (kWidth / 4); i += kDeltaThreads) {
    const int t = i / (kWidth / 4), chunk = i % (kWidth / 4);
    const bool inside = 4 * chunk < dim;
    const int64_t at = k_offset + (inside ? 4 * chunk : 0);
    copy_async16(&stage.keys[t][chunk], a.k + (first + t) * a.k_stride + at, inside);
    copy_async16(&stage.queries[t][chunk], a.q + (first + t) * a.q_stride + at, inside);
  }
  for (int i = threadIdx.x; i < tokens * (kRowsABlock / 4); i += kDeltaThreads) {
    const int t = i / (kRowsABlock / 4), chunk = i % (kRowsABlock / 4);
    const bool inside = first_row + 4 * chunk < dim;
    copy_async16(&stage.values[t][chunk], a.v + (first + t) * a.v_stride + v_offset + (inside ? 4 * chunk : 0), inside);
  }
  copy_async_commit();
  if (threadIdx.x < tokens) {
    const DeltaGates gates = delta_gates(a, first + threadIdx.x, head);
    stage.decays[threadIdx.x] = expf(gates.log_decay);
    stage.betas[threadIdx.x] = gates.beta;
  }
}

/// Keys and queries of kTogether tokens that have arrived: l2_norm of both where asked for, and their product.
template <int kTogether, int kWidth>
__device__ void prepare_tokens(DeltaStage<kWidth>& stage, const DeltaArgs& a, int begin) {
  constexpr int kPieces = (kWidth / 4 + 31) / 32;
  const int lane = threadIdx.x % 32;
  float sums[kTogether][3] = {};  // k k, q q, k q
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    for (int c = lane; c < kWidth / 4; c += 32) {
      const float4 k = stage.keys[begin + i][c], q = stage.queries[begin + i][c];
      sums[i][0] += dot(k, k);
      sums[i][1] += dot(q, q);
      sums[i][2] += dot(k, q);
    }
  }
  for (int other = 16; other > 0; other /= 2) {
#pragma unroll
    for (int i = 0; i < kTogether * 3; ++i) sums[i / 3][i % 3] += __shfl_xor_sync(~0u, sums[i / 3][i % 3], other);
  }
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const float k_factor = a.normalise ? 1.0f / fmaxf(sqrtf(sums[i][0]), a.eps) : 1.0f;
    const float q_factor = a.normalise ? 1.0f / fmaxf(sqrtf(sums[i][1]), a.eps) : 1.0f;
    for (int j = 0; a.normalise && j < kPieces; ++j) {
      const int c = lane + 32 * j;
      if (c >= kWidth / 4) break;
      float4 &k = stage.keys[begin + i][c], &q = stage.queries[begin + i][c];
      k = {k.x * k_factor, k.y * k_factor, k.z * k_factor, k.w * k_factor};
      q = {q.x * q_factor, q.y * q_factor, q.z * q_factor, q.w * q_factor};
    }
    if (lane == 0) stage.products[begin + i] = sums[i][2] * k_factor * q_factor;
  }
}
template <int kWidth>
__device__ void prepare_stage(DeltaStage<kWidth>& stage, const DeltaArgs& a, int tokens) {
  constexpr int kTogether = 4;
  const int warp = threadIdx.x / 32;
  if (tokens == 1) {
    if (warp == 0) prepare_tokens<1>(stage, a, 0);
    return;
  }
  for (int begin = warp * kTogether; begin < tokens; begin += kDeltaThreads / 32 * kTogether)
    prepare_tokens<kTogether>(stage, a, begin);
}

/// One token on the rows of a thread. The read-out of the new state is found from the old one: (decay S + delta k) q =
/// decay (S q) + delta (k q), so that both sums over a row are on their way together.
template <int kChunks, int kWidth>
__device__ void delta_token(const DeltaStage<kWidth>& stage, int t, int lane, int row, float4 (&s)[kRows][kChunks],
                            float (&read)[kRows]) {
  float4 k[kChunks], of_k[kRows] = {}, of_q[kRows] = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    k[c] = stage.keys[t][lane + kLanes * c];
    const float4 q = stage.queries[t][lane + kLanes * c];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      add_products(of_k[r], s[r][c], k[c]);
      add_products(of_q[r], s[r][c], q);
    }
  }
  const float decay = stage.decays[t], beta = stage.betas[t], product = stage.products[t];
  const auto* values = reinterpret_cast<const float*>(stage.values[t]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float memory = lanes_sum(total(of_k[r])) * decay, seen = lanes_sum(total(of_q[r])) * decay;
    const float delta = (values[row + r] - memory) * beta;
    read[r] = seen + delta * product;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      s[r][c] = {s[r][c].x * decay + delta * k[c].x, s[r][c].y * decay + delta * k[c].y,
                 s[r][c].z * decay + delta * k[c].z, s[r][c].w * decay + delta * k[c].w};
    }
  }
}

/// The rows of S that a thread of the block has, kChunks chunks of 4 * kLanes floats each, and where they lie.
template <int kChunks>
struct StateRows {
  float4 s[kRows][kChunks];
  int head, dim, row, lane;
  __device__ StateRows(const DeltaArgs& a)
      : head(static_cast<int>(blockIdx.y)),
        dim(static_cast<int>(a.head_dim)),
        row(static_cast<int>(blockIdx.x * kRowsABlock + threadIdx.x / kLanes * kRows)),
        lane(static_cast<int>(threadIdx.x % kLanes)) {}
  __device__ int64_t place(int r, int c) const {
    return (static_cast<int64_t>(head) * dim + row + r) * dim + 4 * (lane + kLanes * c);
  }
  __device__ bool inside(int r, int c) const { return row + r < dim && 4 * (lane + kLanes * c) < dim; }
  __device__ void load(const StateView& state, int32_t slot) {
#pragma unroll
    for (int i = 0; i < kRows * kChunks; ++i) {
      const int r = i / kChunks, c = i % kChunks;
      s[r][c] = {0, 0, 0, 0};
      if (inside(r, c) && slot != kZeroState)
        s[r][c] = *reinterpret_cast<const float4*>(state.delta + slot * state.delta_floats + place(r, c));
    }
  }
  __device__ void store(const StateView& state, int32_t slot) const {
#pragma unroll
    for (int i = 0; i < kRows * kChunks; ++i) {
      const int r = i / kChunks, c = i % kChunks;
      if (inside(r, c)) *reinterpret_cast<float4*>(state.delta + slot * state.delta_floats + place(r, c)) = s[r][c];
    }
  }
};

/// One row a sequence, as in a decode step: every thread reads what it needs of the row for itself, so that nothing is
/// exchanged but sums over rows of S. Blocks: x: rows of a head, y: head, z: sequence.
template <int kChunks>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_row_kernel(const __grid_constant__ DeltaArgs a, DeviceStep step, StateView state, float* out) {
  let_next_kernel_start();
  const SeqRows seq = step.seqs[blockIdx.z];
  StateRows<kChunks> rows(a);
  const int dim = rows.dim, row = rows.row, lane = rows.lane;
  rows.load(state, seq.state_in);
  const float inverse_root = 1.0f / sqrtf(static_cast<float>(dim));
  wait_for_previous_kernel();
  const int64_t token = seq.first_row, of_key = static_cast<int64_t>(rows.head % a.k_heads) * dim,
                of_value = static_cast<int64_t>(rows.head) * dim + row;
  const auto read = [&](const float* from, int c) {
    const int col = 4 * (lane + kLanes * c);
    return col < dim ? *reinterpret_cast<const float4*>(from + col) : float4{0, 0, 0, 0};
  };
  float4 k[kChunks], q[kChunks];
  float values[kRows];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    k[c] = read(a.k + token * a.k_stride + of_key, c);
    q[c] = read(a.q + token * a.q_stride + of_key, c);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) values[r] = row + r < dim ? a.v[token * a.v_stride + of_value + r] : 0.0f;
  const DeltaGates gates = delta_gates(a, token, rows.head);

  float4 kk{}, qq{}, kq{}, of_k[kRows] = {}, of_q[kRows] = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    add_products(kk, k[c], k[c]);
    add_products(qq, q[c], q[c]);
    add_products(kq, k[c], q[c]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      add_products(of_k[r], rows.s[r][c], k[c]);
      add_products(of_q[r], rows.s[r][c], q[c]);
    }
  }
  const auto factor = [&](const float4& squares) {
    const float sum = lanes_sum(total(squares));
    return a.normalise ? 1.0f / fmaxf(sqrtf(sum), a.eps) : 1.0f;
  };
  const float k_factor = factor(kk), q_factor = factor(qq), product = lanes_sum(total(kq)) * k_factor * q_factor,
              decay = expf(gates.log_decay);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float memory = lanes_sum(total(of_k[r])) * k_factor * decay,
                seen = lanes_sum(total(of_q[r])) * q_factor * decay;
    const float delta = (values[r] - memory) * gates.beta, step_of_k = delta * k_factor;
    if (lane == 0 && row + r < dim)
      out[token * a.v_heads * dim + of_value + r] = (seen + delta * product) * inverse_root;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      float4& s = rows.s[r][c];
      s = {s.x * decay + step_of_k * k[c].x, s.y * decay + step_of_k * k[c].y, s.z * decay + step_of_k * k[c].z,
           s.w * decay + step_of_k * k[c].w};
    }
  }
  rows.store(state, seq.state_out);
}

/// Blocks: x: rows of a head, y: head, z: sequence.
template <int kChunks>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(const __grid_constant__ DeltaArgs a, DeviceStep step, StateView state, float* out) {
  let_next_kernel_start();
  constexpr int kWidth = 4 * kLanes * kChunks;
  using Stage = DeltaStage<kWidth>;
  __shared__ Stage stages[2];
  const SeqRows seq = step.seqs[blockIdx.z];
  StateRows<kChunks> rows(a);
  const int head = rows.head, dim = rows.dim, lane = rows.lane, row = rows.row, in_block = threadIdx.x / kLanes * kRows;
  rows.load(state, seq.state_in);
  wait_for_previous_kernel();
  load_stage(stages[0], a, seq.first_row, min(Stage::kTokens, seq.n_rows));
  const float inverse_root = 1.0f / sqrtf(static_cast<float>(dim));
  int now = 0;
  for (int32_t begin = 0; begin < seq.n_rows; begin += Stage::kTokens, now ^= 1) {
    const int tokens = min(Stage::kTokens, seq.n_rows - begin), next = begin + Stage::kTokens;
    copy_async_wait<0>();
    __syncthreads();  // the stage has arrived, and the one before it has been used
    if (next < seq.n_rows) load_stage(stages[now ^ 1], a, seq.first_row + next, min(Stage::kTokens, seq.n_rows - next));
    prepare_stage(stages[now], a, tokens);
    __syncthreads();
    for (int t = 0; t < tokens; ++t) {
      float read[kRows];
      delta_token<kChunks>(stages[now], t, lane, in_block, rows.s, read);
      const int64_t at = ((static_cast<int64_t>(seq.first_row) + begin + t) * a.v_heads + head) * dim + row;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (lane == 0 && row + r < dim) out[at + r] = read[r] * inverse_root;
      }
    }
  }
  rows.store(state, seq.state_out);
}

}  // namespace

void conv_silu(cudaStream_t s, const float* x, const float* kernel, const DeviceStep& step, int64_t rows,
               int64_t n_seqs, int64_t channels, int64_t taps, const StateView& state, float* out) {
  if (n_seqs > 0) launch_conv(taps, s, {x, kernel, step, rows, n_seqs, channels, state, out});
}

void delta_rule(cudaStream_t s, const DeltaArgs& args, const DeviceStep& step, int64_t rows, int64_t n_seqs,
                const StateView& state, float* out) {
  if (n_seqs == 0) return;
  const dim3 grid(blocks(args.head_dim, kRowsABlock), static_cast<unsigned>(args.v_heads),
                  static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch("delta", kernel, grid, kDeltaThreads, 0, s, args, step, state, out); };
  const bool one_each = rows == n_seqs;
  if (args.head_dim <= 32) {
    start(one_each ? delta_row_kernel<2> : delta_kernel<2>);
  } else if (args.head_dim <= 64) {
    start(one_each ? delta_row_kernel<4> : delta_kernel<4>);
  } else if (args.head_dim <= 128) {
    start(one_each ? delta_row_kernel<8> : delta_kernel<8>);
  } else {
    start(delta_kernel<16>);
  }
}

}  // namespace tern::cuda
