// What links where CUDA is not built.
#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace tern {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions&) {
  fail(ErrorCode::kUnsupported,
       "this build has no CUDA backend: configure with -DTERN_CUDA=ON (needs nvcc), or run on the CPU (--backend cpu)");
}

uint64_t cuda_free_memory(int) noexcept {
  return 0;
}

uint64_t cuda_weight_bytes(const PlanWeight& w) {
  return w.info.nbytes;
}

double cuda_wait_seconds(const Backend&) {
  return 0;
}

}  // namespace tern
