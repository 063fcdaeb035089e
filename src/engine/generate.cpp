#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace tern {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Rewinds to the prefix that `prompt` shares; at least one token of it must be left to read, for there to be logits.
int32_t rewind_to_shared(Sequence& sequence, std::span<const int32_t> prompt) {
  const auto held = sequence.tokens();
  const auto [mine, theirs] = std::mismatch(held.begin(), held.end(), prompt.begin(), prompt.end());
  const auto shared = std::min<ptrdiff_t>(mine - held.begin(), static_cast<ptrdiff_t>(prompt.size()) - 1);
  return sequence.rewind(static_cast<int32_t>(shared));
}

}  // namespace

Generated generate(Runner& runner, Sequence& sequence, std::span<const int32_t> prompt,
                   const GenerateOptions& options) {
  if (prompt.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty: there is nothing to continue");
  runner.require_room(static_cast<int64_t>(prompt.size()));
  Generated out;
  Sampler sampler(options.sampling);
  for (const int32_t token : prompt) sampler.accept(token);

  const auto start = Clock::now();
  out.stats.cached_tokens = rewind_to_shared(sequence, prompt);
  const auto fresh = prompt.subspan(static_cast<size_t>(out.stats.cached_tokens));
  if (runner.prefill(sequence, fresh, options.on_prompt, sampler.wanted()).empty())
    return out;           // stopped while reading
  sequence.checkpoint();  // the next turn begins with this prompt, whatever becomes of the answer
  out.stats.prompt_tokens = static_cast<int64_t>(fresh.size());
  out.stats.prompt_seconds = seconds_since(start);

  Clock::time_point decode_start;
  out.reason = FinishReason::kLength;
  while (options.max_tokens < 0 || static_cast<int64_t>(out.tokens.size()) < options.max_tokens) {
    const int32_t token = sampler.sample(runner.scores());
    if (out.tokens.empty()) {
      out.stats.first_token_seconds = seconds_since(start);
      decode_start = Clock::now();
    }
    if (options.ends && options.ends(token)) {
      out.reason = FinishReason::kEndOfText;
      break;
    }
    out.tokens.push_back(token);
    if (options.on_token && !options.on_token(token)) {
      out.reason = FinishReason::kStopped;
      break;
    }
    if (static_cast<int64_t>(out.tokens.size()) == options.max_tokens) break;  // its logits are not needed
    if (sequence.position() == runner.limits().context)
      fail(ErrorCode::kContextFull,
           "the context of {} tokens is full ({} of prompt, {} generated) and the answer has not ended: try a larger "
           "-c, "
           "or end it earlier with -n",
           runner.limits().context, prompt.size(), out.tokens.size());
    runner.decode(sequence, token, sampler.wanted());
    ++out.stats.decoded_tokens;
  }
  if (!out.tokens.empty()) out.stats.decode_seconds = seconds_since(decode_start);
  out.stats.bytes_per_token =
      bytes_per_token(runner, static_cast<double>(prompt.size()) + static_cast<double>(out.stats.decoded_tokens) / 2);
  return out;
}

}  // namespace tern
