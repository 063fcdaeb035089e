// Which backends this build can make.
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/ref/ref_backend.h"
#include "engine/model.h"

namespace tern {

std::unique_ptr<Backend> make_backend(BackendKind kind, int threads) {
  // The whole-model oracle: float64 between the model's own roundings (docs/decisions/0001-ref-precision.md).
  if (kind == BackendKind::kRef) return make_ref_backend(Precision::kF64);
  if (kind == BackendKind::kCuda) return make_cuda_backend();
  return make_cpu_backend({.threads = threads});
}

}  // namespace tern
