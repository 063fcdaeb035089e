// A row's context in parts: how many there are, and how the last part to finish puts them together. Device code.
#pragma once
#include <cuda_runtime_api.h>

#include "backend/cuda/ops.h"

namespace tern::cuda {

constexpr float kLog2e = 1.4426950408889634f;  // scores are scaled by it: weights are powers of two

/// exp2(a - b) where both may be -infinity.
inline __device__ float weight_of(float a, float b) {
  return a == -INFINITY ? 0.0f : exp2f(a - b);
}

/// Parts of a context: whole pages, at most `most`. Few pages are one part: putting parts together costs as much as
/// reading some pages more.
inline __device__ int parts_of(int32_t pages, int64_t most) {
  constexpr int32_t kPagesOfOne = 4;
  return pages <= kPagesOfOne ? 1 : min(pages, static_cast<int32_t>(most));
}
/// Pages of part `part`.
inline __device__ int first_page_of(int32_t pages, int part, int parts) {
  return static_cast<int32_t>(static_cast<int64_t>(pages) * part / parts);
}

constexpr int kMostHeads = 16;  // query heads that a block takes

/// Sum of values weighted with exp2(score - top), not divided by the total of the weights.
struct Partial {
  float top = -INFINITY, total = 0, value = 0;
};

struct RowPart {
  const AttendShape& shape;
  int64_t row;
  int first_head, heads;  // of this block
  int parts, part;
  int64_t most_parts;
  float* scratch;    // attend_scratch_floats
  int32_t* counter;  // of the row and the block's heads
  float* out;
};

/// A block's results, sum_of(head, dim), to their place: the output when there is one part, otherwise the scratch, from
/// where the last block takes all parts in their order. All threads of the block come along.
template <typename SumOf>
__device__ void finish_row(const RowPart& r, SumOf sum_of) {
  __shared__ bool last;
  const int dim = static_cast<int>(r.shape.dim_v);
  const int64_t stride = dim + 2, first = r.row * r.shape.heads + r.first_head;
  float* const scratch = r.scratch + first * r.most_parts * stride;
  for (int i = threadIdx.x; i < r.heads * dim; i += blockDim.x) {
    const int h = i / dim, d = i % dim;
    const Partial sum = sum_of(h, d);
    if (r.parts == 1) {
      r.out[(first + h) * dim + d] = sum.value / sum.total;
      continue;
    }
    float* const to = scratch + (h * r.most_parts + r.part) * stride;
    to[d] = sum.value;
    if (d == 0) {
      to[dim] = sum.top;
      to[dim + 1] = sum.total;
    }
  }
  if (r.parts == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)  // wraps to 0 with the last part: ready for the next launch
    last = atomicInc(reinterpret_cast<unsigned*>(r.counter), r.parts - 1) == static_cast<unsigned>(r.parts - 1);
  __syncthreads();
  if (!last) return;
  __threadfence();
  // What every part weighs, found once: part p of head h at [h * parts + p].
  __shared__ float weights[kMostHeads * kMostParts];
  const int pairs = r.heads * r.parts;
  for (int i = threadIdx.x; i < pairs; i += blockDim.x)
    weights[i] = __ldcg(scratch + (i / r.parts * r.most_parts + i % r.parts) * stride + dim);
  __syncthreads();
  for (int h = threadIdx.x / 32; h < r.heads; h += blockDim.x / 32) {
    const int lane = threadIdx.x % 32;
    float top = -INFINITY, total = 0;
    for (int p = lane; p < r.parts; p += 32) top = fmaxf(top, weights[h * r.parts + p]);
    for (int other = 16; other > 0; other /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, other));
    for (int p = lane; p < r.parts; p += 32) {
      float& w = weights[h * r.parts + p];
      w = weight_of(w, top);
      total += w * __ldcg(scratch + (h * r.most_parts + p) * stride + dim + 1);
    }
    for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(~0u, total, other);
    for (int p = lane; p < r.parts; p += 32) weights[h * r.parts + p] /= total;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < r.heads * dim / 2; i += blockDim.x) {
    const int h = i / (dim / 2), d = i % (dim / 2) * 2;
    const float* const from = scratch + h * r.most_parts * stride + d;
    float2 value{0, 0};
#pragma unroll 8
    for (int p = 0; p < r.parts; ++p) {
      const float w = weights[h * r.parts + p];
      const float2 v = __ldcg(reinterpret_cast<const float2*>(from + p * stride));
      value = {value.x + w * v.x, value.y + w * v.y};
    }
    *reinterpret_cast<float2*>(r.out + (first + h) * dim + d) = value;
  }
}

}  // namespace tern::cuda
