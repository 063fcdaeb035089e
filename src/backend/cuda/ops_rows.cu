// Ops on rows: norms, gates, rotary embedding, moving columns, routing.
#include <cfloat>

#include "backend/cuda/gates.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256;

/// The sum over a warp, the same in every lane, always added in the same order.
__device__ double warp_sum(double v) {
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
  return v;
}

constexpr int kNormThreads = 1024;

/// Sum of squares of x[n], by `threads` threads; `shared` (a double a warp) where they are more than a warp. Few
/// squares are added in f32, the rest in double.
template <int kThreadsAGroup>
__device__ double sum_of_squares(const float* x, int64_t n, int thread, double* shared) {
  constexpr int kLanes = kThreadsAGroup;
  float parts[4] = {};
  int64_t i = thread;
  for (; i + 3 * kLanes < n; i += 4 * kLanes) {
#pragma unroll
    for (int j = 0; j < 4; ++j) parts[j] += x[i + j * kLanes] * x[i + j * kLanes];
  }
  for (; i < n; i += kLanes) parts[0] += x[i] * x[i];
  double sum = warp_sum((static_cast<double>(parts[0]) + parts[1]) + (static_cast<double>(parts[2]) + parts[3]));
  if constexpr (kLanes == 32) return sum;
  if (thread % 32 == 0) shared[thread / 32] = sum;
  __syncthreads();
  return warp_sum(shared[thread % 32]);
}

/// out = x * factor(sum of squares) * weight; a block a group when kBlock, otherwise a warp a group.
template <bool kBlock, bool kRms>
__global__ void norm_kernel(const float* x, const float* weight, float eps, Groups g, float* out) {
  begin_kernel();
  __shared__ double shared[32];
  constexpr int kLanes = kBlock ? kNormThreads : 32;
  const int64_t index = kBlock ? blockIdx.x : blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32;
  if (index >= g.groups) return;
  const int thread = kBlock ? threadIdx.x : threadIdx.x % 32;
  x += index * g.group;
  out += index * g.group;
  const double sum = sum_of_squares<kLanes>(x, g.group, thread, shared);
  if (kRms) {
    const auto factor = static_cast<float>(1.0 / sqrt(sum / static_cast<double>(g.group) + eps));
    for (int64_t i = thread; i < g.group; i += kLanes) out[i] = x[i] * factor * weight[i];
  } else {
    const auto factor = static_cast<float>(1.0 / fmax(sqrt(sum), static_cast<double>(eps)));
    for (int64_t i = thread; i < g.group; i += kLanes) out[i] = x[i] * factor;
  }
}

template <bool kRms>
void launch_norm(cudaStream_t s, const float* x, const float* weight, float eps, Groups g, float* out) {
  if (g.groups == 0) return;
  if (g.group > 1024) {
    launch("norm", norm_kernel<true, kRms>, blocks(g.groups), kNormThreads, 0, s, x, weight, eps, g, out);
  } else {
    launch("norm", norm_kernel<false, kRms>, blocks(g.groups, kThreads / 32), kThreads, 0, s, x, weight, eps, g, out);
  }
}

__global__ void add_kernel(const float* a, const float* b, int64_t n, float* out) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i < n) out[i] = a[i] + b[i];
}

__global__ void glu_kernel(int kind, const float* a, const float* b, int64_t n, int64_t cols, bool one_a_row,
                           float* out) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i < n) out[i] = gate_of(kind, a[one_a_row ? i / cols : i]) * b[i];
}

__global__ void angles_kernel(const double* freq, int64_t pairs, float magnitude, const int32_t* positions,
                              int64_t rows, float2* angles) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i >= rows * pairs) return;
  double sine, cosine;
  sincos(positions[i / pairs] * freq[i % pairs], &sine, &cosine);
  angles[i] = {static_cast<float>(cosine * magnitude), static_cast<float>(sine * magnitude)};
}

