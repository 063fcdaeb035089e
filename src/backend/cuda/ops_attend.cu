// Attention over the paged cache: writing keys and values, and a row's attention with its context cut into parts.
#include <cuda_fp16.h>

#include <cmath>

#include "backend/cuda/attend_inputs.h"
#include "backend/cuda/attend_parts.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

constexpr int kInputWarps = 4;

/// A warp a head of a row: first the queries' (where there is something to do), then the keys', then the values'.
__global__ void inputs_kernel(AttendInputs in, DeviceStep step, int rows, AttendShape shape, KvView kv) {
  let_next_kernel_start();
  __shared__ float heads[kInputWarps][kMostHeadDim];
  const int q_heads = in.q.x ? static_cast<int>(shape.heads) : 0, kv_heads = static_cast<int>(shape.kv_heads),
            slots = q_heads + 2 * kv_heads, lane = static_cast<int>(threadIdx.x % 32),
            warp = static_cast<int>(blockIdx.x * kInputWarps + threadIdx.x / 32), row = warp / slots;
  if (row >= rows) return;
  int head = warp - row * slots;
  const bool is_query = head < q_heads, is_key = !is_query && head < q_heads + kv_heads;
  if (!is_query) head -= is_key ? q_heads : q_heads + kv_heads;
  const HeadInput& from = is_query ? in.q : is_key ? in.k : in.v;
  const int dim = static_cast<int>(is_query || is_key ? shape.dim_k : shape.dim_v);
  HeadNorm<kMostHeadDim> norm;
  norm.read(from, dim, lane);
  const int32_t position = step.positions[row];
  char* const page = page_of(kv, step, step.seqs[step.seq_of_row[row]], position / kPageTokens);
  wait_for_previous_kernel();
  float* const x = heads[threadIdx.x / 32];
  compute_head(from, in, row, head, dim, norm, lane, x);
  if (!is_query) return write_head(kv, page, is_key, head, position % kPageTokens, dim, x, lane);
  for (int i = lane; i < dim; i += 32) in.q_out[(row * shape.heads + head) * dim + i] = x[i];
}

/// Eight consecutive values of a token, as floats.
struct Eight {
  float x[8];
};
/// What is loaded, before it is converted: loads of several tokens can be under way together.
struct RawEight {
  uint32_t words[8];
  float scale;
};
__device__ void load_16(const char* from, uint32_t* to) {
  const uint4 w = *reinterpret_cast<const uint4*>(from);
  to[0] = w.x;
  to[1] = w.y;
  to[2] = w.z;
  to[3] = w.w;
}
__device__ RawEight load_8(const char* head, PageType type, int token, int dim, int first) {
  RawEight r;
  const int64_t at = static_cast<int64_t>(token) * dim + first;
  if (type == PageType::kF16) {
    load_16(head + 2 * at, r.words);
  } else if (type == PageType::kF32) {
    load_16(head + 4 * at, r.words);
    load_16(head + 4 * at + 16, r.words + 4);
  } else {
    const uint2 codes = *reinterpret_cast<const uint2*>(head + at);
    r.words[0] = codes.x;
    r.words[1] = codes.y;
    r.scale = __half2float(reinterpret_cast<const __half*>(head + kPageTokens * dim)[token * (dim / 32) + first / 32]);
  }
  return r;
}
__device__ Eight convert(const RawEight& r, PageType type) {
  Eight e;
  if (type == PageType::kF16) {
    for (int i = 0; i < 4; ++i) {
      const float2 f = __half22float2(reinterpret_cast<const __half2&>(r.words[i]));
      e.x[2 * i] = f.x;
      e.x[2 * i + 1] = f.y;
    }
  } else if (type == PageType::kF32) {
    for (int i = 0; i < 8; ++i) e.x[i] = __uint_as_float(r.words[i]);
  } else {
    for (int i = 0; i < 8; ++i) e.x[i] = static_cast<float>(static_cast<int8_t>(r.words[i / 4] >> i % 4 * 8)) * r.scale;
  }
  return e;
}

// ---- A row's attention ----

constexpr int kWarps = 4;
constexpr int kBatch = 2;  // tokens that a group of lanes loads before it uses the first

/// What one group of lanes, one block or one part knows: sums of values weighted with exp(score - top), not divided.
struct Softmax {
  float top = -INFINITY, total = 0;
};

