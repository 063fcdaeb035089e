// What the kernels share that compute the activations of a product: columns of a row are read, normed, gated, rotated
// and rounded, four consecutive ones a thread. Butterflies of the Hadamard transform run in registers (strides 1, 2),
// between lanes (4 .. 64) and between warps (128 ..): every pair is added and subtracted as quant::walsh_hadamard does
// it, so the bits agree. Rounding follows quant::quantize_row to the last integer.
#pragma once
#include "backend/cuda/gates.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_prepare.h"
#include "quant/activation.h"

namespace tern::cuda {

struct Four {
  float v[4];
};

__device__ inline void butterfly(float& a, float& b) {
  const float sum = a + b, difference = a - b;
  a = sum, b = difference;
}

/// The part of H of blocks of `block` elements that pairs elements of one warp.
__device__ inline void transform_in_warp(Four& x, int block, float factor) {
  const int tid = static_cast<int>(threadIdx.x);
  for (float& v : x.v) v = __fmul_rn(v, factor);
  if (block > 1) {
    butterfly(x.v[0], x.v[1]);
    butterfly(x.v[2], x.v[3]);
  }
  if (block > 2) {
    butterfly(x.v[0], x.v[2]);
    butterfly(x.v[1], x.v[3]);
  }
  for (int lanes = 1; lanes < 32 && lanes * 4 < block; lanes *= 2) {
    const bool upper = tid & lanes;
    for (float& v : x.v) {
      const float other = __shfl_xor_sync(~0u, v, lanes);
      v = upper ? other - v : v + other;
    }
  }
}
/// What is left of it: pairs of threads `threads` apart, the other's elements being `other`.
__device__ inline void butterfly_between(Four& x, const float4& other, int threads) {
  const float o[4] = {other.x, other.y, other.z, other.w};
  const bool upper = static_cast<int>(threadIdx.x) & threads;
  for (int i = 0; i < 4; ++i) x.v[i] = upper ? o[i] - x.v[i] : x.v[i] + o[i];
}
/// H of blocks of `block` elements that lie in the span; `shared` has two buffers of a float4 a thread.
__device__ inline void transform(Four& x, int block, float factor, float4* shared) {
  transform_in_warp(x, block, factor);
  const int tid = static_cast<int>(threadIdx.x);
  int buffer = 0;
  for (int threads = 32; threads * 4 < block; threads *= 2, buffer ^= 1) {
    float4* const here = shared + buffer * static_cast<int>(blockDim.x);
    here[tid] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    __syncthreads();
    butterfly_between(x, here[tid ^ threads], threads);
  }
}

/// As transform(), of elements that have their factor, blocks of 128 to 4 blockDim elements.
__device__ inline void transform_span(Four& x, int block, float4* one, float4* other) {
  const int tid = static_cast<int>(threadIdx.x);
  butterfly(x.v[0], x.v[1]);
  butterfly(x.v[2], x.v[3]);
  butterfly(x.v[0], x.v[2]);
  butterfly(x.v[1], x.v[3]);
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const float sign = tid & lanes ? -1.0f : 1.0f;
    for (float& v : x.v) v = __fmaf_rn(v, sign, __shfl_xor_sync(~0u, v, lanes));
  }
#pragma unroll 1
  for (int threads = 32; threads * 4 < block; threads *= 2) {
    one[tid] = {x.v[0], x.v[1], x.v[2], x.v[3]};
    __syncthreads();
    const float4 o = one[tid ^ threads];
    const float sign = tid & threads ? -1.0f : 1.0f, others[4] = {o.x, o.y, o.z, o.w};
    for (int i = 0; i < 4; ++i) x.v[i] = __fmaf_rn(x.v[i], sign, others[i]);
    float4* const next = other;
    other = one;
    one = next;
  }
}

/// Where a column stands in a row (Columns); dim is a power of two or 0.
__device__ inline int place_of(const Columns& c, int col) {
  if (c.dim == 0) return col;
  unsigned h = static_cast<unsigned>(col) >> (31 - __clz(c.dim));
  const int in_head = col & (c.dim - 1);
  if (c.rep > 1) {
    const unsigned group = h / static_cast<unsigned>(c.rep);
    h = static_cast<unsigned>(c.k_heads) * (h - group * static_cast<unsigned>(c.rep)) + group;
  }
  return c.offset + static_cast<int>(h) * c.stride + in_head;
}

