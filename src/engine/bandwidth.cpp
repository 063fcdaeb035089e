#include "engine/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"

namespace tern {
namespace {

constexpr size_t kBuffer = size_t{256} << 20;  // beyond any cache of the machines at hand
constexpr size_t kChunk = size_t{1} << 20;     // what a thread takes at a time
constexpr int kRepeats = 5;
constexpr uint64_t kSpareTimes = 4;  // a measurement must not push the model out of memory

using Lanes = uint64_t __attribute__((vector_size(16)));

/// Sums [begin, end) with independent chains, so that loads and not additions are the limit.
uint64_t read(const std::byte* begin, const std::byte* end) {
  constexpr size_t kChains = 8;
  Lanes sums[kChains] = {};
  for (const std::byte* p = begin; p < end; p += kChains * sizeof(Lanes))
    for (size_t i = 0; i < kChains; ++i) sums[i] += reinterpret_cast<const Lanes*>(p)[i];
  uint64_t sum = 0;
  for (const Lanes& lane : sums) sum += lane[0] + lane[1];
  return sum;
}

double measure(int threads) {
  if (available_memory() < kSpareTimes * kBuffer) return 0;
  const Memory buffer(kBuffer);
  ThreadPool pool(threads);
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);  // a cache line each
  const auto each_chunk = [&](const auto& body) {
    pool.run({kBuffer / kChunk}, [&](uint32_t begin, uint32_t end, int thread) {
      for (uint32_t i = begin; i < end; ++i) body(buffer.data() + i * kChunk, static_cast<size_t>(thread) * 8);
    });
  };
  // Pages that nothing wrote are one shared page of zeros.
  each_chunk([](std::byte* chunk, size_t) {
    for (size_t i = 0; i < kChunk; i += 64) chunk[i] = std::byte{1};
  });
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    each_chunk([&](const std::byte* chunk, size_t slot) { sums[slot] += read(chunk, chunk + kChunk); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kBuffer) / seconds.count());
  }
  volatile uint64_t sink = sums[0];  // the reads must happen
  (void)sink;
  return best;
}

}  // namespace

double read_bandwidth(int threads) {
  static std::mutex mutex;
  static std::map<int, double> known;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.try_emplace(threads, 0.0);
  if (is_new) it->second = measure(threads);
  return it->second;
}

}  // namespace tern
