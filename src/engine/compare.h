// How far apart two distributions over the vocabulary are.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace tern {

struct Difference {
  double kl = 0;               // KL(reference || other), nats
  double kl_back = 0;          // KL(other || reference)
  double total_variation = 0;  // half the sum of |p - q|
  int top10_overlap = 0;       // of the ten likeliest tokens of each, how many are common
  bool same_best = true;
  double gap = 0;  // logits by which the reference prefers its best token to the other's
};

/// `reference` and `other` are logits of the same length.
Difference compare(std::span<const float> reference, std::span<const float> other);

/// Over many positions.
struct Differences {
  int64_t positions = 0, flips = 0;                                    // flips: positions whose best tokens differ
  double kl = 0, kl_back = 0, total_variation = 0, top10_overlap = 0;  // sums
  double worst_kl = 0, worst_gap = 0;
  void add(const Difference& d);
  void add(const Differences& d);
  double mean(double sum) const { return positions > 0 ? sum / static_cast<double>(positions) : 0; }
  /// Of the larger direction; not a number when either is.
  double mean_kl() const { return mean(kl > kl_back || kl != kl ? kl : kl_back); }
};

enum class Verdict : uint8_t {
  kMatch,    // same best token everywhere, mean KL under kDriftNats
  kTieFlip,  // mean KL as small, but somewhere near-ties fell the other way
  kDrift,    // mean KL between kDriftNats and kWrongNats: another rounding rule
  kWrong,    // another computation
};
inline constexpr double kDriftNats = 1e-3, kWrongNats = 1e-2;
Verdict verdict(const Differences& d);
std::string_view verdict_name(Verdict v) noexcept;

}  // namespace tern
