// How fast a run was, and how fast it could have been: decode time >= bytes read per token / memory bandwidth.
#pragma once
#include <cstdint>
#include <string>

#include "engine/runner.h"

namespace tern {

struct Stats {
  int64_t prompt_tokens = 0, cached_tokens = 0;  // read now; already in the cache
  double prompt_seconds = 0;
  double first_token_seconds = 0;  // from the start of the prompt to the first token chosen
  int64_t decoded_tokens = 0;      // that took a step of their own: one less than were generated
  double decode_seconds = 0;
  double bytes_per_token = 0;  // weights, KV and state read in one decode step, on average

  double prefill_rate() const { return prompt_seconds > 0 ? static_cast<double>(prompt_tokens) / prompt_seconds : 0; }
  double decode_rate() const { return decode_seconds > 0 ? static_cast<double>(decoded_tokens) / decode_seconds : 0; }
  /// Bytes a second while decoding.
  double decode_bandwidth() const { return decode_rate() * bytes_per_token; }
};

/// Bytes that one decode step reads at `position`: weights (the backend's count), the KV of the earlier tokens, and the
/// recurrent state, which is read and written.
double bytes_per_token(const Runner& runner, double position);

/// "first token 0.12 s | prompt 15 tokens, 350 tokens/s | ... | 31.2 GB/s, 62% of this machine's 50.3". `bandwidth` in
/// bytes a second, 0 when unknown.
std::string stats_line(const Stats& stats, double bandwidth);

}  // namespace tern