/// Four columns of a row from `col` on; zeros behind its end.
__device__ inline Four read_columns(const float* row, const Columns& c, int col, int cols) {
  Four x{};
  if (c.dim > 0) {
    int h = col / c.dim;
    const int in_head = col % c.dim;
    if (c.rep > 1) h = c.k_heads * (h % c.rep) + h / c.rep;
    row += c.offset + h * c.stride + in_head - col;
  }
  if (col + 4 <= cols && reinterpret_cast<uintptr_t>(row + col) % 16 == 0) {
    const float4 v = *reinterpret_cast<const float4*>(row + col);
    x.v[0] = v.x, x.v[1] = v.y, x.v[2] = v.z, x.v[3] = v.w;
    return x;
  }
  for (int i = 0; i < 4; ++i) {
    if (col + i < cols) x.v[i] = row[col + i];
  }
  return x;
}
__device__ inline void write_columns(float* row, const Four& x, int col, int cols) {
  if (col + 4 <= cols && reinterpret_cast<uintptr_t>(row + col) % 16 == 0) {
    *reinterpret_cast<float4*>(row + col) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    return;
  }
  for (int i = 0; i < 4; ++i) {
    if (col + i < cols) row[col + i] = x.v[i];
  }
}

__device__ inline double square(const Four& x) {
  return (static_cast<double>(x.v[0]) * x.v[0] + static_cast<double>(x.v[1]) * x.v[1]) +
         (static_cast<double>(x.v[2]) * x.v[2] + static_cast<double>(x.v[3]) * x.v[3]);
}
__device__ inline double sum_of_lanes(double v, int lanes) {
  for (int i = 1; i < lanes; i *= 2) v += __shfl_xor_sync(~0u, v, i);
  return v;
}
/// `reciprocal`: of the count of columns. The double is rounded to the float that a division and a root would give.
__device__ inline float norm_factor(double squares, double reciprocal, float eps) {
  return static_cast<float>(rsqrt(squares * reciprocal + eps));
}

/// What a thread multiplies its four columns by; no kernel writes it, so it is read before the inputs are there.
struct Constants {
  Four norm, signs;
};
__device__ inline Constants read_constants(const PrepareArgs& p, int col) {
  Constants c{};
  const Source& s = p.source;
  const int cols = static_cast<int>(p.cols);
  if (col >= cols) return c;
  if (s.norm) c.norm = read_columns(s.norm, Columns{}, s.group == cols ? col : col % s.group, s.group);
  if (p.signs) c.signs = read_columns(p.signs, Columns{}, col % static_cast<int>(p.width), static_cast<int>(p.width));
  return c;
}

/// What four columns are computed from.
struct Inputs {
  Four x, gate;
};
__device__ inline Inputs read_inputs(const PrepareArgs& p, int64_t row, int col) {
  const Source& s = p.source;
  const int cols = static_cast<int>(p.cols);
  Inputs in{};
  if (col < cols) in.x = read_columns(s.x + row * s.x_stride, s.x_columns, col, cols);
  if (s.gate && col < cols) in.gate = read_columns(s.gate + row * s.gate_stride, s.gate_columns, col, cols);
  return in;
}
/// Four columns of the source. All lanes of a warp come along. `factor`: of a norm over the row.
__device__ inline Four compute_source(const PrepareArgs& p, int64_t row, int col, const Inputs& in, float factor,
                                      const Constants& constants, bool write_plain) {
  const Source& s = p.source;
  const int cols = static_cast<int>(p.cols);
  Four x = in.x;
  if (s.norm) {
    if (s.group != cols) factor = norm_factor(sum_of_lanes(square(x), s.group / 4), 1.0 / s.group, s.eps);
    for (int i = 0; i < 4; ++i) x.v[i] = x.v[i] * factor * constants.norm.v[i];
  }
  if (s.gate) {
    for (int i = 0; i < 4; ++i) x.v[i] *= gate_of(s.gate_kind, in.gate.v[i]);
  }
  if (s.plain && write_plain && col < cols) write_columns(s.plain + row * cols, x, col, cols);
  return x;
}

