#include "backend/cuda/matrix_experts.h"

#include "backend/cuda/launch.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 256;

__device__ int block_sum(int v, int* shared) {
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  int sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += shared[w];
  return sum;
}

/// A block an expert: counts the pairs of lower experts, then gives its own their places in ascending order.
__global__ void __launch_bounds__(kThreads) order_kernel(const GroupArgs p) {
  __shared__ int shared[kThreads / 32];
  const int expert = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x), lane = tid % 32,
            warp = tid / 32;
  int lower = 0, own = 0;
  for (int i = tid; i < p.pairs; i += kThreads) {
    lower += p.ids[i] < expert;
    own += p.ids[i] == expert;
  }
  int place = block_sum(lower, shared);
  own = block_sum(own, shared);
  if (tid == 0) p.counts[expert] = own;
  if (own == 0) return;
  for (int first = 0; first < p.pairs; first += kThreads) {
    const int i = first + tid;
    const bool mine = i < p.pairs && p.ids[i] == expert;
    const unsigned ballot = __ballot_sync(~0u, mine);
    __syncthreads();
    if (lane == 0) shared[warp] = __popc(ballot);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      before += w < warp ? shared[w] : 0;
      all += shared[w];
    }
    if (mine) p.order[place + before + __popc(ballot & ((1u << lane) - 1))] = i;
    place += all;
  }
}

__global__ void tiles_kernel(const GroupArgs p) {
  int tile = 0, first = 0;  // one thread: some hundred experts
  for (int e = 0; e < p.experts; ++e) {
    const int count = p.counts[e];
    for (int i = 0; i < count; i += p.act_tile)
      p.tiles[tile++] = make_int4(e, first + i, min(p.act_tile, count - i), 0);
    first += count;
  }
  while (tile < p.most_tiles) p.tiles[tile++] = make_int4(0, 0, 0, 0);
}

}  // namespace

void launch_group(cudaStream_t stream, const GroupArgs& p) {
  order_kernel<<<static_cast<unsigned>(p.experts), kThreads, 0, stream>>>(p);
  tiles_kernel<<<1, 1, 0, stream>>>(p);
  launched("grouping by expert");
}

}  // namespace tern::cuda
