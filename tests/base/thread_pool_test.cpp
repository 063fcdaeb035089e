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

TEST_P(ThreadPoolTest, EveryItemOfEveryPhaseIsDoneOnceBeforeTheNextPhaseOpens) {
  ThreadPool pool(GetParam());
  constexpr uint32_t kPhases = 200;
  const auto items = [](uint32_t phase) { return 1 + phase * 7 % 23; };
  for (uint32_t grain : {1u, 3u, 100u}) {
    std::vector<std::atomic<int>> done(23);
    uint32_t phase = 0, mistakes = 0;
    const auto open = [&] { return ThreadPool::Phase{phase < kPhases ? items(phase) : 0, grain}; };
    pool.run_phases(
        open(),
        [&](uint32_t begin, uint32_t end, int thread) {
          EXPECT_LT(begin, end);
          EXPECT_LE(end, items(phase));
          EXPECT_LT(thread, pool.size());
          for (uint32_t i = begin; i < end; ++i) done[i].fetch_add(1, std::memory_order_relaxed);
        },
        [&](int) {
          for (uint32_t i = 0; i < done.size(); ++i) mistakes += done[i].exchange(0) != (i < items(phase) ? 1 : 0);
          ++phase;
          return open();
        });
    EXPECT_EQ(phase, kPhases);
    EXPECT_EQ(mistakes, 0u);
  }
}

TEST_P(ThreadPoolTest, PhasesNeedNoThreadButOne) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 2000; ++round) {  // short runs back to back: workers come late, or to the next run
    std::atomic<int> sum{0};
    pool.run_phases(
        {2}, [&](uint32_t begin, uint32_t end, int) { sum += static_cast<int>(end - begin); },
        [](int) { return ThreadPool::Phase{}; });
    ASSERT_EQ(sum.load(), 2);
  }
}

TEST_P(ThreadPoolTest, PhasesAndWholeTeamJobsAlternate) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> threads{0}, items{0};
    pool.run([&](int) { ++threads; });
    pool.run_phases(
        {5, 2}, [&](uint32_t begin, uint32_t end, int) { items += static_cast<int>(end - begin); },
        [](int) { return ThreadPool::Phase{}; });
    ASSERT_EQ(threads.load(), pool.size());
    ASSERT_EQ(items.load(), 5);
  }
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
