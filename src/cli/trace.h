// --trace and --diff: a prompt op by op, for people who look for the op that goes wrong.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cli/flags.h"

namespace tern::cli {

struct TraceFlags {
  bool trace = false;
  std::string diff;
  double tolerance = 1e-4;
  void declare(FlagSet& set);
};

/// --trace: the ops of reading `tokens` on stderr. --diff: this backend and another in lockstep over the first tokens,
/// with the first op past the tolerance on stdout; then there is an exit code, and nothing more to do.
std::optional<int> trace_prompt(const TraceFlags& flags, const ModelFlags& model_flags, Model& model,
                                std::span<const int32_t> tokens);

}  // namespace tern::cli
