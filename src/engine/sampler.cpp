#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "engine/sampler_settings.h"

namespace tern {
namespace {

/// Of logits none of which is a number. What biases and grammars take away is -infinity; nothing is known of logits
/// that were not asked for.
[[noreturn]] void refuse(std::span<const float> logits) {
  if (!logits.empty() && std::all_of(logits.begin(), logits.end(), [](float logit) { return logit == -INFINITY; }))
    fail(ErrorCode::kInvalidArgument,
         "the biases and the grammar of the request leave none of {} tokens to come next: allow some", logits.size());
  fail(ErrorCode::kBadFile,
       "the model computed no number for any token that may come next: check the file, or download it again");
}

/// 53 random bits as a number in [0, 1): what the standard's distributions do differs between libraries.
double next_uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1.0p-53;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  for (const SamplerSetting& setting : sampler_settings()) setting.set(options_, setting.value(options));
  uniform_ = next_uniform(random_);
}

void Sampler::accept(int32_t token) {
  const bool off = options_.repeat_penalty == 1 && options_.presence_penalty == 0 && options_.frequency_penalty == 0;
  if (off || options_.repeat_last_n == 0) return;
  recent_.push_back(token);
  if (options_.repeat_last_n > 0 && recent_.size() > static_cast<size_t>(options_.repeat_last_n)) recent_.pop_front();
}

/// How many of the best are left to the filters behind.
int64_t Sampler::kept() const noexcept {
  if (options_.temperature <= 0) return 1;
  return options_.top_k > 0 ? options_.top_k : std::numeric_limits<int32_t>::max();
}

Draw Sampler::how() const noexcept {
  return {.uniform = uniform_,
          .least = std::log(static_cast<double>(options_.min_p)),
          .top_p = options_.top_p,
          .temperature = options_.temperature};
}

Wanted Sampler::wanted() const noexcept {
  // Where penalties only take away, the k best behind them were among the best before, but for those that lost.
  const bool lifts = options_.repeat_penalty < 1 || options_.presence_penalty < 0 || options_.frequency_penalty < 0;
  const int64_t needed = kept() + static_cast<int64_t>(recent_.size());
  if (needed > kMostCandidates || (lifts && !recent_.empty())) return {};
  if (!recent_.empty()) return {.best = static_cast<int32_t>(needed)};
  return {.best = static_cast<int32_t>(needed), .token = true, .draw = how()};
}

int32_t Sampler::sample(const Scores& scores) {
  int32_t token = -1;
  if (scores.token) {
    token = *scores.token;
  } else if (scores.shortlist) {
    const auto best = scores.shortlist->candidates();
    candidates_.assign(best.begin(), best.end());
    token = from_candidates();
  } else {
    token = from_logits(scores.logits);
  }
  if (token < 0) refuse(scores.logits);
  if (options_.temperature > 0) uniform_ = next_uniform(random_);
  accept(token);
  return token;
}

int32_t Sampler::from_logits(std::span<const float> logits) {
  if (options_.temperature <= 0 && recent_.empty()) return argmax(logits);  // no need to list a whole vocabulary
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id)
    if (std::isfinite(logits[id])) candidates_.push_back({static_cast<int32_t>(id), logits[id]});
  return from_candidates();
}

int32_t Sampler::from_candidates() {
  penalize();
  const size_t k = std::min(static_cast<size_t>(kept()), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k), candidates_.end(), better);
  candidates_.resize(k);
  lanes_.resize(k);
  return draw(candidates_, how(), lanes_);
}

void Sampler::penalize() {
  if (recent_.empty()) return;
  std::unordered_map<int32_t, int32_t> seen;
  for (const int32_t token : recent_) ++seen[token];
  for (Candidate& c : candidates_) {
    const auto times = seen.find(c.id);
    if (times == seen.end()) continue;
    c.logit = c.logit > 0 ? c.logit / options_.repeat_penalty : c.logit * options_.repeat_penalty;
    c.logit -= static_cast<float>(times->second) * options_.frequency_penalty + options_.presence_penalty;
  }
}

int32_t argmax(std::span<const float> logits) noexcept {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  return best;
}

std::vector<Candidate> top(std::span<const float> logits, int32_t k) {
  std::vector<Candidate> all;
  if (k <= 0) return all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({static_cast<int32_t>(i), logits[i]});
  const auto kept = std::min<ptrdiff_t>(k, static_cast<ptrdiff_t>(all.size()));
  std::partial_sort(all.begin(), all.begin() + kept, all.end(), better);
  all.resize(static_cast<size_t>(kept));
  return all;
}

}  // namespace tern
