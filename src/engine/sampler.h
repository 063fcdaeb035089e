// From logits to the next token: llama.cpp's samplers, in its default order (penalties, top-k, top-p, min-p,
// temperature, draw). The same seed and logits give the same tokens on every platform and backend, wherever the draw
// happens: the random number comes from here.
#pragma once
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <vector>

#include "backend/draw.h"

namespace tern {

struct SamplerOptions {
  float temperature = 0.8f;  // 0: the most likely token, no draw
  int32_t top_k = 40;        // keep the k best; 0 or -1: all
  float top_p = 0.95f;       // keep the fewest best whose probabilities sum to p; 1: all
  float min_p = 0.05f;       // keep those at least this likely, relative to the best; 0: all
  float repeat_penalty =
      1.0f;  // of the tokens seen lately: positive logits are divided by it, others multiplied; 1: off
  float presence_penalty = 0;   // taken off the logits of tokens seen lately; 0: off
  float frequency_penalty = 0;  // the same once for every time they were seen; 0: off
  int32_t repeat_last_n = 64;   // how many tokens back these three look; 0: off, -1: all
  uint64_t seed = 0;
};

class Sampler {
 public:
  /// kInvalidArgument for a value outside the range that sampler_settings() gives.
  explicit Sampler(const SamplerOptions& options);
  /// The least that the next sample() needs to see: a token, where no penalty is in force and the options cut.
  Wanted wanted() const noexcept;
  /// Picks the next token from what wanted() asked for, or from more of it, and remembers it. Without a finite logit
  /// kInvalidArgument when all are -infinity, which is what bans a token, and kBadFile otherwise.
  int32_t sample(const Scores& scores);
  int32_t sample(std::span<const float> logits) { return sample(Scores{.logits = logits}); }
  /// Remembers a token that was not sampled here (the prompt's), for the penalties.
  void accept(int32_t token);

 private:
  int32_t from_logits(std::span<const float> logits);
  int32_t from_candidates();
  void penalize();
  int64_t kept() const noexcept;
  Draw how() const noexcept;

  SamplerOptions options_;
  std::mt19937_64 random_;
  double uniform_ = 0;  // the next draw's
  std::deque<int32_t> recent_;
  std::vector<Candidate> candidates_;  // scratch
  std::vector<Lane> lanes_;            // scratch
};

/// Index of the greatest logit, the lowest on ties; -1 when none is finite.
int32_t argmax(std::span<const float> logits) noexcept;

/// The k best, best first, the lower id first on ties.
std::vector<Candidate> top(std::span<const float> logits, int32_t k);

}  // namespace tern