/// One row, one KV head, kHeads of its query heads, one part of the context. kLanes lanes hold a token, 8 dims each.
template <int kHeads, int kLanes>
__global__ void __launch_bounds__(32 * kWarps)
    attend_kernel(const float* q, DeviceStep step, AttendShape shape, KvView kv, int64_t most_parts, float* scratch,
                  int32_t* counters, float* out) {
  begin_kernel();
  constexpr int kGroups = 32 / kLanes * kWarps;  // of lanes in the block
  __shared__ float sums[kGroups][kHeads][8 * kLanes];
  __shared__ Softmax softmaxes[kGroups][kHeads];
  const int64_t row = blockIdx.z;
  const int group_heads = shape.heads / shape.kv_heads, slices = (group_heads + kHeads - 1) / kHeads;
  const int kv_head = blockIdx.y / slices, slice = blockIdx.y % slices;
  const int first_head = kv_head * group_heads + slice * kHeads;
  const int heads = min(kHeads, group_heads - slice * kHeads);
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const int dim_k = static_cast<int>(shape.dim_k), dim_v = static_cast<int>(shape.dim_v), first = 8 * lane;

  const SeqRows seq = step.seqs[step.seq_of_row[row]];
  const int32_t seen = step.positions[row] + 1, pages = (seen + kPageTokens - 1) / kPageTokens;
  const int n_parts = parts_of(pages, most_parts);
  const int part = blockIdx.x;
  if (part >= n_parts) return;
  const int32_t page_begin = static_cast<int32_t>(static_cast<int64_t>(pages) * part / n_parts);
  const int32_t page_end = static_cast<int32_t>(static_cast<int64_t>(pages) * (part + 1) / n_parts);

  float query[kHeads][8], sum[kHeads][8];
  Softmax softmax[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < 8; ++i) {
      query[h][i] = h < heads && first + i < dim_k ? q[(row * shape.heads + first_head + h) * dim_k + first + i] : 0;
      query[h][i] *= shape.scale * kLog2e;
      sum[h][i] = 0;
    }
  }
  for (int32_t p = page_begin; p < page_end; ++p) {
    char* const page = page_of(kv, step, seq, p);
    const char *k_head = head_of(kv, page, true, kv_head), *v_head = head_of(kv, page, false, kv_head);
    const int tokens = min(kPageTokens, seen - p * kPageTokens);
    for (int begin = 0; begin < tokens; begin += kBatch * kGroups) {
      RawEight keys[kBatch], values[kBatch];
      for (int b = 0; b < kBatch; ++b) {
        const int token = begin + b * kGroups + group;
        if (token < tokens && first < dim_k) keys[b] = load_8(k_head, kv.k_type, token, dim_k, first);
        if (token < tokens && first < dim_v) values[b] = load_8(v_head, kv.v_type, token, dim_v, first);
      }
      float score[kBatch][kHeads];
      for (int b = 0; b < kBatch; ++b) {
        const bool alive = begin + b * kGroups + group < tokens;
        const Eight k = convert(keys[b], kv.k_type);
        for (int h = 0; h < kHeads; ++h) {
          float dot = 0;
          if (alive && first < dim_k) {
            for (int i = 0; i < 8; ++i) dot += query[h][i] * k.x[i];
          }
          for (int other = kLanes / 2; other > 0; other /= 2) dot += __shfl_xor_sync(~0u, dot, other);
          score[b][h] = alive ? dot : -INFINITY;
        }
      }
      for (int h = 0; h < kHeads; ++h) {
        float top = softmax[h].top;
        for (int b = 0; b < kBatch; ++b) top = fmaxf(top, score[b][h]);
        const float keep = weight_of(softmax[h].top, top);
        softmax[h].top = top;
        softmax[h].total *= keep;
        for (int i = 0; i < 8; ++i) sum[h][i] *= keep;
        for (int b = 0; b < kBatch; ++b) {
          score[b][h] = weight_of(score[b][h], top);
          softmax[h].total += score[b][h];
        }
      }
      for (int b = 0; b < kBatch; ++b) {
        if (begin + b * kGroups + group >= tokens || first >= dim_v) continue;
        const Eight v = convert(values[b], kv.v_type);
        for (int h = 0; h < kHeads; ++h) {
          for (int i = 0; i < 8; ++i) sum[h][i] += score[b][h] * v.x[i];
        }
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < 8; ++i) sums[group][h][first + i] = sum[h][i];
    if (lane == 0) softmaxes[group][h] = softmax[h];
  }
  __syncthreads();

  finish_row({.shape = shape,
              .row = row,
              .first_head = first_head,
              .heads = heads,
              .parts = n_parts,
              .part = part,
              .most_parts = most_parts,
              .scratch = scratch,
              .counter = counters + row * gridDim.y + blockIdx.y,
              .out = out},
             [&](int h, int d) {
               Partial sum;
               for (int g = 0; g < kGroups; ++g) sum.top = fmaxf(sum.top, softmaxes[g][h].top);
               for (int g = 0; g < kGroups; ++g) {
                 const float w = weight_of(softmaxes[g][h].top, sum.top);
                 sum.total += w * softmaxes[g][h].total;
                 sum.value += w * sums[g][h][d];
               }
               return sum;
             });
}

