// Rotating and rounding the activations of products that are launched by themselves (matrix_chain.h does what it can in
// theirs) and whose norm is not left to them (matrix_prepare_one.cu): a block takes a span of a row.
#include <algorithm>

#include "backend/cuda/gates.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_columns.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_prepare.h"
#include "backend/cuda/matrix_rotate.h"
#include "backend/cuda/mma.h"

namespace tern::cuda {
namespace {

constexpr int64_t kMostSpan = 4096;
constexpr int64_t kManyRows = 64;  // from here on a block takes a whole row, so that its norm is found once

/// H of blocks of `block` elements that lie in the span, times `factor`; `shared` has two buffers of a float4 a thread,
/// used for blocks of more than 128.
__device__ void transform(Four& x, int block, float factor, float4* shared) {
  for (float& v : x.v) v = __fmul_rn(v, factor);
  if (block >= 128) return transform_span(x, block, shared, shared + blockDim.x);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (block > 1) {
    butterfly(x.v[0], x.v[1]);
    butterfly(x.v[2], x.v[3]);
  }
  if (block > 2) {
    butterfly(x.v[0], x.v[2]);
    butterfly(x.v[1], x.v[3]);
  }
  for (int lanes = 1; lanes * 4 < block; lanes *= 2) {
    const bool upper = lane & lanes;
    for (float& v : x.v) {
      const float other = __shfl_xor_sync(~0u, v, lanes);
      v = upper ? other - v : v + other;
    }
  }
}

/// Where column `in_head` of head h stands in a row.
__device__ int place_in_head(const Columns& c, unsigned h, int in_head) {
  if (c.rep > 1) {
    const unsigned rep = static_cast<unsigned>(c.rep), group = h / rep;
    h = static_cast<unsigned>(c.k_heads) * (h - group * rep) + group;
  }
  return c.offset + static_cast<int>(h) * c.stride + in_head;
}
/// The same of column `col` where dim is a power of two or 0.
__device__ int place_of(const Columns& c, int col) {
  if (c.dim == 0) return col;
  return place_in_head(c, static_cast<unsigned>(col) >> (31 - __clz(c.dim)), col & (c.dim - 1));
}

/// Four columns of a row from `col` on; zeros behind its end.
__device__ Four read_columns(const float* row, const Columns& c, int col, int cols) {
  Four x{};
  if (c.dim > 0) row += place_in_head(c, static_cast<unsigned>(col / c.dim), col % c.dim) - col;
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
__device__ void write_columns(float* row, const Four& x, int col, int cols) {
  if (col + 4 <= cols && reinterpret_cast<uintptr_t>(row + col) % 16 == 0) {
    *reinterpret_cast<float4*>(row + col) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    return;
  }
  for (int i = 0; i < 4; ++i) {
    if (col + i < cols) row[col + i] = x.v[i];
  }
}

/// The factor of a norm over the whole row, which every block of the row finds for itself; 1 without one.
__device__ float row_factor(const PrepareArgs& p, int64_t row) {
  const Source& s = p.source;
  if (!s.norm || s.group != p.cols) return 1.0f;
  __shared__ double parts[32];
  constexpr int kAhead = 6;  // loads under way together
  const int span = static_cast<int>(blockDim.x) * 4, cols = static_cast<int>(p.cols);
  double sum = 0;
  for (int col = static_cast<int>(threadIdx.x) * 4; col < cols; col += kAhead * span) {
    Four x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      x[i] = Four{};
      if (col + i * span < cols) x[i] = read_columns(s.x + row * s.x_stride, s.x_columns, col + i * span, cols);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum += square(x[i]);
  }
  sum = sum_of_lanes(sum, 32);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0;
  return norm_factor(sum_of_lanes(sum, 32), p.reciprocal, s.eps);
}

/// What a thread multiplies its four columns by; no kernel writes it, so it is read before the inputs are there.
struct Constants {
  Four norm, signs;
};
__device__ Constants read_constants(const PrepareArgs& p, int col) {
  Constants c{};
  const Source& s = p.source;
  const int cols = static_cast<int>(p.cols);
  if (col >= cols) return c;
  if (s.norm) c.norm = read_columns(s.norm, Columns{}, s.group == cols ? col : col % s.group, s.group);
  if (p.signs) c.signs = read_columns(p.signs, Columns{}, col % static_cast<int>(p.width), static_cast<int>(p.width));
  return c;
}

/// Four columns of the source. All lanes of a warp come along. `factor`: of a norm over the row.
__device__ Four read_source(const PrepareArgs& p, int64_t row, int col, float factor, const Constants& constants) {
  const Source& s = p.source;
  const int cols = static_cast<int>(p.cols);
  Four x{}, g{};
  if (col < cols) x = read_columns(s.x + row * s.x_stride, s.x_columns, col, cols);
  if (s.gate && col < cols) g = read_columns(s.gate + row * s.gate_stride, s.gate_columns, col, cols);
  if (s.norm) {
    if (s.group != cols) factor = norm_factor(sum_of_lanes(square(x), s.group / 4), 1.0 / s.group, s.eps);
    for (int i = 0; i < 4; ++i) x.v[i] = x.v[i] * factor * constants.norm.v[i];
  }
  if (s.gate) {
    for (int i = 0; i < 4; ++i) x.v[i] *= gate_of(s.gate_kind, g.v[i]);
  }
  if (s.plain && col < cols) write_columns(s.plain + row * cols, x, col, cols);
  return x;
}

/// Four columns of the source, rotated. `shared`: as for transform().
__device__ Four load_span(const PrepareArgs& p, int64_t row, int col, float row_factor, const Constants& constants,
                          float4* shared) {
  Four x = read_source(p, row, col, row_factor, constants);
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
__device__ void store(const PrepareArgs& p, int64_t row, int col, const Four& x, float multiplier) {
  const uint32_t packed = round_columns(x, multiplier);
  if (col >= p.q_stride) return;
  const int64_t at = p.together > 0 ? lane_place(row, col / 128, col % 128, p.together)
                                    : act_piece(row, col / 128, col % 128 / 16, p.q_stride) + col % 16;
  *reinterpret_cast<uint32_t*>(p.q + at) = packed;
}

__device__ int64_t scale_place(const PrepareArgs& p, int64_t row, int col) {
  const int columns = p.group == 32 ? 32 : 128;
  if (p.together > 0) return static_cast<int64_t>(col / columns) * p.together + row;
  return columns == 32 ? (row * p.q_stride + col) / 32 : col / 128 * p.stride + row;
}

/// Rounds four columns a thread under a scale a group of columns.
__device__ void round_span(const PrepareArgs& p, int64_t row, int col, const Four& x, float* most) {
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

/// Blocks: x: row, y: span of it; those of few rows have one span each.
__global__ void __launch_bounds__(1024) prepare_kernel(const __grid_constant__ PrepareArgs p) {
  extern __shared__ float4 shared[];
  __shared__ float most[32];
  const int span = static_cast<int>(blockDim.x) * 4, limit = static_cast<int>(p.q ? p.q_stride : p.cols);
  const int64_t row = blockIdx.x;
  int col = static_cast<int>(blockIdx.y) * span + static_cast<int>(threadIdx.x) * 4;
  Constants constants = read_constants(p, col);
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float factor = row_factor(p, row);
  for (int begin = static_cast<int>(blockIdx.y) * span; begin < limit; begin += static_cast<int>(gridDim.y) * span) {
    const Four x = load_span(p, row, col, factor, constants, shared);
    if (!p.out) {
      round_span(p, row, col, x, most);
    } else if (col < p.cols) {
      write_columns(p.out + row * p.cols, x, col, static_cast<int>(p.cols));
    }
    col += static_cast<int>(gridDim.y) * span;
    if (begin + static_cast<int>(gridDim.y) * span < limit) constants = read_constants(p, col);
    if (p.block > 128) __syncthreads();  // the exchange buffers have been read
  }
}

/// One scale a row: a block a row, of which kKept spans stay in registers; what is longer is read twice.
template <int kKept>
__global__ void __launch_bounds__(1024) prepare_row_kernel(const __grid_constant__ PrepareArgs p) {
  extern __shared__ float4 shared[];
  __shared__ float most[32];
  const int span = static_cast<int>(blockDim.x) * 4;
  const int64_t row = blockIdx.x;
  Four kept[std::max(kKept, 1)];
  float amax = 0;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float factor = row_factor(p, row);
  const auto load = [&](int at) {
    const int col = at + static_cast<int>(threadIdx.x) * 4;
    const Four x = load_span(p, row, col, factor, read_constants(p, col), shared);
    if (p.block > 128) __syncthreads();  // the exchange buffers have been read
    return x;
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    kept[i] = Four{};
    if (i * span < p.cols) kept[i] = load(i * span);
    amax = fmaxf(amax, magnitude_of(kept[i]));
  }
  for (int at = kKept * span; at < p.cols; at += span) amax = fmaxf(amax, magnitude_of(load(at)));
  amax = most_of_lanes(amax, 32);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = amax;
  __syncthreads();
  for (unsigned i = 0; i < blockDim.x / 32; ++i) amax = fmaxf(amax, most[i]);
  const float multiplier = row_multiplier(amax);
  if (threadIdx.x == 0) p.multipliers[row] = multiplier;
  const auto round = [&](int at, const Four& x) {
    const int col = at + static_cast<int>(threadIdx.x) * 4;
    store(p, row, col, x, multiplier);
    if (col < p.q_stride && threadIdx.x % 32 == 0) p.scales[scale_place(p, row, col)] = 1.0f;
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (i * span < p.q_stride) round(i * span, kept[i]);
  }
  for (int at = kKept * span; at < p.q_stride; at += span) round(at, load(at));
}

/// The same for few rows of whole chunks at aligned addresses, in as few instructions as can be: it runs once for every
/// product of a decode step, whose instructions come from far away each time. Blocks: x: row, y: span of it.
__global__ void __launch_bounds__(512) prepare_few_kernel(const __grid_constant__ PrepareArgs p) {
  extern __shared__ float4 shared[];  // little: the next product's rings come up beside it
  __shared__ double squares[16];
  __shared__ float most[16];
  const Source& s = p.source;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32,
            span = static_cast<int>(blockDim.x) * 4, cols = static_cast<int>(p.cols),
            col = static_cast<int>(blockIdx.y) * span + tid * 4;
  const int64_t row = blockIdx.x;
  const bool in = col < cols, row_norm = s.norm && s.group == cols;
  const auto read = [&](const float* from, int at) {
    float4 v{0, 0, 0, 0};
    if (in) v = *reinterpret_cast<const float4*>(from + at);
    return Four{v.x, v.y, v.z, v.w};
  };
  Four norm{}, signs{};
  if (s.norm) norm = read(s.norm, row_norm ? col : col & (s.group - 1));
  if (p.signs) signs = read(p.signs, p.width == cols ? col : col % static_cast<int>(p.width));
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float* const from = s.x + row * s.x_stride;
  Four x = read(from, place_of(s.x_columns, col)), gate{};
  if (s.gate) gate = read(s.gate + row * s.gate_stride, place_of(s.gate_columns, col));
  if (s.norm) {
    double sum = 0;
    if (row_norm) {
      constexpr int kAhead = 5;  // reads on their way together
      for (int at = tid * 4; at < cols; at += kAhead * span) {
        float4 v[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i)  // behind the end the first columns, which are not counted
          v[i] = *reinterpret_cast<const float4*>(from + (at + i * span < cols ? at + i * span : 0));
#pragma unroll
        for (int i = 0; i < kAhead; ++i) sum += at + i * span < cols ? square(Four{v[i].x, v[i].y, v[i].z, v[i].w}) : 0;
      }
      sum = sum_of_lanes(sum, 32);
      if (lane == 0) squares[warp] = sum;
      __syncthreads();
      sum = sum_of_lanes(lane * 32 < static_cast<int>(blockDim.x) ? squares[lane] : 0.0, 32);
    } else {
      sum = sum_of_lanes(square(x), s.group / 4);
    }
    const float factor = norm_factor(sum, row_norm ? p.reciprocal : 1.0 / s.group, s.eps);
    for (int i = 0; i < 4; ++i) x.v[i] = x.v[i] * factor * norm.v[i];
  }
  if (s.gate) {
    for (int i = 0; i < 4; ++i) x.v[i] *= gate_of(s.gate_kind, gate.v[i]);
  }
  if (s.plain && in) *reinterpret_cast<float4*>(s.plain + row * cols + col) = {x.v[0], x.v[1], x.v[2], x.v[3]};
  if (p.block > 0) {
    // not to be fused with the sums that follow: the bits are quant::rotate's
    for (int i = 0; i < 4; ++i) x.v[i] = __fmul_rn(x.v[i], p.signs ? signs.v[i] * p.factor : p.factor);
    transform_span(x, static_cast<int>(p.block), shared, shared + blockDim.x);
  }
  float largest = largest_of_warp(magnitude_of(x));
  if (p.group == 256) {
    if (lane == 0) most[warp] = largest;
    __syncthreads();
    largest = fmaxf(largest, most[warp ^ 1]);
  }
  if (col >= p.q_stride) return;
  const GroupScale by = group_scale(largest);
  *reinterpret_cast<uint32_t*>(p.q + lane_place(row, col / 128, col % 128, p.together)) =
      round_columns(x, by.multiplier);
  if (lane == 0) p.scales[static_cast<int64_t>(col / 128) * p.together + row] = by.scale;
}

constexpr int kManyThreads = 256, kManySpan = kManyThreads * 4, kMostSpans = 5;
template <int kSpans>
constexpr int kManyBlocks = kSpans == 1 ? 4 : 2;  // of a multiprocessor

/// Spans of a row, of which the first begins at column `begin` for this thread, to their places, and with the first
/// span of the row the zeros behind it.
template <int kSpans>
__device__ __forceinline__ void round_spans(const PrepareArgs& p, int64_t row, int begin, const Four (&x)[kSpans]) {
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, cols = static_cast<int>(p.cols);
  float largest = 0;  // lane i's is span i's: divisions take longer than this
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    const float of_span = largest_of_warp(magnitude_of(x[i]));
    if (kSpans == 1 || lane == i) largest = of_span;
  }
  const GroupScale by = group_scale(largest);
  int8_t* const to = p.q + act_piece(row, begin / 128, begin % 128 / 16, p.q_stride) + begin % 16;
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    const int col = begin + i * kManySpan;
    if (col >= cols) continue;  // a warp at a time
    const float multiplier = kSpans == 1 ? by.multiplier : __shfl_sync(~0u, by.multiplier, i);
    *reinterpret_cast<uint32_t*>(to + i * (kManySpan / 128 * kActChunkBytes)) = round_columns(x[i], multiplier);
    if (lane == (kSpans == 1 ? 0 : i)) p.scales[scale_place(p, row, col)] = by.scale;
  }
  if (blockIdx.y != 0) return;
  for (int col = cols + tid * 4; col < p.q_stride; col += kManySpan) {
    *reinterpret_cast<uint32_t*>(p.q + act_piece(row, col / 128, col % 128 / 16, p.q_stride) + col % 16) = 0;
    if (lane == 0) p.scales[scale_place(p, row, col)] = 0;
  }
}

/// The same for many rows: a thread keeps its columns and their constants, and reads a row while it computes the one
/// before. kSpans spans are a row, whose norm is found here, or, without such a norm, one span of it.
/// Blocks: x: rows_a_block rows; y: span of them.
template <int kSpans>
__global__ void __launch_bounds__(kManyThreads, kManyBlocks<kSpans>)
    prepare_many_kernel(const __grid_constant__ PrepareArgs p, int rows_a_block) {
  __shared__ float4 exchange[2][kSpans * kManyThreads];
  __shared__ double squares[2][kManyThreads / 32];
  constexpr bool kRowNorm = kSpans > 1;
  const Source& s = p.source;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32, cols = static_cast<int>(p.cols),
            begin = static_cast<int>(blockIdx.y) * kManySpan + tid * 4;
  const auto column = [&](int i) { return begin + i * kManySpan; };
  const auto read = [&](const float* from, int at, int i) {
    float4 v{0, 0, 0, 0};
    if (column(i) < cols) v = *reinterpret_cast<const float4*>(from + at);
    return Four{v.x, v.y, v.z, v.w};
  };
  Four norm[kSpans], signs[kSpans];
#pragma unroll
  for (int i = 0; i < kSpans; ++i) {
    norm[i] = signs[i] = Four{};
    if (s.norm) norm[i] = read(s.norm, kRowNorm ? column(i) : column(i) & (s.group - 1), i);
    if (p.signs) signs[i] = read(p.signs, p.width == cols ? column(i) : column(i) % static_cast<int>(p.width), i);
    for (float& v : signs[i].v) v = p.signs ? v * p.factor : p.factor;
  }
  const int x_at = kRowNorm ? begin : place_of(s.x_columns, begin), gate_at = place_of(s.gate_columns, begin);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows_a_block, end = min(first + rows_a_block, p.rows);
  Four next[kSpans], next_gate{};
  const auto read_row = [&](int64_t row) {
#pragma unroll
    for (int i = 0; i < kSpans; ++i) next[i] = read(s.x + row * s.x_stride, x_at + i * kManySpan, i);
    if (!kRowNorm && s.gate) next_gate = read(s.gate + row * s.gate_stride, gate_at, 0);
  };
  float4 *one = exchange[0], *other = exchange[1];
  let_next_kernel_start();
  wait_for_previous_kernel();
  read_row(first);
  for (int64_t row = first; row < end; ++row) {
    Four x[kSpans];
#pragma unroll
    for (int i = 0; i < kSpans; ++i) x[i] = next[i];
    const Four gate = next_gate;
    if (row + 1 < end) read_row(row + 1);
    if (s.norm) {
      double sum = 0;
      if constexpr (kRowNorm) {
        double* const parts = squares[row % 2];
#pragma unroll
        for (int i = 0; i < kSpans; ++i) sum += square(x[i]);
        sum = sum_of_lanes(sum, 32);
        if (lane == 0) parts[warp] = sum;
        __syncthreads();
        sum = sum_of_lanes(parts[lane % (kManyThreads / 32)], kManyThreads / 32);
      } else {
        sum = sum_of_lanes(square(x[0]), s.group / 4);
      }
      const float factor = norm_factor(sum, kRowNorm ? p.reciprocal : 1.0 / s.group, s.eps);
#pragma unroll
      for (int i = 0; i < kSpans; ++i) {
        for (int k = 0; k < 4; ++k) x[i].v[k] = x[i].v[k] * factor * norm[i].v[k];
      }
    }
    if (!kRowNorm && s.gate) {
      for (int k = 0; k < 4; ++k) x[0].v[k] *= gate_of(s.gate_kind, gate.v[k]);
    }
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      if (s.plain && column(i) < cols)
        *reinterpret_cast<float4*>(s.plain + row * cols + column(i)) = {x[i].v[0], x[i].v[1], x[i].v[2], x[i].v[3]};
      for (int k = 0; p.block > 0 && k < 4; ++k) x[i].v[k] = __fmul_rn(x[i].v[k], signs[i].v[k]);
    }
    if (p.block > 0) transform_spans(x, static_cast<int>(p.block), one, other);
    round_spans(p, row, begin, x);
  }
}

/// Whole chunks at aligned addresses, rounded in groups of them.
bool takes_whole_chunks(const PrepareArgs& p) {
  const Source& s = p.source;
  const auto aligned = [](const float* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  const auto power = [](int64_t n) { return (n & (n - 1)) == 0; };
  return p.q && p.group >= 128 && p.cols % 128 == 0 && !p.inverse &&
         (p.block == 0 || (p.block >= 128 && p.block <= 2048)) && s.x_stride % 4 == 0 && s.gate_stride % 4 == 0 &&
         aligned(s.x) && aligned(s.norm) && aligned(s.gate) && aligned(s.plain) && aligned(p.signs) &&
         power(s.x_columns.dim) && power(s.gate_columns.dim);
}

bool has_row_norm(const PrepareArgs& p) {
  return p.source.norm && p.source.group == p.cols;
}
bool many_kernel_takes(const PrepareArgs& p) {
  return takes_whole_chunks(p) && p.together == 0 && p.group == 128 && p.block <= kManySpan &&
         (!has_row_norm(p) || (!p.source.gate && p.source.x_columns.dim == 0 && p.cols <= kMostSpans * kManySpan));
}

/// As many blocks as run at the same time, so that each keeps its constants for all of its rows.
template <int kSpans>
void launch_many(cudaStream_t stream, const PrepareArgs& p) {
  const int64_t spans = kSpans > 1 ? 1 : (p.cols + kManySpan - 1) / kManySpan;
  const int64_t resident = multiprocessors() * kManyBlocks<kSpans>;
  const int64_t groups = std::clamp<int64_t>(resident / spans, 1, p.rows), rows = (p.rows + groups - 1) / groups;
  launch("prepare", prepare_many_kernel<kSpans>, dim3(blocks(p.rows, rows), static_cast<unsigned>(spans)), kManyThreads,
         0, stream, p, static_cast<int>(rows));
}
}  // namespace

void launch_prepare(cudaStream_t stream, const PrepareArgs& p) {
  const bool by_row = p.q && p.group == 0;
  const bool wide = by_row && p.block == 0 && p.rows < kManyRows;  // few rows: the latency of one counts
  const int64_t least = wide ? std::min((p.cols + 127) / 128 * 128, kMostSpan) : kLeastSpan;
  const int64_t span = std::max(p.block, least);
  const auto threads = static_cast<unsigned>(span / 4);
  const size_t shared = p.block > 128 ? threads * 2 * sizeof(float4) : 0;
  const bool whole_rows = by_row || (p.source.norm && p.source.group == p.cols && p.rows >= kManyRows);
  const dim3 grid(static_cast<unsigned>(p.rows), whole_rows ? 1u : blocks(p.q ? p.q_stride : p.cols, span));
  if (many_kernel_takes(p))
    return (!has_row_norm(p)          ? launch_many<1>
            : p.cols <= 3 * kManySpan ? launch_many<3>
                                      : launch_many<kMostSpans>)(stream, p);
  if (takes_whole_chunks(p) && p.rows < kManyRows && p.together > 0)
    return launch("prepare", prepare_few_kernel, grid, threads, shared, stream, p);
  // With rows kept in registers a prompt of BitNet 2B went from 62,500 to 46,700 tokens/s.
  const auto kernel = !by_row ? prepare_kernel : p.rows < kManyRows ? prepare_row_kernel<2> : prepare_row_kernel<0>;
  launch("prepare", kernel, grid, threads, shared, stream, p);
}

}  // namespace tern::cuda
