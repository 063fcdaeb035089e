// Draws that are hard to agree on, for every row of logits_cases().
#pragma once
#include <cmath>
#include <vector>

#include "backend/draw.h"

namespace tern::test {

/// Filters that keep one, few, some and all candidates, at temperatures from freezing to flat.
inline std::vector<Draw> draw_cases() {
  std::vector<Draw> all;
  for (const float top_p : {0.0f, 0.5f, 0.95f, std::nextafter(1.0f, 0.0f), 1.0f})
    for (const double min_p : {0.0, 0.05, 1.0})
      for (const float temperature : {0.01f, 0.8f, 1.0f, 3.0f})
        all.push_back({.least = std::log(min_p), .top_p = top_p, .temperature = temperature});
  return all;
}

/// Uniform numbers: the first, the last, some between, and for some of the candidates that filters leave the three next
/// to where the draw of `how` goes on to the next one.
inline std::vector<double> hard_uniforms(std::span<const Candidate> best, Draw how) {
  std::vector<double> all{0, 0x1.fffffffffffffp-1, 0.1, 0.5, 0.77, 0.999};
  if (best.empty()) return all;
  std::vector<Lane> lanes(best.size());
  how.uniform = all[1];
  const int32_t last = draw(best, how, lanes);
  best = best.first(static_cast<size_t>(std::ranges::find(best, last, &Candidate::id) - best.begin()) + 1);
  double total = 0, sum = 0;
  const auto weight = [&](const Candidate& c) {
    return weight_of({.below = static_cast<double>(c.logit) - static_cast<double>(best[0].logit)},
                     static_cast<double>(how.temperature));
  };
  for (const Candidate& c : best) total += weight(c);
  for (size_t i = 0; i < best.size(); ++i) {
    sum += weight(best[i]);
    if (i > 3 && i % 16 != 5) continue;
    const double edge = sum / total;
    for (const double u : {std::nextafter(edge, 0.0), edge, std::nextafter(edge, 1.0)})
      if (u < 1) all.push_back(u);
  }
  return all;
}

}  // namespace tern::test
