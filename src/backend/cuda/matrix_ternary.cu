#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

bool wgmma_runs() {
  static const bool runs = [] {
    cudaFuncAttributes a{};
    const auto kernel = wgmma_kernel<Ternary2Layout, 64, 2, 2>;
    return cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.sharedSizeBytes > 0;  // none where it has no body
  }();
  return runs;
}

TERN_CUDA_FORMAT(PQ2_0)
TERN_CUDA_FORMAT(TQ2_0)
TERN_CUDA_FORMAT(I2_S)
TERN_CUDA_FORMAT(Q2_0)

}  // namespace tern::cuda
