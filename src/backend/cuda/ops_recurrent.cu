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

template <int kTaps>
__global__ void conv_kernel(const float* x, const float* kernel, DeviceStep step, int64_t channels, StateView state,
                            float* out) {
  begin_kernel();
  const int64_t c = thread_index();
  if (c >= channels) return;
  const SeqRows seq = step.seqs[blockIdx.y];
  constexpr int kPast = kTaps - 1;
  float window[kTaps], taps[kTaps];
  for (int t = 0; t < kTaps; ++t) taps[t] = kernel[c * kTaps + t];
  for (int t = 0; t < kPast; ++t)
    window[t] = seq.state_in == kZeroState ? 0.0f : state.conv[seq.state_in * state.conv_floats + t * channels + c];
  x += seq.first_row * channels + c;
  out += seq.first_row * channels + c;
#pragma unroll 8
  for (int32_t r = 0; r < seq.n_rows; ++r) {
    window[kPast] = x[r * channels];
    float sum = 0;
    for (int t = 0; t < kTaps; ++t) sum += taps[t] * window[t];
    out[r * channels] = sum * sigmoid(sum);
    for (int t = 0; t < kPast; ++t) window[t] = window[t + 1];
  }
  for (int t = 0; t < kPast; ++t) state.conv[seq.state_out * state.conv_floats + t * channels + c] = window[t];
}

template <int kTaps = 2>
void launch_conv(int64_t taps, dim3 grid, cudaStream_t s, const float* x, const float* kernel, const DeviceStep& step,
                 int64_t channels, const StateView& state, float* out) {
  if constexpr (kTaps <= kMostTaps) {
    if (taps == kTaps) {
      launch("conv", conv_kernel<kTaps>, grid, kConvThreads, 0, s, x, kernel, step, channels, state, out);
    } else {
      launch_conv<kTaps + 1>(taps, grid, s, x, kernel, step, channels, state, out);
    }
  }
}

// ---- Delta rule ----

// A row of S (one value dimension of one head) lies in the registers of kLanes threads, as chunks of four floats that
// the threads take in turn: loads and shared memory are then read without conflicts. Rows are independent, and with
// kLanes = 8 a sum over a row is three shuffles.
constexpr int kLanes = 8;
constexpr int kDeltaThreads = 128;
constexpr int kRowsABlock = kDeltaThreads / kLanes;
constexpr int kTokens = 8;  // keys and queries staged in shared memory at a time

__device__ float lanes_sum(float v) {
  for (int lane = kLanes / 2; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
  return v;
}

__device__ double softplus(double x) {
  return x > 20 ? x : log1p(exp(x));
}

/// l2_norm of staged keys and queries: a warp a row, `width` float4 each (zeros behind the head).
__device__ void normalise_rows(float4* keys, float4* queries, int tokens, int width, float eps) {
  for (int i = threadIdx.x / 32; i < 2 * tokens; i += kDeltaThreads / 32) {
    float4* const row = (i < tokens ? keys + i * width : queries + (i - tokens) * width);
    double sum = 0;
    for (int c = threadIdx.x % 32; c < width; c += 32) {
      const float4 v = row[c];
      sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    const auto factor = static_cast<float>(1.0 / fmax(sqrt(sum), static_cast<double>(eps)));
    for (int c = threadIdx.x % 32; c < width; c += 32) {
      const float4 v = row[c];
      row[c] = {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
    }
  }
}

/// kChunks chunks of 4 * kLanes floats hold a row: head_dim <= 32 * kChunks.
template <int kChunks>
__global__ void __launch_bounds__(kDeltaThreads)
    delta_kernel(DeltaArgs a, DeviceStep step, StateView state, float* out) {
  begin_kernel();
  constexpr int kWidth = 4 * kLanes * kChunks;
  __shared__ float4 keys[kTokens][kWidth / 4], queries[kTokens][kWidth / 4];
  __shared__ float decays[kTokens], betas[kTokens];
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
    if (threadIdx.x < tokens) {
      const int64_t at = (first + threadIdx.x) * a.v_heads + head;
      decays[threadIdx.x] =
          static_cast<float>(exp(a.a[head] * softplus(static_cast<double>(a.alpha[at]) + a.dt[head])));
      betas[threadIdx.x] = sigmoid(a.beta[at]);
    }
    __syncthreads();
    if (a.normalise) {
      normalise_rows(&keys[0][0], &queries[0][0], tokens, kWidth / 4, a.eps);
      __syncthreads();
    }
    for (int t = 0; t < tokens; ++t) {
      const int64_t in_row = static_cast<int64_t>(head) * dim + row;
      const float v = alive ? a.v[(first + t) * a.v_stride + in_row] : 0.0f;
      const float decay = decays[t];
      float memory = 0;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const float4 k = keys[t][lane + kLanes * c];
        s[c] = {s[c].x * decay, s[c].y * decay, s[c].z * decay, s[c].w * decay};
        memory += s[c].x * k.x + s[c].y * k.y + s[c].z * k.z + s[c].w * k.w;
      }
      const float delta = (v - lanes_sum(memory)) * betas[t];
      float read = 0;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const float4 k = keys[t][lane + kLanes * c], q = queries[t][lane + kLanes * c];
        s[c] = {s[c].x + delta * k.x, s[c].y + delta * k.y, s[c].z + delta * k.z, s[c].w + delta * k.w};
        read += s[c].x * q.x + s[c].y * q.y + s[c].z * q.z + s[c].w * q.w;
      }
      read = lanes_sum(read);
      if (alive && lane == 0) out[(first + t) * a.v_heads * dim + in_row] = read * inverse_root;
    }
  }
  for (int c = 0; c < kChunks; ++c) {
    const int at = 4 * (lane + kLanes * c);
    if (alive && at < dim)
      *reinterpret_cast<float4*>(state.delta + seq.state_out * state.delta_floats + row_offset + at) = s[c];
  }
}

}  // namespace

void conv_silu(cudaStream_t s, const float* x, const float* kernel, const DeviceStep& step, int64_t n_seqs,
               int64_t channels, int64_t taps, const StateView& state, float* out) {
  if (n_seqs == 0) return;
  const dim3 grid(blocks(channels, kConvThreads), static_cast<unsigned>(n_seqs));
  launch_conv(taps, grid, s, x, kernel, step, channels, state, out);
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
