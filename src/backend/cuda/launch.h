// What every .cu file needs to launch a kernel.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace tern::cuda {

/// Throws when the launch that was just made failed. `kernel` is for the message.
void check_launch(cudaError_t status, const char* kernel);
inline void launched(const char* kernel) {
  check_launch(cudaPeekAtLastError(), kernel);
}

/// Blocks for `n` items of `per_block` each.
inline unsigned blocks(int64_t n, int64_t per_block = 1) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

#ifdef __CUDACC__
/// Index of a thread of a one-dimensional launch.
inline __device__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
#endif

}  // namespace tern::cuda
