#include "backend/cuda/matrix_instances.h"

namespace tern::cuda {

TERN_CUDA_FORMAT(PQ2_0)
TERN_CUDA_FORMAT(TQ2_0)
TERN_CUDA_FORMAT(I2_S)
TERN_CUDA_FORMAT(Q2_0)

}  // namespace tern::cuda