struct Attend {
  const float* q;
  const DeviceStep& step;
  int64_t rows;
  const AttendShape& shape;
  const KvView& kv;
  int64_t parts;
  float* scratch;
  int32_t* counters;
  float* out;
};

/// Query heads that one block takes: registers hold queries and sums of at most eight.
int heads_of(const AttendShape& shape) {
  const int group = shape.heads / shape.kv_heads;
  return group <= 1 ? 1 : group <= 2 ? 2 : group <= 4 ? 4 : group <= 6 ? 6 : 8;
}
int64_t slices_of(const AttendShape& shape) {
  return int64_t{shape.kv_heads} * blocks(shape.heads / shape.kv_heads, heads_of(shape));
}

template <int kHeads, int kLanes>
void launch_attend(cudaStream_t s, const Attend& a) {
  const dim3 grid(static_cast<unsigned>(a.parts), static_cast<unsigned>(slices_of(a.shape)),
                  static_cast<unsigned>(a.rows));
  launch("attend", attend_kernel<kHeads, kLanes>, grid, 32 * kWarps, 0, s, a.q, a.step, a.shape, a.kv, a.parts,
         a.scratch, a.counters, a.out);
}
template <int kHeads>
void launch_attend(cudaStream_t s, const Attend& a) {
  const int64_t dim = a.shape.dim_k > a.shape.dim_v ? a.shape.dim_k : a.shape.dim_v;
  if (dim <= 32) {
    launch_attend<kHeads, 4>(s, a);
  } else if (dim <= 64) {
    launch_attend<kHeads, 8>(s, a);
  } else if (dim <= 128) {
    launch_attend<kHeads, 16>(s, a);
  } else {
    launch_attend<kHeads, 32>(s, a);
  }
}

}  // namespace

void attend_inputs(cudaStream_t s, const AttendInputs& in, const DeviceStep& step, int64_t rows,
                   const AttendShape& shape, const KvView& kv) {
  const int64_t warps = rows * ((in.q.x ? shape.heads : 0) + 2 * shape.kv_heads);
  if (warps == 0) return;
  launch("inputs", inputs_kernel, blocks(warps, kInputWarps), 32 * kInputWarps, 0, s, in, step, static_cast<int>(rows),
         shape, kv);
}

int64_t attend_scratch_floats(const AttendShape& shape, int64_t rows, int64_t parts) {
  return parts == 1 ? 0 : rows * shape.heads * parts * (shape.dim_v + 2);
}
int64_t attend_counters(const AttendShape& shape, int64_t rows) {
  return rows * slices_of(shape);
}

void attend(cudaStream_t s, const float* q, const DeviceStep& step, int64_t rows, const AttendShape& shape,
            const KvView& kv, int64_t parts, float* scratch, int32_t* counters, float* out) {
  if (rows == 0) return;
  const Attend a{q, step, rows, shape, kv, parts, scratch, counters, out};
  switch (heads_of(shape)) {
    case 1:
      launch_attend<1>(s, a);
      break;
    case 2:
      launch_attend<2>(s, a);
      break;
    case 4:
      launch_attend<4>(s, a);
      break;
    case 6:
      launch_attend<6>(s, a);
      break;
    default:
      launch_attend<8>(s, a);
  }
}

}  // namespace tern::cuda
