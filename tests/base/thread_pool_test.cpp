#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "base/spin_park.h"

namespace tern {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsTheBodyOnceOnEveryThread) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  std::vector<int> calls(static_cast<size_t>(pool.size()), 0);
  for (int round = 1; round <= 200; ++round) {
    pool.run([&](int t) { ++calls[static_cast<size_t>(t)]; });
    for (int c : calls) ASSERT_EQ(c, round);
  }
}

TEST_P(ThreadPoolTest, WritesBeforeABarrierAreSeenAfterIt) {
  ThreadPool pool(GetParam());
  const auto n = static_cast<size_t>(pool.size());
  std::vector<int64_t> slots(n, 0);
  std::vector<int64_t> sums(n, 0);
  constexpr int kRounds = 300;
  pool.run([&](int t) {
    const auto me = static_cast<size_t>(t);
    for (int round = 0; round < kRounds; ++round) {
      slots[me] = round + t;
      pool.barrier();
      sums[me] += std::accumulate(slots.begin(), slots.end(), int64_t{0});
      pool.barrier();
    }
  });
  const auto threads = static_cast<int64_t>(n);
  const int64_t expected = threads * kRounds * (kRounds - 1) / 2 + kRounds * threads * (threads - 1) / 2;
  for (int64_t sum : sums) EXPECT_EQ(sum, expected);
}

TEST_P(ThreadPoolTest, RangesCoverEverythingOnceAtMultiplesOfTheUnit) {
  ThreadPool pool(GetParam());
  for (int64_t unit : {1, 4, 16}) {
    for (int64_t n : {0, 1, 5, 16, 63, 1000}) {
      int64_t next = 0;
      for (int t = 0; t < pool.size(); ++t) {
        const auto r = pool.range(t, n, unit);
        EXPECT_EQ(r.begin, next);
        EXPECT_LE(r.begin, r.end);
        EXPECT_TRUE(r.end % unit == 0 || r.end == n);
        next = r.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST_P(ThreadPoolTest, WakesParkedWorkers) {
  ThreadPool pool(GetParam());
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < 4 * kSpinTime) cpu_relax();  // they have parked by now
    pool.run([&](int) { calls.fetch_add(1); });
  }
  EXPECT_EQ(calls.load(), 5 * GetParam());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(DefaultThreads, IsAtLeastOneAndAtMostTheAllowedCpus) {
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace tern
