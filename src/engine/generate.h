// The loop of one answer: read the prompt, then draw, show and append tokens until something ends it.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/stats.h"

namespace tern {

enum class FinishReason : uint8_t {
  kEndOfText,  // the model said so
  kLength,     // max_tokens were generated
  kStopped,    // a callback said stop
};

struct GenerateOptions {
  SamplerOptions sampling{};
  int32_t max_tokens = -1;                        // < 0: until the model ends
  std::function<bool(int32_t token)> ends{};      // true for an end-of-generation token
  std::function<bool(int32_t token)> on_token{};  // sees every token but the ending one; false stops
  Runner::Progress on_prompt{};                   // tokens of the prompt read so far; false stops
};

struct Generated {
  std::vector<int32_t> tokens;  // the ending token excluded
  FinishReason reason = FinishReason::kStopped;
  Stats stats;
};

/// Continues `sequence` with the tokens of `prompt` that it does not hold yet (it is rewound to the common prefix) and
/// generates. Throws kContextFull with both numbers when the prompt does not fit, or when the context is full before
/// the answer has ended: what was generated until then has been handed to on_token.
Generated generate(Runner& runner, Sequence& sequence, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace tern
