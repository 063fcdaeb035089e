#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

TERN_CUDA_FORMAT(Q4_0)
TERN_CUDA_FORMAT(Q4_1)
TERN_CUDA_FORMAT(IQ4_NL)
TERN_CUDA_FORMAT(MXFP4)
TERN_CUDA_FORMAT(NVFP4)

}  // namespace tern::cuda