__global__ void rope_kernel(const float* x, const float2* angles, RopeShape shape, float* out) {
  begin_kernel();
  const int64_t i = thread_index(), half = shape.head_dim / 2;
  if (i >= shape.rows * shape.cols / 2) return;
  const int64_t head = i / half, pair = i % half;
  const float* from = x + head * shape.head_dim;
  float* to = out + head * shape.head_dim;
  if (pair >= shape.pairs) {  // not rotated
    to[2 * pair] = from[2 * pair];
    to[2 * pair + 1] = from[2 * pair + 1];
    return;
  }
  const float2 angle = angles[i * 2 / shape.cols * shape.pairs + pair];
  const int64_t a = shape.neox ? pair : 2 * pair, b = shape.neox ? pair + shape.pairs : 2 * pair + 1;
  const float xa = from[a], xb = from[b];
  to[a] = xa * angle.x - xb * angle.y;
  to[b] = xa * angle.y + xb * angle.x;
}

__global__ void take_kernel(const float* x, int64_t n, int64_t offset, int64_t width, int64_t stride, float* out) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i < n) out[i] = x[i / width * stride + offset + i % width];
}

/// Tiled head k + k_heads*r -> grouped head k*rep + r.
__global__ void permute_kernel(const float* x, int64_t n, int64_t k_heads, int64_t rep, int64_t dim, float* out) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i >= n) return;
  const int64_t head = i / dim % (k_heads * rep);
  out[i + ((head / k_heads + rep * (head % k_heads)) - head) * dim] = x[i];
}

__global__ void pick_kernel(const float* x, const int32_t* rows, int64_t n, int64_t cols, float* out) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i < n) out[i] = x[rows[i / cols] * cols + i % cols];
}

/// A warp a row. The chosen are marked in a bit mask of shared memory, a word for each 32 experts.
__global__ void router_kernel(const float* logits, RouterShape shape, int32_t* ids, float* weights) {
  begin_kernel();
  extern __shared__ unsigned taken[];
  const int lane = threadIdx.x;
  const int64_t row = blockIdx.x;
  logits += row * shape.experts;
  for (int w = lane; w < (shape.experts + 31) / 32; w += 32) taken[w] = 0;
  __syncwarp();
  float top = 0;
  double chosen = 0;
  for (int j = 0; j < shape.used; ++j) {
    float best = -FLT_MAX;
    int id = shape.experts;
    for (int e = lane; e < shape.experts; e += 32) {
      const bool free = !(taken[e / 32] >> (e % 32) & 1);
      if (free && (logits[e] > best || id == shape.experts)) {  // NaN never wins, but some id must
        best = logits[e];
        id = e;
      }
    }
    for (int other = 16; other > 0; other /= 2) {
      const float theirs = __shfl_xor_sync(~0u, best, other);
      const int their_id = __shfl_xor_sync(~0u, id, other);
      const bool better = their_id < shape.experts && (id == shape.experts || theirs > best);
      if (better || (theirs == best && their_id < id)) {
        best = theirs;
        id = their_id;
      }
    }
    id = min(__shfl_sync(~0u, id, 0), shape.experts - 1);  // lanes may disagree over NaN: the first one's word counts
    best = __shfl_sync(~0u, best, 0);
    if (j == 0) top = best;
    chosen += exp(static_cast<double>(best) - top);
    if (lane == 0) {
      taken[id / 32] |= 1u << (id % 32);
      ids[row * shape.used + j] = id;
    }
    __syncwarp();
  }
  double all = chosen;
  if (!shape.normalise) {
    all = 0;
    for (int e = lane; e < shape.experts; e += 32) all += exp(static_cast<double>(logits[e]) - top);
    all = warp_sum(all);
  }
  for (int j = lane; j < shape.used; j += 32) {
    const float l = logits[ids[row * shape.used + j]];
    weights[row * shape.used + j] = static_cast<float>(exp(static_cast<double>(l) - top) / all * shape.scale);
  }
}

