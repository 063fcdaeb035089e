// The table of model families: general.architecture -> how its Plan is written.
#pragma once
#include <span>
#include <string_view>

#include "gguf/file.h"
#include "plan/plan.h"

namespace tern {

struct Family {
  std::string_view architecture;
  Plan (*build)(const gguf::File& file);
};

/// The families of this build (TERN_FAMILIES chooses).
std::span<const Family> families() noexcept;

/// The Plan of a model. kUnsupported naming the architecture and the known ones; kBadFile and kUnsupported as the
/// Builder says.
Plan build_plan(const gguf::File& file);

}  // namespace tern
