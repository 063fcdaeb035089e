// The best candidates of rows of logits, or the one of them that is drawn: a block leaves the k best of a slice of a
// row, then a block a row the k best of what the slices left. Candidates are compared as integers no two of which are
// equal (backend/shortlist.h), so that counting finds exactly k of them, and the order in which threads come changes
// nothing. The draw is the host's to the last bit (backend/draw.h), for which this file is compiled without
// contraction.
#include <cmath>

#include "backend/cuda/launch.h"
#include "backend/cuda/ops.h"
#include "backend/draw.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256, kKeysAThread = 16, kSlice = kThreads * kKeysAThread;
static_assert(kThreads >= kMostCandidates);

/// Sum of exp(logit - base_of(top)) over a slice.
struct SliceSum {
  double sum;
  float top;
};
/// What is taken off logits of which `top` is the greatest: a number also where all are banned.
__device__ float base_of(float top) {
  return top == -INFINITY ? 0.0f : top;
}
constexpr int64_t kSliceBytes = kMostCandidates * sizeof(uint64_t) + sizeof(SliceSum);

/// What is known of a row between the kernels.
struct RowScratch {
  uint64_t* keys;  // [slices][k]: the best of every slice in any order, then zeros
  SliceSum* sums;  // [slices]
  __device__ RowScratch(std::byte* scratch, int64_t row, int64_t slices)
      : keys(reinterpret_cast<uint64_t*>(scratch + row * slices * kSliceBytes)),
        sums(reinterpret_cast<SliceSum*>(keys + slices * kMostCandidates)) {}
};

__device__ int add(int a, int b) {
  return a + b;
}
__device__ double add(double a, double b) {
  return a + b;
}

__device__ uint64_t greater(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/// The values of all threads put together, always in the same order. The whole block comes along.
template <typename T>
__device__ T over_block(T v, T (*op)(T, T)) {
  __shared__ T of_warp[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) v = op(v, __shfl_xor_sync(~0u, v, lane));
  __syncthreads();  // what was here has been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  T all = of_warp[0];
  for (int w = 1; w < kThreads / 32; ++w) all = op(all, of_warp[w]);
  return all;
}

/// Writes the k best of the block's keys, or all that are not 0, in any order, and returns how many. `each` calls a
/// function with every key of the thread. The whole block comes along.
template <typename Each>
__device__ int keep_best(int k, Each each, uint64_t* out) {
  __shared__ int kept;
  if (threadIdx.x == 0) kept = 0;  // over_block() makes it known
  const auto reach = [&](uint64_t least) {
    int n = 0;
    each([&](uint64_t key) { n += key >= least; });
    return over_block<int>(n, add);
  };
  uint64_t least = 1;  // of those kept
  if (k == 1) {        // one look instead of one a bit
    each([&](uint64_t key) { least = greater(least, key); });
    least = over_block<uint64_t>(least, greater);
    k = least > 1;
  } else {
    k = min(k, reach(1));
    least = key_of_best(k, reach);
  }
  each([&](uint64_t key) {
    if (key >= least) out[atomicAdd(&kept, 1)] = key;
  });
  return k;
}

__global__ void __launch_bounds__(kThreads)
    slices_kernel(const float* logits, ShortlistShape shape, const Wanted* wanted, std::byte* scratch) {
  begin_kernel();
  const int64_t row = blockIdx.y, slice = blockIdx.x;
  const int k = wanted[row].best;
  if (k == 0) return;
  const RowScratch to(scratch, row, gridDim.x);
  logits += row * shape.cols;
  const int64_t first = slice * kSlice + threadIdx.x;
  float x[kKeysAThread], top = -INFINITY;
#pragma unroll
  for (int i = 0; i < kKeysAThread; ++i) {
    const int64_t id = first + i * kThreads;
    x[i] = id < shape.tokens ? logits[id] : -INFINITY;
    top = fmaxf(top, x[i]);
  }
  if (wanted[row].log_sum) {
    top = over_block<float>(top, fmaxf);
    const float base = base_of(top);
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kKeysAThread; ++i) sum += expf(x[i] - base);
    sum = over_block<double>(sum, add);
    if (threadIdx.x == 0) to.sums[slice] = {sum, top};
  }
  uint64_t keys[kKeysAThread];
#pragma unroll
  for (int i = 0; i < kKeysAThread; ++i) keys[i] = candidate_key(x[i], static_cast<int32_t>(first) + i * kThreads);
  uint64_t* const out = to.keys + slice * k;
  const int kept = keep_best(
      k,
      [&](auto see) {
#pragma unroll
        for (const uint64_t key : keys) see(key);
      },
      out);
  for (int i = kept + static_cast<int>(threadIdx.x); i < k; i += kThreads) out[i] = 0;
}

