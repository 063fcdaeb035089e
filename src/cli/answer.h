// One answer, streamed to stdout: what `tern run` and the chat share.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "cli/terminal.h"
#include "engine/generate.h"
#include "engine/model.h"

namespace tern::cli {

struct Answer {
  std::string text;
  FinishReason reason = FinishReason::kStopped;
  Stats stats;
};

struct AnswerOptions {
  SamplerOptions sampling;
  int32_t max_tokens = -1;
  bool quiet = false;  // no progress while the prompt is read
};

/// Reads `prompt`, streams the answer to stdout and ends it with a line break. An interrupt stops it; `interrupts` then
/// says so.
Answer answer(Model& model, Sequence& sequence, std::span<const int32_t> prompt, const AnswerOptions& options,
              const InterruptGuard& interrupts);

/// The stats line on stderr, with the share of this machine's bandwidth.
void print_stats(Model& model, const Stats& stats);

}  // namespace tern::cli
