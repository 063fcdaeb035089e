// A head of a row on its way from a projection into attention: its norm, its rotary embedding, its place in a page.
// Device code; a warp takes a head, whose values of a lane are 32 apart.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/ops.h"

namespace tern::cuda {

inline __device__ char* page_of(const KvView& kv, const DeviceStep& step, const SeqRows& seq, int32_t page) {
  return kv.base + static_cast<int64_t>(step.pages[seq.first_page + page]) * kv.page_bytes;
}

/// Where the keys (or values) of KV head `head` begin in a page.
inline __device__ char* head_of(const KvView& kv, char* page, bool keys, int head) {
  return page + (keys ? head * kv.k_head_bytes : kv.v_offset + head * kv.v_head_bytes);
}

/// Weights of a head's norm. No kernel writes them: they are read while the kernel before ends.
template <int kDim>
struct HeadNorm {
  float weights[kDim / 32];
  __device__ void read(const HeadInput& from, int dim, int lane) {
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      if (from.norm && lane + 32 * j < dim) weights[j] = from.norm[lane + 32 * j];
    }
  }
};

/// Head `head` of row `row` to x [dim], shared memory of the warp. What a lane reads is on its way together.
template <int kDim>
__device__ void compute_head(const HeadInput& from, const AttendInputs& in, int64_t row, int head, int dim,
                             const HeadNorm<kDim>& norm, int lane, float* x) {
  constexpr int kValues = kDim / 32;
  const int pairs = static_cast<int>(in.pairs), turned = from.angles ? 2 * pairs : 0;
  const auto pair_of = [&](int i) { return !in.neox ? i / 2 : i < pairs ? i : i - pairs; };
  const float* const source = from.x + row * from.row_stride + head * from.head_stride;
  const float2* const angles = from.angles + row * pairs;
  float mine[kValues];
  float2 angle[kValues];
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    const int i = lane + 32 * j;
    if (i < dim) mine[j] = source[i];
    if (i < turned) angle[j] = angles[pair_of(i)];
  }
  if (from.norm) {
    float part = 0;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      if (lane + 32 * j < dim) part += mine[j] * mine[j];
    }
    double sum = part;
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    const auto factor = static_cast<float>(rsqrt(sum * (1.0 / dim) + from.eps));
#pragma unroll
    for (int j = 0; j < kValues; ++j) mine[j] = mine[j] * factor * norm.weights[j];
  }
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    if (lane + 32 * j < dim) x[lane + 32 * j] = mine[j];
  }
  __syncwarp();
  if (turned == 0) return;
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    const int i = lane + 32 * j;
    if (i >= turned) continue;
    const bool second = in.neox ? i >= pairs : i % 2 == 1;
    const float other = x[!in.neox ? i ^ 1 : second ? i - pairs : i + pairs];
    mine[j] = second ? other * angle[j].y + mine[j] * angle[j].x : mine[j] * angle[j].x - other * angle[j].y;
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kValues; ++j) {
    if (lane + 32 * j < turned) x[lane + 32 * j] = mine[j];
  }
  __syncwarp();
}

/// A warp writes 32 values of one head of one token.
inline __device__ void write_32(char* head, PageType type, int token, int64_t dim, int64_t first, float x, int lane) {
  const int64_t at = token * dim + first + lane;
  const bool inside = first + lane < dim;
  if (type == PageType::kF32) {
    if (inside) reinterpret_cast<float*>(head)[at] = x;
  } else if (type == PageType::kF16) {
    if (inside) reinterpret_cast<__half*>(head)[at] = __float2half_rn(x);
  } else {  // as quant::encode_block of Q8_0
    float top = fabsf(x);
    for (int other = 16; other > 0; other /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, other));
    const float d = top / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
    reinterpret_cast<int8_t*>(head)[at] = static_cast<int8_t>(fminf(fmaxf(roundf(x * inverse), -127.0f), 127.0f));
    if (lane == 0)
      reinterpret_cast<__half*>(head + kPageTokens * dim)[token * (dim / 32) + first / 32] = __float2half_rn(d);
  }
}

/// The key (or value) x [dim] of KV head `head` to its place, token `token` of the page.
inline __device__ void write_head(const KvView& kv, char* page, bool is_key, int head, int token, int dim,
                                  const float* x, int lane) {
  char* const to = head_of(kv, page, is_key, head);
#pragma unroll 1
  for (int first = 0; first < dim; first += 32) {  // one copy of what writes
    const int i = first + lane;
    write_32(to, is_key ? kv.k_type : kv.v_type, token, dim, first, i < dim ? x[i] : 0.0f, lane);
  }
}

}  // namespace tern::cuda
