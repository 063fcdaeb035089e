#include "backend/shortlist.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tern {

double log_sum_exp(std::span<const float> logits) noexcept {
  double best = -INFINITY;
  for (const float x : logits) best = std::max(best, static_cast<double>(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - best);
  return best + std::log(sum);
}

Shortlist shortlist(std::span<const float> logits, const Wanted& wanted) {
  CHECK(wanted.best > 0 && wanted.best <= kMostCandidates, "{} candidates", wanted.best);
  Shortlist list;
  float least = -INFINITY;  // a further candidate is greater: an equal one has a higher id
  const auto see = [&](size_t id) {
    const float logit = logits[id];
    if (!(logit > least) || logit == INFINITY) return;  // NaN neither
    if (list.size < wanted.best) ++list.size;
    Candidate* at = list.best + list.size - 1;
    for (; at != list.best && at[-1].logit < logit; --at) *at = at[-1];
    *at = {static_cast<int32_t>(id), logit};
    if (list.size == wanted.best) least = list.best[list.size - 1].logit;
  };
  constexpr size_t kBlock = 64;  // most hold nothing to look at
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const auto block = logits.subspan(first, std::min(kBlock, logits.size() - first));
    int32_t greater = 0;
    for (const float logit : block) greater |= logit > least ? 1 : 0;
    for (size_t i = 0; greater != 0 && i < block.size(); ++i) see(first + i);
  }
  if (wanted.log_sum) list.log_sum = log_sum_exp(logits);
  return list;
}

}  // namespace tern
