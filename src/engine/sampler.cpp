#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
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

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  for (const SamplerSetting& setting : sampler_settings()) setting.set(options_, setting.value(options));
}

void Sampler::accept(int32_t token) {
  const bool off = options_.repeat_penalty == 1 && options_.presence_penalty == 0 && options_.frequency_penalty == 0;
  if (off || options_.repeat_last_n == 0) return;
  recent_.push_back(token);
  if (options_.repeat_last_n > 0 && recent_.size() > static_cast<size_t>(options_.repeat_last_n)) recent_.pop_front();
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (options_.temperature <= 0 && recent_.empty()) {  // no need to list a whole vocabulary
    const int32_t best = argmax(logits);
    if (best >= 0) {
      accept(best);
      return best;
    }
  }
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id)
    if (std::isfinite(logits[id])) candidates_.push_back({static_cast<int32_t>(id), logits[id]});
  if (candidates_.empty()) refuse(logits);
  return pick();
}

int32_t Sampler::sample(const Shortlist& list) {
  const auto best = list.candidates();
  if (best.empty()) refuse({});
  candidates_.assign(best.begin(), best.end());
  return pick();
}

int32_t Sampler::candidates() const noexcept {
  const int64_t k = options_.temperature <= 0 ? 1 : options_.top_k;
  if (k <= 0) return 0;
  // Where penalties only take away, the k best behind them were among the best before, but for those that lost.
  const bool lifts = options_.repeat_penalty < 1 || options_.presence_penalty < 0 || options_.frequency_penalty < 0;
  if (lifts && !recent_.empty()) return 0;
  const int64_t needed = k + static_cast<int64_t>(recent_.size());
  return needed <= kMostCandidates ? static_cast<int32_t>(needed) : 0;
}

int32_t Sampler::pick() {
  penalize();
  int32_t token = -1;
  if (options_.temperature <= 0) {
    token = std::min_element(candidates_.begin(), candidates_.end(), better)->id;
  } else {
    keep_top_k();
    keep_top_p();
    keep_min_p();
    token = draw();
  }
  accept(token);
  return token;
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

void Sampler::keep_top_k() {
  const size_t k =
      options_.top_k > 0 ? std::min(static_cast<size_t>(options_.top_k), candidates_.size()) : candidates_.size();
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k), candidates_.end(), better);
  candidates_.resize(k);
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  const float best = candidates_.front().logit;
  double sum = 0;
  for (const Candidate& c : candidates_) sum += std::exp(static_cast<double>(c.logit) - best);
  double seen = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    seen += std::exp(static_cast<double>(candidates_[i].logit) - best) / sum;
    if (seen >= static_cast<double>(options_.top_p)) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  const double floor = candidates_.front().logit + std::log(static_cast<double>(options_.min_p));
  const auto first_out = std::find_if(candidates_.begin() + 1, candidates_.end(),
                                      [&](const Candidate& c) { return static_cast<double>(c.logit) < floor; });
  candidates_.erase(first_out, candidates_.end());
}

int32_t Sampler::draw() {
  const double best = candidates_.front().logit;
  weights_.clear();
  double sum = 0;
  for (const Candidate& c : candidates_) {
    weights_.push_back(std::exp((static_cast<double>(c.logit) - best) / static_cast<double>(options_.temperature)));
    sum += weights_.back();
  }
  // 53 random bits as a number in [0, 1): what the standard's distributions do differs between libraries.
  double left = static_cast<double>(random_() >> 11) * 0x1.0p-53 * sum;
  for (size_t i = 0; i + 1 < candidates_.size(); ++i) {
    if (left < weights_[i]) return candidates_[i].id;
    left -= weights_[i];
  }
  return candidates_.back().id;
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
