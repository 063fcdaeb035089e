#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

TERN_CUDA_FORMAT(Q4_K)
TERN_CUDA_FORMAT(Q5_K)
TERN_CUDA_FORMAT(Q6_K)

}  // namespace tern::cuda
