// The best tokens of a row of logits in place of all of them: what most samplers look at, and little to bring from a
// device. And the order of candidates as integers, for devices that select by counting.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <span>

#include "plan/step.h"

namespace tern {

struct Candidate {
  int32_t id = 0;
  float logit = 0;
  bool operator==(const Candidate&) const = default;
};

/// Best first; the lower id wins a tie, so that the order does not depend on how it was found.
constexpr bool better(const Candidate& a, const Candidate& b) noexcept {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// What a Step computes for an output row that wants candidates. Plain data: devices write it.
struct Shortlist {
  double log_sum = 0;                 // log_sum_exp of all tokens, where it was asked for
  int32_t size = 0;                   // as many as were asked for, or all that have a finite logit
  Candidate best[kMostCandidates]{};  // best first

  std::span<const Candidate> candidates() const noexcept { return {best, static_cast<size_t>(size)}; }
};

/// What a model says of the next token, one of three, as it was wanted: the logits of all, a shortlist, or a token that
/// was drawn (-1: no logit is finite). Points into what computed it.
struct Scores {
  std::span<const float> logits{};
  const Shortlist* shortlist = nullptr;
  std::optional<int32_t> token{};
};

/// log(sum(exp(logits))), summed in double.
double log_sum_exp(std::span<const float> logits) noexcept;

/// `wanted.best` is 1 to kMostCandidates.
Shortlist shortlist(std::span<const float> logits, const Wanted& wanted);

/// The greater, the better(); no two ids have the same. 0 for a logit that is not finite, which is no candidate.
constexpr uint64_t candidate_key(float logit, int32_t id) noexcept {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 becomes 0: they are a tie
  if ((bits & 0x7f800000u) == 0x7f800000u) return 0;
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~id);
}

/// The candidate of a key that is not 0.
constexpr Candidate candidate_of(uint64_t key) noexcept {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (ordered >> 31) != 0 ? ordered & 0x7fffffffu : ~ordered;
  return {static_cast<int32_t>(~static_cast<uint32_t>(key)), std::bit_cast<float>(bits)};
}

/// A key that exactly the `k` greatest of distinct keys reach. `reach(t)` says how many are at least t; that of 1 is at
/// least `k`, and `k` at least 1. Found bit by bit: the answer is at most the k-th greatest, which k keys reach, and
/// ends early where what is left of it could not tell keys apart.
template <typename Reach>
constexpr uint64_t key_of_best(int32_t k, Reach reach) {
  uint64_t key = 0;  // at least k keys reach it
  for (uint64_t bit = uint64_t{1} << 63; bit != 0; bit >>= 1) {
    const int32_t n = reach(key | bit);
    if (n < k) continue;
    key |= bit;
    if (n == k) break;
  }
  return key;
}

}  // namespace tern