__device__ inline float magnitude_of(const Four& x) {
  return fmaxf(fmaxf(fabsf(x.v[0]), fabsf(x.v[1])), fmaxf(fabsf(x.v[2]), fabsf(x.v[3])));
}
__device__ inline float most_of_lanes(float v, int lanes) {
  for (int i = 1; i < lanes; i *= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
  return v;
}

/// The largest of a warp's magnitudes: the bits of floats that are not negative are in their order.
__device__ __forceinline__ float largest_of_warp(float v) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(v)));
#else
  return most_of_lanes(v, 32);
#endif
}

/// Four columns as int8, the first in the low byte: to the nearest integer, ties to even, which an addition leaves in
/// the low byte of its result. The largest magnitude becomes 127.
__device__ inline uint32_t round_columns(const Four& x, float multiplier) {
  uint32_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = __float_as_uint(__fadd_rn(__fmul_rn(x.v[i], multiplier), 12582912.0f));
  return __byte_perm(__byte_perm(bytes[0], bytes[1], 0x0040), __byte_perm(bytes[2], bytes[3], 0x0040), 0x5410);
}
/// What a group whose largest magnitude is `most` is multiplied by before rounding, and what its integers stand for.
struct GroupScale {
  float multiplier, scale;
};
__device__ inline GroupScale group_scale(float most) {
  if (most < quant::kSmallestAmax) return {0.0f, 0.0f};
  return {__fdiv_rn(127.0f, most), __fdiv_rn(most, 127.0f)};
}
/// The multiplier of a whole row (kI8Row).
__device__ inline float row_multiplier(float most) {
  // 127.0 / max(1e-5, most) in double: a quotient of two floats is rounded alike, and 1e-5 is between two floats
  return most > 1e-5f ? __fdiv_rn(127.0f, most) : static_cast<float>(127.0 / 1e-5);
}

/// Four columns of the source, rotated. `shared`: as for transform().
__device__ inline Four load_span(const PrepareArgs& p, int64_t row, int col, float row_factor,
                                 const Constants& constants, float4* shared) {
  Four x = compute_source(p, row, col, read_inputs(p, row, col), row_factor, constants, true);
  if (p.block == 0) return x;
  const auto apply_signs = [&] {
    for (int i = 0; p.signs && i < 4; ++i) x.v[i] = __fmul_rn(x.v[i], constants.signs.v[i]);
  };
  if (!p.inverse) apply_signs();
  transform(x, static_cast<int>(p.block), p.factor, shared);
  if (p.inverse) apply_signs();
  return x;
}

/// The four integers of a thread to their place.
__device__ inline void store(const PrepareArgs& p, int64_t row, int col, const Four& x, float multiplier) {
  const uint32_t packed = round_columns(x, multiplier);
  if (col >= p.q_stride) return;
  const int64_t at = p.lane_order ? row * p.q_stride + col / 128 * 128 + act_position(col % 128)
                                  : act_piece(row, col / 128, col % 128 / 16, p.q_stride) + col % 16;
  *reinterpret_cast<uint32_t*>(p.q + at) = packed;
}

__device__ inline int64_t scale_place(const PrepareArgs& p, int64_t row, int col) {
  if (p.group == 32) return (row * p.q_stride + col) / 32;
  return p.lane_order ? (row * p.q_stride + col) / 128 : col / 128 * p.stride + row;
}

/// Rounds four columns a thread under a scale a group of columns.
__device__ inline void round_span(const PrepareArgs& p, int64_t row, int col, const Four& x, float* most) {
  float amax = most_of_lanes(magnitude_of(x), p.group == 32 ? 8 : 32);
  if (p.group == 256) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    __syncthreads();  // the span before has been rounded
    if (threadIdx.x % 32 == 0) most[warp] = amax;
    __syncthreads();
    amax = fmaxf(amax, most[warp ^ 1]);
  }
  const GroupScale by = group_scale(amax);
  store(p, row, col, x, by.multiplier);
  if (col < p.q_stride && threadIdx.x % (p.group == 32 ? 8 : 32) == 0) {
    p.scales[scale_place(p, row, col)] = p.group == 32 ? quant::half_scale(by.scale) : by.scale;
  }
}

}  // namespace tern::cuda
