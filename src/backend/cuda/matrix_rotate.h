// The Hadamard transform of a span of a row: butterflies run in registers (strides 1, 2), between lanes (4 .. 64) and
// between warps (128 ..). Every pair is added and subtracted as quant::walsh_hadamard does it, so the bits agree.
#pragma once
#include "backend/cuda/matrix_columns.h"

namespace tern::cuda {

inline __device__ void butterfly(float& a, float& b) {
  const float sum = a + b, difference = a - b;
  a = sum, b = difference;
}

/// H of blocks of 128 to 4 blockDim elements, of kSpans spans at once; `one` and `other` hold kSpans float4 a thread,
/// and are named so that a next call may follow without a barrier. A product with -1 or 1 is exact: a sum with it is
/// the sum or the difference.
template <int kSpans>
__device__ __forceinline__ void transform_spans(Four (&x)[kSpans], int block, float4*& one, float4*& other) {
  const int tid = static_cast<int>(threadIdx.x), threads_a_span = static_cast<int>(blockDim.x);
#pragma unroll
  for (Four& f : x) {
    butterfly(f.v[0], f.v[1]);
    butterfly(f.v[2], f.v[3]);
    butterfly(f.v[0], f.v[2]);
    butterfly(f.v[1], f.v[3]);
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float sign = tid & lanes ? -1.0f : 1.0f;
      for (float& v : f.v) v = __fmaf_rn(v, sign, __shfl_xor_sync(~0u, v, lanes));
    }
  }
#pragma unroll 1
  for (int threads = 32; threads * 4 < block; threads *= 2) {
#pragma unroll
    for (int i = 0; i < kSpans; ++i) one[i * threads_a_span + tid] = {x[i].v[0], x[i].v[1], x[i].v[2], x[i].v[3]};
    __syncthreads();
    const float sign = tid & threads ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      const float4 o = one[i * threads_a_span + (tid ^ threads)];
      const float others[4] = {o.x, o.y, o.z, o.w};
      for (int k = 0; k < 4; ++k) x[i].v[k] = __fmaf_rn(x[i].v[k], sign, others[k]);
    }
    float4* const next = other;
    other = one;
    one = next;
  }
}
inline __device__ void transform_span(Four& x, int block, float4* one, float4* other) {
  Four spans[1] = {x};
  transform_spans(spans, block, one, other);
  x = spans[0];
}

}  // namespace tern::cuda
