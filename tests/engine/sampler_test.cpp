#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "backend/shortlist_cases.h"
#include "base/error.h"

namespace tern {
namespace {

/// Every filter off: a draw from the plain distribution.
SamplerOptions plain(uint64_t seed) {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = seed};
}

std::set<int32_t> drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  Sampler sampler(options);
  std::set<int32_t> seen;
  for (int i = 0; i < 2000; ++i) seen.insert(sampler.sample(logits));
  return seen;
}

TEST(Sampler, TemperatureZeroTakesTheBestAndTheLowestIdOnATie) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  const std::vector<float> logits(100, 0.0f);
  Sampler a(plain(7)), b(plain(7)), c(plain(8));
  std::vector<int32_t> from_a, from_b, from_c;
  for (int i = 0; i < 50; ++i) {
    from_a.push_back(a.sample(logits));
    from_b.push_back(b.sample(logits));
    from_c.push_back(c.sample(logits));
  }
  EXPECT_EQ(from_a, from_b);
  EXPECT_NE(from_a, from_c);
}

TEST(Sampler, DrawsAreThoseOfTheStandardMersenneTwister) {
  // mt19937_64 is fixed by the standard: its 10000th output for the default seed is 9981545732273789042.
  std::mt19937_64 random;
  random.discard(9999);
  ASSERT_EQ(random(), 9981545732273789042ull);
  std::mt19937_64 same(5);
  Sampler sampler(plain(5));
  const std::vector<float> even(1024, 0.0f);  // equal weights: the draw is the top 10 bits
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sampler.sample(even), static_cast<int32_t>(same() >> 54));
}

TEST(Sampler, FrequenciesFollowTheLogits) {
  const std::vector<float> logits{std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  Sampler sampler(plain(3));
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits)];
  EXPECT_NEAR(counts[0], kDraws * 0.125, 250);
  EXPECT_NEAR(counts[1], kDraws * 0.25, 350);
  EXPECT_NEAR(counts[2], kDraws * 0.625, 400);
}

TEST(Sampler, TopKKeepsTheKBest) {
  SamplerOptions options = plain(1);
  options.top_k = 2;
  EXPECT_EQ(drawn(options, {1.0f, 1.3f, 0.5f, 1.2f}), (std::set<int32_t>{1, 3}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachP) {
  SamplerOptions options = plain(1);
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  options.top_p = 0.6f;
  EXPECT_EQ(drawn(options, logits), (std::set<int32_t>{0, 1}));
  options.top_p = 0.9f;
  EXPECT_EQ(drawn(options, logits), (std::set<int32_t>{0, 1, 2}));
  options.top_p = 0.0f;
  EXPECT_EQ(drawn(options, logits), (std::set<int32_t>{0}));
}

TEST(Sampler, TopPCountsOnlyWhatTopKLeft) {
  SamplerOptions options = plain(1);
  options.top_k = 2;
  options.top_p = 0.6f;  // of {5/8, 3/8} the first is enough
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  EXPECT_EQ(drawn(options, logits), (std::set<int32_t>{0}));
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplerOptions options = plain(1);
  options.min_p = 0.25f;
  EXPECT_EQ(drawn(options, {std::log(0.5f), std::log(0.2f), std::log(0.1f)}), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, FiltersComeBeforeTheTemperature) {
  SamplerOptions options = plain(1);
  options.min_p = 0.25f;
  options.temperature = 100;  // would lift the third over the line if it came first
  EXPECT_EQ(drawn(options, {std::log(0.5f), std::log(0.2f), std::log(0.1f)}), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, RepeatPenaltyDividesPositiveLogitsAndMultipliesNegativeOnes) {
  SamplerOptions options{.temperature = 0, .repeat_penalty = 2};
  {
    Sampler sampler(options);
    sampler.accept(0);
    EXPECT_EQ(sampler.sample(std::vector<float>{3, 2}), 1);  // 3 / 2 < 2
  }
  Sampler sampler(options);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f}), 1);  // -1 * 2 < -1.5
}

TEST(Sampler, RepeatPenaltyForgetsWhatIsFurtherBackThanLastN) {
  Sampler sampler({.temperature = 0, .repeat_penalty = 2, .repeat_last_n = 2});
  for (const int32_t token : {0, 1, 2}) sampler.accept(token);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 3, 3}), 0);
}

