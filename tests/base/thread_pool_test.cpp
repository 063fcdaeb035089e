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

TEST_P(ThreadPoolTest, EveryItemOfEveryPhaseIsDoneOnceBeforeTheNextPhaseOpens) {
  ThreadPool pool(GetParam());
  constexpr uint32_t kPhases = 200;
  const auto items = [](uint32_t phase) { return 1 + phase * 7 % 23; };
  struct Way {
    uint32_t grain;
    bool dealt;
  };
  for (const auto [grain, dealt] : {Way{1, false}, Way{3, false}, Way{100, false}, Way{1, true}, Way{4, true}}) {
    std::vector<std::atomic<int>> done(23);
    uint32_t phase = 0, mistakes = 0;
    const auto open = [&] { return ThreadPool::Phase{phase < kPhases ? items(phase) : 0, grain, dealt}; };
    pool.run(
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

TEST_P(ThreadPoolTest, WritesOfAPhaseAreSeenInTheNext) {
  ThreadPool pool(GetParam());
  constexpr uint32_t kItems = 8, kPhases = 300;
  std::vector<uint64_t> now(kItems, 1), before(kItems, 0);  // each phase adds all of the last one's numbers
  uint32_t phase = 0;
  pool.run(
      {kItems},
      [&](uint32_t begin, uint32_t end, int) {
        for (uint32_t i = begin; i < end; ++i) now[i] = 1 + std::accumulate(before.begin(), before.end(), uint64_t{i});
      },
      [&](int) {
        now.swap(before);
        return ThreadPool::Phase{++phase < kPhases ? kItems : 0};
      });
  std::vector<uint64_t> expected(kItems, 0);
  for (uint32_t p = 0; p < kPhases; ++p) {
    const uint64_t sum = std::accumulate(expected.begin(), expected.end(), uint64_t{0});
    for (uint32_t i = 0; i < kItems; ++i) expected[i] = 1 + i + sum;
  }
  EXPECT_EQ(before, expected);
}

TEST_P(ThreadPoolTest, RunsBackToBackWhileWorkersComeLate) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> sum{0};
    pool.run({2}, [&](uint32_t begin, uint32_t end, int) { sum += static_cast<int>(end - begin); });
    ASSERT_EQ(sum.load(), 2);
  }
}

TEST_P(ThreadPoolTest, WakesParkedWorkers) {
  ThreadPool pool(GetParam());
  const auto n = static_cast<uint32_t>(pool.size());
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < 4 * kSpinTime) cpu_relax();  // they have parked by now
    std::atomic<uint32_t> inside{0};
    // Every item waits for all others: nobody gets out unless every thread came.
    pool.run({n}, [&](uint32_t begin, uint32_t end, int) {
      inside += end - begin;
      while (inside < n) std::this_thread::yield();
    });
    ASSERT_EQ(inside.load(), n);
  }
}

TEST_P(ThreadPoolTest, EveryThreadGetsTheItemDealtToIt) {
  ThreadPool pool(GetParam());
  const auto n = static_cast<uint32_t>(pool.size());
  if (n == 1) return;
  for (int round = 0; round < 50; ++round) {
    std::vector<int> owner(n + 1, -1);
    std::atomic<uint32_t> inside{0};
    // Every dealt item waits for all others, so that nobody is done with his own before all came.
    pool.run({.items = n + 1, .dealt = true}, [&](uint32_t begin, uint32_t end, int thread) {
      for (uint32_t i = begin; i < end; ++i) owner[i] = thread;
      if (begin == n) return;
      ++inside;
      while (inside < n) std::this_thread::yield();
    });
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(owner[i], static_cast<int>(i));
    ASSERT_GE(owner[n], 0);
  }
}

TEST_P(ThreadPoolTest, MayExpectMemoryThatIsGoneWhenItWaits) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::atomic<uint32_t> done{0};
    pool.run({8}, [&](uint32_t begin, uint32_t end, int thread) {
      pool.expect(thread, std::vector<std::byte>(1 << 20));
      done += end - begin;
    });
    ASSERT_EQ(done.load(), 8u);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(DefaultThreads, IsAtLeastOneAndAtMostTheAllowedCpus) {
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace tern
