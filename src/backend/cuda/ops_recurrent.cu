// The recurrences of a gated delta net: a causal convolution and the delta rule. Both keep a sequence's state in
// registers while they go through its rows, so that one launch serves a prompt and a decode step.
#include <cmath>

#include "backend/cuda/launch.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

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
  begin_kernel();
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
  for (int t = 0; t < kPast; ++t) window[t] = conv_input<kTaps>(x, history, channels, begin - kPast + t);
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
// the threads take in turn: loads and shared memory are then read without conflicts. Rows are independent, and with
// kLanes = 8 a sum over a row is three shuffles.
constexpr int kLanes = 8;
constexpr int kDeltaThreads = 128;
constexpr int kRowsABlock = kDeltaThreads / kLanes;
constexpr int kTokens = 16;  // keys, queries and values staged in shared memory at a time

__device__ float lanes_sum(float v) {
  for (int lane = kLanes / 2; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
  return v;
}

__device__ double softplus(double x) {
  return x > 20 ? x : log1p(exp(x));
}

__device__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ float warp_sum(float v) {
  for (int other = 16; other > 0; other /= 2) v += __shfl_xor_sync(~0u, v, other);
  return v;
}

/// Staged keys and queries, a warp a token, `width` float4 each (zeros behind the head): l2_norm of both where asked
/// for, and their product.
__device__ void prepare_rows(float4* keys, float4* queries, float* products, int tokens, int width, bool normalise,
                             float eps) {
  for (int t = threadIdx.x / 32; t < tokens; t += kDeltaThreads / 32) {
    float4 *const k = keys + t * width, *const q = queries + t * width;
    float kk = 0, qq = 0, kq = 0;
    for (int c = threadIdx.x % 32; c < width; c += 32) {
      kk += dot(k[c], k[c]);
      qq += dot(q[c], q[c]);
      kq += dot(k[c], q[c]);
    }
    kq = warp_sum(kq);
    if (normalise) {
      const float k_factor = 1.0f / fmaxf(sqrtf(warp_sum(kk)), eps), q_factor = 1.0f / fmaxf(sqrtf(warp_sum(qq)), eps);
      for (int c = threadIdx.x % 32; c < width; c += 32) {
        k[c] = {k[c].x * k_factor, k[c].y * k_factor, k[c].z * k_factor, k[c].w * k_factor};
        q[c] = {q[c].x * q_factor, q[c].y * q_factor, q[c].z * q_factor, q[c].w * q_factor};
      }
      kq *= k_factor * q_factor;
    }
    if (threadIdx.x % 32 == 0) products[t] = kq;
  }
}

/// kChunks chunks of 4 * kLanes floats hold a row: head_dim <= 32 * kChunks.
template <int kChunks>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(DeltaArgs a, DeviceStep step, StateView state, float* out) {
  begin_kernel();
  constexpr int kWidth = 4 * kLanes * kChunks;
  __shared__ float4 keys[kTokens][kWidth / 4], queries[kTokens][kWidth / 4];
  __shared__ float decays[kTokens], betas[kTokens], products[kTokens], values[kTokens][kRowsABlock];
  const SeqRows seq = step.seqs[blockIdx.z];
  const int head = blockIdx.y, k_head = head % a.k_heads, dim = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % kLanes, row = blockIdx.x * kRowsABlock + threadIdx.x / kLanes;
  const bool alive = row < dim;
  const int64_t row_offset = (static_cast<int64_t>(head) * dim + row) * dim;

  float4 s[kChunks];
  for (int c = 0; c < kChunks; ++c) {
    const int at = 4 * (lane + kLanes * c);
    s[c] = {0, 0, 0, 0};
    if (alive && at < dim && seq.state_in != kZeroState)
      s[c] = *reinterpret_cast<const float4*>(state.delta + seq.state_in * state.delta_floats + row_offset + at);
  }
  const int in_block = threadIdx.x / kLanes;
  const float inverse_root = 1.0f / sqrtf(static_cast<float>(dim));
  for (int32_t begin = 0; begin < seq.n_rows; begin += kTokens) {
    const int tokens = min(kTokens, seq.n_rows - begin);
    const int64_t first = seq.first_row + begin;
    __syncthreads();  // the tokens before are no longer read
    for (int i = threadIdx.x; i < tokens * (kWidth / 4); i += kDeltaThreads) {
      const int t = i / (kWidth / 4), chunk = i % (kWidth / 4);
      const int64_t at = k_head * dim + 4 * chunk;
      const bool inside = 4 * chunk < dim;
      const auto load = [&](const float* row, int64_t stride) {
        return inside ? *reinterpret_cast<const float4*>(row + (first + t) * stride + at) : float4{0, 0, 0, 0};
      };
      keys[t][chunk] = load(a.k, a.k_stride);
      queries[t][chunk] = load(a.q, a.q_stride);
    }
    for (int i = threadIdx.x; i < tokens * kRowsABlock; i += kDeltaThreads) {
      const int t = i / kRowsABlock, r = blockIdx.x * kRowsABlock + i % kRowsABlock;
      values[t][i % kRowsABlock] =
          r < dim ? a.v[(first + t) * a.v_stride + static_cast<int64_t>(head) * dim + r] : 0.0f;
    }
    if (threadIdx.x < tokens) {
      const int64_t at = (first + threadIdx.x) * a.v_heads + head;
      decays[threadIdx.x] =
          static_cast<float>(exp(a.a[head] * softplus(static_cast<double>(a.alpha[at]) + a.dt[head])));
      betas[threadIdx.x] = sigmoid(a.beta[at]);
    }
    __syncthreads();
    prepare_rows(&keys[0][0], &queries[0][0], products, tokens, kWidth / 4, a.normalise, a.eps);
    __syncthreads();
    for (int t = 0; t < tokens; ++t) {
      // The read-out of the new state, from the old one: (decay S + delta k) q = decay (S q) + delta (k q). Both sums
      // over the row are then on their way together.
      float4 memory{0, 0, 0, 0}, read{0, 0, 0, 0};
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const float4 k = keys[t][lane + kLanes * c], q = queries[t][lane + kLanes * c];
        memory = {memory.x + s[c].x * k.x, memory.y + s[c].y * k.y, memory.z + s[c].z * k.z, memory.w + s[c].w * k.w};
        read = {read.x + s[c].x * q.x, read.y + s[c].y * q.y, read.z + s[c].z * q.z, read.w + s[c].w * q.w};
      }
      const float decay = decays[t];
      const float of_k = lanes_sum((memory.x + memory.y) + (memory.z + memory.w)) * decay;
      const float of_q = lanes_sum((read.x + read.y) + (read.z + read.w)) * decay;
      const float delta = (values[t][in_block] - of_k) * betas[t];
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const float4 k = keys[t][lane + kLanes * c];
        s[c] = {s[c].x * decay + delta * k.x, s[c].y * decay + delta * k.y, s[c].z * decay + delta * k.z,
                s[c].w * decay + delta * k.w};
      }
      if (alive && lane == 0)
        out[((first + t) * a.v_heads + head) * dim + row] = (of_q + delta * products[t]) * inverse_root;
    }
  }
  for (int c = 0; c < kChunks; ++c) {
    const int at = 4 * (lane + kLanes * c);
    if (alive && at < dim)
      *reinterpret_cast<float4*>(state.delta + seq.state_out * state.delta_floats + row_offset + at) = s[c];
  }
}

}  // namespace

