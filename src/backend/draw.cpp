#include "backend/draw.h"

namespace tern {

int32_t draw(std::span<const Candidate> best, const Draw& how, std::span<Lane> lanes) noexcept {
  if (best.empty()) return -1;
  for (size_t i = 0; i < best.size(); ++i)
    lanes[i].below = static_cast<double>(best[i].logit) - static_cast<double>(best[0].logit);
  const auto add_up = [&](int32_t n, double temperature) {
    double sum = 0;
    for (Lane& lane : lanes.first(static_cast<size_t>(n))) lane.sum = sum += weight_of(lane, temperature);
    return sum;
  };
  const auto count = [&](int32_t n, auto is) {
    return static_cast<int32_t>(std::partition_point(lanes.begin(), lanes.begin() + n, is) - lanes.begin());
  };
  return best[static_cast<size_t>(place_drawn(how, static_cast<int32_t>(best.size()), add_up, count))].id;
}

}  // namespace tern
