// What every .cu file needs to launch a kernel.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

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

/// True when a kernel may begin while the one before it ends (sm_90 and later).
bool overlaps_launches();
/// True when tensor cores take tf32 (sm_80 and later).
bool multiplies_tf32();
/// Bytes of shared memory that a block can have.
int most_shared_memory();
int multiprocessors();

#ifdef __CUDACC__
/// Index of a thread of a one-dimensional launch.
inline __device__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// The first thing a kernel does that `launch` starts: the next kernel may be brought up from now on, and what the one
/// before wrote is there to be read.
inline __device__ void begin_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Launches a kernel that calls begin_kernel(): its start overlaps the end of the kernel before it.
template <typename... Params>
void launch(const char* name, void (*kernel)(Params...), dim3 grid, unsigned threads, size_t shared,
            cudaStream_t stream, std::type_identity_t<Params>... args) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = overlaps_launches() ? 1 : 0;
  check_launch(cudaLaunchKernelEx(&config, kernel, args...), name);
}
#endif

}  // namespace tern::cuda
