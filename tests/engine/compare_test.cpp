#include "engine/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tern {
namespace {

TEST(Compare, EqualDistributionsDoNotDifferAndAShiftOfAllLogitsIsNone) {
  std::vector<float> a(32), b(32);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = std::sin(static_cast<float>(i));
    b[i] = a[i] + 3;
  }
  const Difference d = compare(a, b);
  EXPECT_NEAR(d.kl, 0, 1e-6);
  EXPECT_NEAR(d.total_variation, 0, 1e-6);
  EXPECT_EQ(d.top10_overlap, 10);
  EXPECT_TRUE(d.same_best);
  EXPECT_EQ(d.gap, 0);
}

TEST(Compare, MeasuresWhatTheFormulasSay) {
  std::vector<float> p(12, -60.0f), q(12, -60.0f);
  p[0] = std::log(0.75f), p[1] = std::log(0.25f);
  q[0] = std::log(0.25f), q[1] = std::log(0.75f);
  const Difference d = compare(p, q);
  EXPECT_NEAR(d.kl, 0.5 * std::log(3.0), 1e-6);
  EXPECT_NEAR(d.kl_back, 0.5 * std::log(3.0), 1e-6);
  EXPECT_NEAR(d.total_variation, 0.5, 1e-6);
  EXPECT_FALSE(d.same_best);
  EXPECT_NEAR(d.gap, std::log(3.0), 1e-6);
}

Differences mean_of(double kl, int64_t flips) {
  Differences d;
  d.positions = 10;
  d.kl = kl * 10;
  d.flips = flips;
  return d;
}

TEST(Verdict, DependsOnTheMeanAndOnFlips) {
  EXPECT_EQ(verdict(mean_of(1e-6, 0)), Verdict::kMatch);
  EXPECT_EQ(verdict(mean_of(1e-6, 1)), Verdict::kTieFlip);
  EXPECT_EQ(verdict(mean_of(2e-3, 0)), Verdict::kDrift);
  EXPECT_EQ(verdict(mean_of(1e-2, 0)), Verdict::kWrong);
}

TEST(Verdict, NotANumberIsWrong) {
  EXPECT_EQ(verdict(mean_of(std::nan(""), 0)), Verdict::kWrong);
}

TEST(Verdict, TheLargerDirectionOfKlCounts) {
  Differences d = mean_of(1e-6, 0);
  d.kl_back = 0.5;
  EXPECT_EQ(verdict(d), Verdict::kWrong);
}

}  // namespace
}  // namespace tern
