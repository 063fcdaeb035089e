// A token is drawn as llama.cpp's samplers define it, and the same whoever draws it.
#include "backend/draw.h"

#include <gtest/gtest.h>

#include <array>

#include "backend/draw_cases.h"
#include "backend/shortlist_cases.h"

namespace tern {
namespace {

using namespace test;

int32_t drawn(std::span<const Candidate> best, const Draw& how) {
  std::vector<Lane> lanes(best.size());
  return draw(best, how, lanes);
}

/// What a block of a GPU does, in its words: a lane for each candidate makes its own sum, and all count.
int32_t drawn_by_block(std::span<const Candidate> best, const Draw& how) {
  std::array<Lane, kMostCandidates> lanes;
  std::array<double, kMostCandidates> weights;
  for (size_t i = 0; i < best.size(); ++i)
    lanes[i].below = static_cast<double>(best[i].logit) - static_cast<double>(best[0].logit);
  const auto add_up = [&](int32_t n, double temperature) {
    const auto of = static_cast<size_t>(n);
    double sum = 0;
    for (size_t thread = 0; thread < of; ++thread) weights[thread] = weight_of(lanes[thread], temperature);
    for (size_t thread = 0; thread < lanes.size(); ++thread) {
      sum = 0;
      for (size_t i = 0; i < of; ++i) {
        sum += weights[i];
        if (i == thread) lanes[thread].sum = sum;
      }
    }
    return sum;
  };
  const auto count = [&](int32_t n, auto is) {
    return static_cast<int32_t>(std::count_if(lanes.begin(), lanes.begin() + n, is));
  };
  return best[static_cast<size_t>(place_drawn(how, static_cast<int32_t>(best.size()), add_up, count))].id;
}

TEST(Draw, OfABlockOfThreadsIsThatOfTheHost) {
  const std::vector<Draw> ways = draw_cases();
  size_t way = 0;
  for (const size_t n : {1, 32, 300})
    for (const LogitsCase& c : logits_cases(n))
      for (const int32_t k : kCandidateCounts) {
        const Shortlist list = shortlist(c.logits, {.best = k});
        if (list.size == 0) continue;
        for (int turn = 0; turn < 4; ++turn) {
          Draw how = ways[way++ % ways.size()];
          for (const double uniform : hard_uniforms(list.candidates(), how)) {
            how.uniform = uniform;
            ASSERT_EQ(drawn_by_block(list.candidates(), how), drawn(list.candidates(), how))
                << c.name << " " << uniform;
          }
        }
      }
}

/// The probabilities by definition of those candidates that top-p and min-p leave.
std::vector<long double> probabilities(std::span<const Candidate> best, const Draw& how) {
  const auto all = [&](long double temperature, size_t n) {
    std::vector<long double> p;
    long double sum = 0;
    for (size_t i = 0; i < n; ++i)
      p.push_back(
          std::exp((static_cast<long double>(best[i].logit) - static_cast<long double>(best[0].logit)) / temperature));
    for (const long double x : p) sum += x;
    for (long double& x : p) x /= sum;
    return p;
  };
  size_t n = 0;
  long double seen = 0;
  for (const long double p : all(1, best.size())) {
    ++n;
    if ((seen += p) >= static_cast<long double>(how.top_p) && how.top_p < 1) break;
  }
  const std::vector<long double> kept = all(1, n);
  while (n > 1 && std::log(kept[n - 1] / kept[0]) < static_cast<long double>(how.least)) --n;
  return all(static_cast<long double>(how.temperature), n);
}

TEST(Draw, GivesEveryCandidateItsProbability) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<float> logits(100);
    for (float& x : logits) x = normal(random);
    const Shortlist list = shortlist(logits, {.best = 40});
    for (Draw how : draw_cases()) {
      if (how.top_p > 0.99f && how.top_p < 1) continue;  // keeps what rounding says
      const std::vector<long double> p = probabilities(list.candidates(), how);
      long double before = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        how.uniform = static_cast<double>(before + p[i] / 2);
        before += p[i];
        if (p[i] < 1e-12L) continue;
        ASSERT_EQ(drawn(list.candidates(), how), list.best[i].id)
            << "place " << i << " of " << p.size() << ", top_p " << how.top_p << ", least " << how.least;
      }
    }
  }
}

TEST(Draw, OfNothingIsNoTokenAndOfOneIsThatOne) {
  EXPECT_EQ(drawn({}, {}), -1);
  const Candidate one{7, -3.0f};
  EXPECT_EQ(drawn({&one, 1}, {.uniform = 0.9, .temperature = 0}), 7) << "where there is no choice nothing is divided";
}

TEST(Draw, LeavesTheBestWhateverTheFiltersSay) {
  const std::vector<Candidate> best{{4, INFINITY}, {2, 1.0f}};  // what extreme penalties can make of logits
  EXPECT_EQ(drawn(best, {.uniform = 0.5, .least = -1, .top_p = 0.5f}), 4);
}

TEST(ExpOfNegative, IsWithinTwoUnitsOfTheLastPlace) {
  for (double x = 0; x > -700; x -= 0.0377) {
    const long double exact = std::exp(static_cast<long double>(x));
    const double unit = std::nextafter(static_cast<double>(exact), 2.0) - static_cast<double>(exact);
    ASSERT_NEAR(exp_of_negative(x), static_cast<double>(exact), 2 * unit) << x;
  }
  EXPECT_EQ(exp_of_negative(0), 1);
  EXPECT_EQ(exp_of_negative(-701), 0);
  EXPECT_EQ(exp_of_negative(-INFINITY), 0);
}

TEST(ExpOfNegative, HasTheBitsOfIeeeArithmetic) {
  EXPECT_EQ(exp_of_negative(-0.1), 0x1.cf46d99d52b3ap-1);
  EXPECT_EQ(exp_of_negative(-0.5), 0x1.368b2fc6f960ap-1);
  EXPECT_EQ(exp_of_negative(-1.0), 0x1.78b56362cef38p-2);
  EXPECT_EQ(exp_of_negative(-2.718281828), 0x1.0e49788035394p-4);
  EXPECT_EQ(exp_of_negative(-33.3), 0x1.f165bb9b59d94p-49);
  EXPECT_EQ(exp_of_negative(-650.25), 0x1.d99ba65a1c91fp-939);
}

}  // namespace
}  // namespace tern