/// log(sum(exp(logits))) of a row from the sums of its slices. The whole block comes along.
__device__ double log_sum_of(const SliceSum* sums, int slices) {
  const int thread = static_cast<int>(threadIdx.x);
  float top = -INFINITY;
  for (int i = thread; i < slices; i += kThreads) top = fmaxf(top, sums[i].top);
  top = over_block<float>(top, fmaxf);
  const double base = base_of(top);
  double sum = 0;
  for (int i = thread; i < slices; i += kThreads) sum += sums[i].sum * exp(sums[i].top - base);
  return base + log(over_block<double>(sum, add));
}

/// The place of the one of n candidates, best first, that is drawn. A thread is a lane: it has the logit of the
/// candidate of its number and makes its sum, in the order in which everybody does. The whole block comes along, with
/// one n.
__device__ int place_drawn_by_block(const Draw& how, int n, const Candidate* best) {
  __shared__ double weights[kMostCandidates];
  const int thread = static_cast<int>(threadIdx.x);
  Lane lane;
  if (thread < n) lane.below = static_cast<double>(best[thread].logit) - static_cast<double>(best[0].logit);
  const auto add_up = [&](int of, double temperature) {
    __syncthreads();  // what was here has been read
    if (thread < of) weights[thread] = weight_of(lane, temperature);
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < of; ++i) {
      sum += weights[i];
      if (i == thread) lane.sum = sum;
    }
    return sum;
  };
  const auto count = [&](int of, auto is) { return __syncthreads_count(thread < of && is(lane)); };
  return place_drawn(how, n, add_up, count);
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(int slices, const Wanted* wanted, std::byte* scratch, Shortlist* lists, int32_t* tokens) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const Wanted want = wanted[row];
  const int k = want.best, thread = static_cast<int>(threadIdx.x);
  if (k == 0) return;
  const RowScratch from(scratch, row, slices);
  __shared__ uint64_t keys[kMostCandidates];
  __shared__ Candidate best[kMostCandidates];
  const int kept = keep_best(
      k,
      [&](auto see) {
        for (int i = thread; i < slices * k; i += kThreads) see(from.keys[i]);
      },
      keys);
  __syncthreads();
  if (thread < kept) {
    int place = 0;
    for (int i = 0; i < kept; ++i) place += keys[i] > keys[thread];
    best[place] = candidate_of(keys[thread]);
  }
  __syncthreads();
  if (want.token) {
    const int place = kept == 0 ? 0 : place_drawn_by_block(want.draw, kept, best);
    if (thread == 0) tokens[row] = kept == 0 ? -1 : best[place].id;
    return;
  }
  Shortlist& list = lists[row];
  if (thread < kept) list.best[thread] = best[thread];
  const double log_sum = want.log_sum ? log_sum_of(from.sums, slices) : 0;
  if (thread == 0) {
    list.size = kept;
    list.log_sum = log_sum;
  }
}

}  // namespace

int64_t shortlist_scratch_bytes(int64_t tokens) {
  return blocks(tokens, kSlice) * kSliceBytes;
}

void shortlists(cudaStream_t s, const float* logits, const ShortlistShape& shape, const Wanted* wanted,
                std::byte* scratch, Shortlist* chosen) {
  if (shape.outputs == 0) return;
  const unsigned slices = blocks(shape.tokens, kSlice);
  launch("slices", slices_kernel, dim3(slices, static_cast<unsigned>(shape.outputs)), kThreads, 0, s, logits, shape,
         wanted, scratch);
  launch("merge", merge_kernel, blocks(shape.outputs), kThreads, 0, s, static_cast<int>(slices), wanted, scratch,
         chosen, reinterpret_cast<int32_t*>(chosen + shape.outputs));
}

}  // namespace tern::cuda
