#include "engine/compare.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/sampler.h"

namespace tern {

Difference compare(std::span<const float> reference, std::span<const float> other) {
  CHECK(reference.size() == other.size() && !reference.empty(), "{} and {} logits", reference.size(), other.size());
  const double lse_p = log_sum_exp(reference), lse_q = log_sum_exp(other);
  Difference d;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - lse_p, log_q = static_cast<double>(other[i]) - lse_q;
    const double p = std::exp(log_p), q = std::exp(log_q);
    d.kl += p * (log_p - log_q);
    d.kl_back += q * (log_q - log_p);
    d.total_variation += std::abs(p - q) / 2;
  }
  const auto best = top(reference, 10), others = top(other, 10);
  for (const auto& [id, logit] : best)
    d.top10_overlap +=
        std::any_of(others.begin(), others.end(), [&, wanted = id](const auto& o) { return o.id == wanted; });
  d.same_best = best[0].id == others[0].id;
  d.gap = static_cast<double>(best[0].logit) - static_cast<double>(reference[static_cast<size_t>(others[0].id)]);
  return d;
}

void Differences::add(const Difference& d) {
  ++positions;
  flips += d.same_best ? 0 : 1;
  kl += d.kl;
  kl_back += d.kl_back;
  total_variation += d.total_variation;
  top10_overlap += d.top10_overlap;
  worst_kl = std::max({worst_kl, d.kl, d.kl_back});
  worst_gap = std::max(worst_gap, d.gap);
}

void Differences::add(const Differences& d) {
  positions += d.positions;
  flips += d.flips;
  kl += d.kl;
  kl_back += d.kl_back;
  total_variation += d.total_variation;
  top10_overlap += d.top10_overlap;
  worst_kl = std::max(worst_kl, d.worst_kl);
  worst_gap = std::max(worst_gap, d.worst_gap);
}

Verdict verdict(const Differences& d) {
  if (!(d.mean_kl() < kWrongNats)) return Verdict::kWrong;  // NaN too
  if (d.mean_kl() >= kDriftNats) return Verdict::kDrift;
  return d.flips > 0 ? Verdict::kTieFlip : Verdict::kMatch;
}

std::string_view verdict_name(Verdict v) noexcept {
  switch (v) {
    case Verdict::kMatch:
      return "MATCH";
    case Verdict::kTieFlip:
      return "TIE-FLIP";
    case Verdict::kDrift:
      return "DRIFT";
    case Verdict::kWrong:
      return "WRONG";
  }
  return "?";
}

}  // namespace tern
