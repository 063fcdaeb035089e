#include "engine/backends.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/ref/ref_backend.h"
#include "base/memory.h"

namespace tern {
namespace {

constexpr uint64_t kGpuReserve = uint64_t{256} << 20;  // code of kernels, captured graphs

/// The ternary formats are repacked from under two bits a weight into two, and codes keep some padding.
uint64_t host_bytes(const PlanWeight& w) {
  const auto elements = static_cast<uint64_t>(w.info.elements());
  const bool matrix = w.use == WeightUse::kMatrix || w.use == WeightUse::kExperts;
  const uint64_t repacked = matrix ? std::max(w.info.nbytes, elements / 4 + elements / 16) : w.info.nbytes;
  return w.also_table ? repacked + w.info.nbytes : repacked;
}

}  // namespace

std::string_view backend_name(BackendKind kind) noexcept {
  return kind == BackendKind::kRef ? "ref" : kind == BackendKind::kCuda ? "cuda" : "cpu";
}

std::unique_ptr<Backend> make_backend(BackendKind kind, int threads) {
  // The whole-model oracle: float64 between the model's own roundings (docs/decisions/0001-ref-precision.md).
  if (kind == BackendKind::kRef) return make_ref_backend(Precision::kF64);
  if (kind == BackendKind::kCuda) return make_cuda_backend();
  return make_cpu_backend({.threads = threads});
}

bool has_gpu() noexcept {
  return cuda_free_memory() > 0;
}

uint64_t weight_bytes(BackendKind kind, const PlanWeight& w) {
  return kind == BackendKind::kCuda ? cuda_weight_bytes(w) : host_bytes(w);
}

MemoryBudget memory_budget(BackendKind kind) {
  const uint64_t gpu = kind == BackendKind::kCuda ? cuda_free_memory() : 0;
  return {.host = available_memory() / 100 * 95, .gpu = std::min(gpu / 100 * 95, gpu - std::min(gpu, kGpuReserve))};
}

}  // namespace tern
