// The CPU backend: plans compiled into phases of fused work, run by a persistent pool of threads.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"

namespace tern {

struct CpuOptions {
  int threads = 0;             // 0: default_threads()
  std::string isa{};           // "scalar", "avx2" ...; empty: TERN_CPU_ISA, or the best tier of this machine
  std::string force_kernel{};  // part of a kernel's name (`tern plan` prints them); used wherever it fits
  bool eager = false;          // one op after the other instead of fused phases: to compare and to debug
};

/// kInvalidArgument when this machine cannot run `isa`. load() refuses a `force_kernel` that fits no weight.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace tern
