// The draw of a token from candidates, the same to the last bit on hosts and devices: additions, multiplications and
// divisions of doubles in one order, none of them contracted, and an exponential made of these.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "backend/shortlist.h"

namespace tern {

/// exp(x) of an x that is at most 0, within two units of the last place; 0 below -700. Libraries differ in the last
/// bit.
constexpr double exp_of_negative(double x) noexcept {
  if (!(x >= -700)) return 0;
  const auto twos = static_cast<int64_t>(x * 1.4426950408889634 - 0.5);  // x / log(2), rounded
  const auto n = static_cast<double>(twos);
  const double r =
      x - n * 0x1.62e42feep-1 - n * 0x1.a39ef35793c76p-33;  // log(2) in two parts; n times the first is exact
  double sum = 1.0 / 6227020800;                            // of r^k / k!, from k = 13
  for (const double term : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                            1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0})
    sum = sum * r + term;
  return sum * std::bit_cast<double>((1023 + twos) << 52);
}

/// What is known of a candidate while one is drawn.
struct Lane {
  double below = 0;  // its logit less the best one's
  double sum = 0;    // of the weights of all up to it, added in order
};
/// Of which the sums are made.
constexpr double weight_of(const Lane& lane, double temperature) noexcept {
  return exp_of_negative(lane.below / temperature);
}

/// The place of the one of `n` candidates, best first and at least one, that is drawn. `add_up(n, temperature)` makes
/// the sums of the first n and returns the last; `count(n, is)` says how many lanes of the first n are as `is` says,
/// which are the first of them: sums rise and logits fall.
template <typename AddUp, typename Count>
constexpr int32_t place_drawn(const Draw& how, int32_t n, AddUp add_up, Count count) {
  if (n == 1) return 0;
  if (how.top_p < 1) {
    const double enough = static_cast<double>(how.top_p) * add_up(n, 1.0);
    n = 1 + count(n, [enough](const Lane& lane) { return lane.sum < enough; });
  }
  n = std::max(1, count(n, [least = how.least](const Lane& lane) { return lane.below >= least; }));
  const double mark = how.uniform * add_up(n, static_cast<double>(how.temperature));
  const int32_t place = count(n, [mark](const Lane& lane) { return lane.sum <= mark; });
  return place < n ? place : n - 1;
}

/// The token drawn from candidates, best first; -1 from none. `lanes` is scratch for as many.
int32_t draw(std::span<const Candidate> best, const Draw& how, std::span<Lane> lanes) noexcept;

}  // namespace tern
