// What a model needs in memory, before any of it is taken.
#pragma once
#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "engine/backends.h"
#include "engine/runner.h"
#include "plan/plan.h"

namespace tern {

struct MemoryNeed {
  uint64_t weights = 0;      // in the backend's layout
  uint64_t kv = 0;           // pages of all sequences
  uint64_t states = 0;       // recurrent-state slots
  uint64_t activations = 0;  // of the largest batch, of answers and of embeddings, results included
  uint64_t total() const noexcept { return weights + kv + states + activations; }
  MemoryNeed& operator+=(const MemoryNeed& other) noexcept;
};

/// Of a plan, or of a segment of one, on a backend.
MemoryNeed memory_need(const Plan& plan, const Runner::Limits& limits, BackendKind backend = BackendKind::kCpu);
/// "1.2 GB of weights, 64 MB of KV cache, ...".
std::string need_text(const MemoryNeed& need);

/// The largest context (whole pages, at most what the model was trained for) whose need is within `bytes`; 0 when not
/// even one page fits.
int32_t fitting_context(const Plan& plan, Runner::Limits limits, uint64_t bytes,
                        BackendKind backend = BackendKind::kCpu);

/// Throws kOutOfMemory when `limits` need more than `available` bytes: what is needed for what, and what would fit.
void require_fits(const Plan& plan, const Runner::Limits& limits, uint64_t available,
                  BackendKind backend = BackendKind::kCpu);

/// "1.75 GB", "812 MB", "64 KB": decimal, three digits.
std::string human_bytes(uint64_t bytes);

}  // namespace tern