TEST(Sampler, PresencePenaltyIsTakenOffOnceAndFrequencyPenaltyForEveryTime) {
  const auto choice = [](const SamplerOptions& options, std::vector<float> logits) {
    Sampler sampler(options);
    for (const int32_t token : {0, 0, 0, 1}) sampler.accept(token);
    return sampler.sample(logits);
  };
  const SamplerOptions presence{.temperature = 0, .presence_penalty = 1};
  EXPECT_EQ(choice(presence, {3, 0, 2.1f}), 2);  // 3 - 1
  EXPECT_EQ(choice(presence, {3, 0, 1.9f}), 0);
  const SamplerOptions frequency{.temperature = 0, .frequency_penalty = 1};
  EXPECT_EQ(choice(frequency, {3, 1.9f, 0.5f}), 1);  // 3 - 3 * 1, 1.9 - 1
  EXPECT_EQ(choice(frequency, {4.5f, 1.9f, 1.4f}), 0);
  EXPECT_EQ(choice({.temperature = 0, .presence_penalty = -2, .repeat_last_n = 1}, {0, 0, 1}), 1) << "seen last";
}

TEST(Sampler, SampledTokensCountForThePenalty) {
  Sampler sampler({.temperature = 0, .repeat_penalty = 10, .repeat_last_n = -1});
  const std::vector<float> logits{3, 2, 1};
  EXPECT_EQ(sampler.sample(logits), 0);
  EXPECT_EQ(sampler.sample(logits), 1);
  EXPECT_EQ(sampler.sample(logits), 2);
}

TEST(Sampler, LogitsThatAreNoNumbersAreNeverDrawn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(drawn(plain(1), {nan, 1.0f, -INFINITY}), (std::set<int32_t>{1}));
  Sampler sampler(plain(1));
  EXPECT_THROW(sampler.sample(std::vector<float>{nan, nan}), Error);
}

enum class Road : uint8_t { kLogits, kList, kToken };

/// Draws from all logits and from what was wanted of them, of rows of which every other has many ties. How many went
/// each road.
std::map<Road, int> same_draws(const SamplerOptions& options) {
  constexpr size_t kVocab = 600;
  Sampler from_logits(options), from_wishes(options);
  std::mt19937 random(static_cast<uint32_t>(options.seed));
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kVocab);
  std::map<Road, int> roads;
  for (int step = 0; step < 30; ++step) {
    for (float& x : logits) x = step % 2 == 0 ? normal(random) : std::round(normal(random));
    for (size_t i = 0; i < kVocab; i += 7) logits[i] = -INFINITY;
    const test::Granted granted(logits, from_wishes.wanted());
    ++roads[granted.scores.token ? Road::kToken : granted.scores.shortlist ? Road::kList : Road::kLogits];
    EXPECT_EQ(from_wishes.sample(granted.scores), from_logits.sample(logits)) << "step " << step;
  }
  return roads;
}

