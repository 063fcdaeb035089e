// The CUDA backend: a plan walked as kernels on one GPU, decode steps replayed as captured graphs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace tern {

struct CudaOptions {
  int device = 0;      // ordinal of the GPU
  bool graphs = true;  // replay small steps as captured graphs; off: launch every kernel, to compare and to debug
};

/// kUnsupported with one line of what to do when this build has no CUDA, the machine no driver or no such GPU.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});

/// What GPU memory a model may take, before anything is loaded; 0 when there is no GPU to ask.
uint64_t cuda_free_memory(int device = 0) noexcept;

/// Bytes of GPU memory that a weight takes, which differ from the file's where its layout does (base 3 lies in two
/// bits). The file's in a build without CUDA.
uint64_t cuda_weight_bytes(const PlanWeight& w);

/// Of the last Step of a CUDA backend: seconds that the host waited for the GPU. The rest of the Step was the host's.
double cuda_wait_seconds(const Backend& backend);

}  // namespace tern
