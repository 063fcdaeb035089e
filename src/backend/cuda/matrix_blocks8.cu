#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

TERN_CUDA_FORMAT(Q5_0)
TERN_CUDA_FORMAT(Q5_1)
TERN_CUDA_FORMAT(Q8_0)

}  // namespace tern::cuda