__global__ void expert_sum_kernel(const float* x, const float* weights, int64_t n, int64_t used, int64_t cols,
                                  float* out) {
  begin_kernel();
  const int64_t i = thread_index();
  if (i >= n) return;
  const int64_t row = i / cols, col = i % cols;
  double sum = 0;
  for (int64_t j = 0; j < used; ++j)
    sum += static_cast<double>(weights[row * used + j]) * x[(row * used + j) * cols + col];
  out[i] = static_cast<float>(sum);
}

}  // namespace

void rms_norm(cudaStream_t s, const float* x, const float* weight, float eps, Groups g, float* out) {
  launch_norm<true>(s, x, weight, eps, g, out);
}

void l2_norm(cudaStream_t s, const float* x, float eps, Groups g, float* out) {
  launch_norm<false>(s, x, nullptr, eps, g, out);
}

void add(cudaStream_t s, const float* a, const float* b, int64_t n, float* out) {
  if (n == 0) return;
  launch("add", add_kernel, blocks(n, kThreads), kThreads, 0, s, a, b, n, out);
}

void glu(cudaStream_t s, int kind, const float* a, const float* b, int64_t rows, int64_t cols, int64_t gate_cols,
         float* out) {
  const int64_t n = rows * cols;
  if (n == 0) return;
  launch("glu", glu_kernel, blocks(n, kThreads), kThreads, 0, s, kind, a, b, n, cols, gate_cols == 1, out);
}

void rope_angles(cudaStream_t s, const double* freq, int64_t pairs, float magnitude, const int32_t* positions,
                 int64_t rows, float2* angles) {
  if (rows * pairs == 0) return;
  launch("angles", angles_kernel, blocks(rows * pairs, kThreads), kThreads, 0, s, freq, pairs, magnitude, positions,
         rows, angles);
}

void rope(cudaStream_t s, const float* x, const float2* angles, const RopeShape& shape, float* out) {
  if (shape.rows * shape.cols == 0) return;
  launch("rope", rope_kernel, blocks(shape.rows * shape.cols / 2, kThreads), kThreads, 0, s, x, angles, shape, out);
}

void take(cudaStream_t s, const float* x, int64_t chunks, int64_t offset, int64_t width, int64_t stride, float* out) {
  if (chunks == 0) return;
  launch("take", take_kernel, blocks(chunks * width, kThreads), kThreads, 0, s, x, chunks * width, offset, width,
         stride, out);
}

void permute_heads(cudaStream_t s, const float* x, int64_t rows, int64_t k_heads, int64_t rep, int64_t head_dim,
                   float* out) {
  const int64_t n = rows * k_heads * rep * head_dim;
  if (n == 0) return;
  launch("permute", permute_kernel, blocks(n, kThreads), kThreads, 0, s, x, n, k_heads, rep, head_dim, out);
}

void pick_rows(cudaStream_t s, const float* x, const int32_t* rows, int64_t outputs, int64_t cols, float* out) {
  if (outputs == 0) return;
  launch("pick", pick_kernel, blocks(outputs * cols, kThreads), kThreads, 0, s, x, rows, outputs * cols, cols, out);
}

void router(cudaStream_t s, const float* logits, const RouterShape& shape, int32_t* ids, float* weights) {
  if (shape.rows == 0) return;
  const size_t words = static_cast<size_t>((shape.experts + 31) / 32);
  launch("router", router_kernel, blocks(shape.rows), 32, words * 4, s, logits, shape, ids, weights);
}

void expert_sum(cudaStream_t s, const float* x, const float* weights, int64_t rows, int64_t used, int64_t cols,
                float* out) {
  if (rows * cols == 0) return;
  launch("expert_sum", expert_sum_kernel, blocks(rows * cols, kThreads), kThreads, 0, s, x, weights, rows * cols, used,
         cols, out);
}

}  // namespace tern::cuda
