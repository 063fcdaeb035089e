#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

TERN_CUDA_FORMAT(PTQ1_0)
TERN_CUDA_FORMAT(TQ1_0)
TERN_CUDA_FORMAT(Q1_0)

}  // namespace tern::cuda
