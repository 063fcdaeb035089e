#include "base/checked.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace tern {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
constexpr uint64_t kUMax = std::numeric_limits<uint64_t>::max();

TEST(Checked, MultipliesUpToTheLimit) {
  int64_t out = 0;
  EXPECT_TRUE(checked_mul(int64_t{1} << 31, (int64_t{1} << 31), &out));
  EXPECT_EQ(out, int64_t{1} << 62);
  EXPECT_FALSE(checked_mul(int64_t{1} << 32, (int64_t{1} << 31), &out));
  EXPECT_FALSE(checked_mul(kMin, int64_t{-1}, &out));
  EXPECT_TRUE(checked_mul(kMax, int64_t{-1}, &out));
  EXPECT_EQ(out, -kMax);
  uint64_t u = 0;
  EXPECT_TRUE(checked_mul(kUMax, uint64_t{1}, &u));
  EXPECT_EQ(u, kUMax);
  EXPECT_FALSE(checked_mul(kUMax, uint64_t{2}, &u));
}

TEST(Checked, AddsUpToTheLimit) {
  int64_t out = 0;
  EXPECT_TRUE(checked_add(kMax - 1, int64_t{1}, &out));
  EXPECT_EQ(out, kMax);
  EXPECT_FALSE(checked_add(kMax, int64_t{1}, &out));
  EXPECT_FALSE(checked_add(kMin, int64_t{-1}, &out));
  uint64_t u = 0;
  EXPECT_FALSE(checked_add(kUMax, uint64_t{1}, &u));
  EXPECT_TRUE(checked_add(kUMax, uint64_t{0}, &u));
  EXPECT_EQ(u, kUMax);
}

TEST(RoundUp, GoesToTheNextMultiple) {
  EXPECT_EQ(round_up(0, 32), 0);
  EXPECT_EQ(round_up(1, 32), 32);
  EXPECT_EQ(round_up(32, 32), 32);
  EXPECT_EQ(round_up(33, 32), 64);
  EXPECT_EQ(round_up(uint64_t{10}, uint64_t{3}), 12u);
}

TEST(CeilDiv, CountsTheStartedUnits) {
  EXPECT_EQ(ceil_div(0, 7), 0);
  EXPECT_EQ(ceil_div(1, 7), 1);
  EXPECT_EQ(ceil_div(7, 7), 1);
  EXPECT_EQ(ceil_div(8, 7), 2);
}

}  // namespace
}  // namespace tern