void conv_silu(cudaStream_t s, const float* x, const float* kernel, const DeviceStep& step, int64_t rows,
               int64_t n_seqs, int64_t channels, int64_t taps, const StateView& state, float* out) {
  if (n_seqs > 0) launch_conv(taps, s, {x, kernel, step, rows, n_seqs, channels, state, out});
}

void delta_rule(cudaStream_t s, const DeltaArgs& args, const DeviceStep& step, int64_t n_seqs, const StateView& state,
                float* out) {
  if (n_seqs == 0) return;
  const dim3 grid(blocks(args.head_dim, kRowsABlock), static_cast<unsigned>(args.v_heads),
                  static_cast<unsigned>(n_seqs));
  if (args.head_dim <= 32) {
    launch("delta", delta_kernel<1>, grid, kDeltaThreads, 0, s, args, step, state, out);
  } else if (args.head_dim <= 64) {
    launch("delta", delta_kernel<2>, grid, kDeltaThreads, 0, s, args, step, state, out);
  } else if (args.head_dim <= 128) {
    launch("delta", delta_kernel<4>, grid, kDeltaThreads, 0, s, args, step, state, out);
  } else {
    launch("delta", delta_kernel<8>, grid, kDeltaThreads, 0, s, args, step, state, out);
  }
}

}  // namespace tern::cuda
