// What `tern show` and `tern plan` both say about a model.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/placement.h"
#include "gguf/file.h"
#include "plan/plan.h"

namespace tern::cli {

/// How much of a model is stored in which format.
struct FormatShare {
  std::string name;
  int tensors = 0;
  uint64_t parameters = 0, bytes = 0;
  double bits_per_weight() const {
    return parameters ? 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters) : 0;
  }
};
/// By bytes, largest first.
std::vector<FormatShare> format_mix(const gguf::File& file);
/// Of all tensors together.
double bits_per_weight(const gguf::File& file);

/// The need at 4k, 32k and the trained context, where those are different, for one sequence.
struct ContextNeed {
  int32_t context = 0;
  MemoryNeed need;
};
std::vector<ContextNeed> memory_at_contexts(const Plan& plan, const std::function<MemoryNeed(int32_t context)>& need);

/// A line for each backend of a model that runs on several: which layers, and what they take.
std::vector<std::string> placement_lines(const Placement& placement);

/// "107,921,504" -> "108 M".
std::string human_count(uint64_t n);

}  // namespace tern::cli