TEST(Sampler, WhatItWantsGivesTheTokensOfAllLogits) {
  using Roads = std::map<Road, int>;
  uint64_t seed = 0;
  for (const float temperature : {0.0f, 0.7f, 1.5f})
    for (const int32_t k : {1, 40, 200, 1000, 0})
      for (const float p : {0.3f, 0.95f, 1.0f})
        for (const float min_p : {0.0f, 0.1f}) {
          SamplerOptions options{.temperature = temperature, .top_k = k, .top_p = p, .min_p = min_p, .seed = ++seed};
          const bool few = temperature == 0 || (k > 0 && k <= kMostCandidates);
          EXPECT_EQ(same_draws(options), few ? Roads({{Road::kToken, 30}}) : Roads({{Road::kLogits, 30}}))
              << temperature << " " << k;
          options.repeat_penalty = 1.3f;
          options.presence_penalty = 1.5f;
          options.frequency_penalty = 0.5f;
          options.repeat_last_n = 50;
          EXPECT_EQ(same_draws(options),
                    few ? Roads({{Road::kToken, 1}, {Road::kList, 29}}) : Roads({{Road::kLogits, 30}}))
              << temperature << " " << k << ", weakened by penalties";
          options.presence_penalty = -1;
          EXPECT_EQ(same_draws(options)[Road::kList], 0) << temperature << " " << k << ", lifted by penalties";
        }
}

TEST(Sampler, WantsAsLittleAsCanTell) {
  const auto wants = [](SamplerOptions options, int seen = 0) {
    Sampler sampler(options);
    for (int32_t i = 0; i < seen; ++i) sampler.accept(i);
    const Wanted wanted = sampler.wanted();
    return std::pair(wanted.best, wanted.token);
  };
  const std::pair all(0, false);
  EXPECT_EQ(wants({.temperature = 0, .top_k = 0}), std::pair(1, true));
  EXPECT_EQ(wants({.top_k = 40}, 5), std::pair(40, true)) << "without penalties what was seen does not count";
  EXPECT_EQ(wants({.top_k = kMostCandidates}), std::pair(kMostCandidates, true));
  EXPECT_EQ(wants({.top_k = kMostCandidates + 1}), all);
  EXPECT_EQ(wants({.top_k = -1}), all);
  EXPECT_EQ(wants({.top_k = 40, .repeat_penalty = 1.1f}, 100), std::pair(40 + 64, false))
      << "each of the last 64 may lose its place";
  EXPECT_EQ(wants({.top_k = 40, .presence_penalty = 1, .repeat_last_n = -1}, 300), all);
  EXPECT_EQ(wants({.top_k = 40, .repeat_penalty = 0.9f}, 1), all);
}

TEST(Sampler, WantsTheSameUntilItIsToldTheToken) {
  Sampler sampler({.seed = 3});
  const double first = sampler.wanted().draw.uniform;
  EXPECT_EQ(sampler.wanted().draw.uniform, first);
  sampler.sample({.token = 5});
  EXPECT_NE(sampler.wanted().draw.uniform, first);
}

TEST(Sampler, RemembersATokenThatWasDrawnElsewhere) {
  Sampler sampler({.temperature = 0, .repeat_penalty = 2});
  EXPECT_EQ(sampler.sample({.token = 0}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 2}), 1);  // 3 / 2 < 2
}

TEST(Sampler, RefusesShortlistsAndDrawsOfNothing) {
  Sampler sampler(plain(1));
  const Shortlist none;
  EXPECT_THROW(sampler.sample({.shortlist = &none}), Error);
  EXPECT_THROW(sampler.sample({.token = -1}), Error);
}

TEST(Sampler, RefusesValuesThatMakeNoSense) {
  EXPECT_THROW(Sampler({.repeat_penalty = 0}), Error);
  EXPECT_THROW(Sampler({.repeat_last_n = -2}), Error);
  EXPECT_THROW(Sampler({.presence_penalty = 3}), Error);
  EXPECT_THROW(Sampler({.temperature = std::numeric_limits<float>::quiet_NaN()}), Error);
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 7}), Error);
}

TEST(Top, ListsTheBestFirstAndTheLowerIdOnTies) {
  const std::vector<float> logits{1, 5, 5, 0};
  EXPECT_EQ(top(logits, 3), (std::vector<Candidate>{{1, 5.0f}, {2, 5.0f}, {0, 1.0f}}));
  EXPECT_EQ(top(logits, 9).size(), 4u);
  EXPECT_EQ(argmax(logits), 1);
}

TEST(LogSumExp, DoesNotOverflow) {
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0), 1e-9);
}

}  // namespace
}  // namespace tern
