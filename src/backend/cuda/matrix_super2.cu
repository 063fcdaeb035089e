#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

TERN_CUDA_FORMAT(Q2_K)
TERN_CUDA_FORMAT(Q3_K)
TERN_CUDA_FORMAT(IQ4_XS)

}  // namespace tern::cuda
