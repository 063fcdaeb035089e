// Which backend runs which layers of a plan, decided by what everything takes in memory before anything is loaded.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/backends.h"
#include "engine/memory_need.h"
#include "engine/runner.h"
#include "plan/plan.h"

namespace tern {

/// Beside counts of layers.
inline constexpr int32_t kAutoLayers = -1;  // as many as fit
inline constexpr int32_t kAllLayers = std::numeric_limits<int32_t>::max();

struct PlacementOptions {
  BackendKind backend = BackendKind::kCpu;
  /// Layers on the GPU when that is the backend, counted from the last one, the head behind it being one more; the
  /// others run on the CPU. Token embeddings are on the GPU when everything is.
  int32_t gpu_layers = kAutoLayers;
  /// context 0: the largest that fits, at most what the model was trained for. rows 0: what suits the backends.
  Runner::Limits limits{.context = 0, .rows = 0};
};

/// Consecutive ops and where they run.
struct Share {
  BackendKind backend = BackendKind::kCpu;
  size_t first_op = 0;
  Plan plan;  // its segment
  MemoryNeed need;
  uint64_t available = 0;
  std::string layers() const;  // "embedding, layers 0-23", "layers 24-63, head", "everything"
};

struct Placement {
  std::vector<Share> shares;  // one, or the CPU's before the GPU's
  Runner::Limits limits;      // nothing left open
  MemoryNeed need() const;    // in all
};

/// kOutOfMemory with the numbers when there is no room for what was asked.
Placement place(const Plan& plan, const PlacementOptions& options, const MemoryBudget& budget);

/// The backend of a placement. `device` is of the kind that was asked for.
std::unique_ptr<Backend> make_backend(const Placement& placement, std::unique_ptr<Backend> device, BackendKind kind,
                                      int threads);

}  // namespace tern
