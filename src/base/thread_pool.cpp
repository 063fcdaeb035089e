#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/spin_park.h"

namespace tern {
namespace {

/// Bytes that a waiting thread asks for one bite at a time: it must not notice late that its wait is over.
struct alignas(64) Fetch {
  static constexpr int64_t kLine = 64, kBite = 8 * kLine;
  const std::byte* next = nullptr;
  int64_t left = 0;

  /// Into the second-level cache: the first would lose them again.
  bool bite() noexcept {
    if (left <= 0) return false;
    for (int64_t i = 0; i < kBite; i += kLine) __builtin_prefetch(next + i, 0, 2);
    next += kBite;
    left -= kBite;
    return true;
  }
};

/// Where others see whether a thread came for what was dealt to it.
struct alignas(64) Hand {
  std::atomic<uint32_t> taken{0};  // number of the phase
};

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int count) : size(count), fetches(static_cast<size_t>(count)), hands(static_cast<size_t>(count)) {}

  /// Everybody looks at everybody's hand.
  static constexpr int kMostDealt = 16;

  const int size;
  std::vector<Fetch> fetches;  // each thread's own
  std::vector<Hand> hands;
  std::vector<std::thread> workers;

  // A cache line that passes from core to core costs a tenth of a microsecond, and a step has a hundred phases: each
  // word that several threads write lies on a line of its own, is written without being read first, and seldom.
  alignas(64) std::atomic<uint32_t> signal{0};  // changes when there is something new to look at
  // Items of the open phase << 32 | the first that nobody took, or more than the items. Whoever adds to it below them
  // holds what he went over, and keeps the phase open until it is counted as done.
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<uint32_t> done{0};
  alignas(64) std::atomic<uint32_t> deal{0};  // number of the last phase that was dealt
  std::atomic<uint32_t> items{0}, grain{1};   // of the open phase
  const Body* body = nullptr;
  const Next* next = nullptr;
  std::atomic<bool> finished{true}, stop{false};

  void open(Phase p) noexcept {
    const uint32_t step = std::max(1u, p.grain), threads = static_cast<uint32_t>(size);
    const bool dealt = p.dealt && size <= kMostDealt && p.items > (threads - 1) * step;
    grain.store(step, std::memory_order_relaxed);
    items.store(p.items, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    ticket.store(uint64_t{p.items} << 32 | (dealt ? threads * step : 0), std::memory_order_release);
    // Last of all: it is over once everything that was dealt has been done.
    if (dealt) deal.store(deal.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    announce(signal);
  }

  struct Taken {
    uint32_t begin = 0, end = 0;
  };
  /// What was dealt to the thread, or to another that did not come for it.
  Taken take_dealt(int thread) noexcept {
    const uint32_t number = deal.load(std::memory_order_acquire);
    for (int i = 0; i < size && size <= kMostDealt; ++i) {
      const int t = (thread + i) % size;
      std::atomic<uint32_t>& taken = hands[static_cast<size_t>(t)].taken;
      uint32_t last = number - 1;  // that of the phase before: while nobody took, the phase is open
      if (taken.load(std::memory_order_relaxed) != last) continue;
      if (!taken.compare_exchange_strong(last, number, std::memory_order_acq_rel)) continue;
      const uint32_t step = grain.load(std::memory_order_relaxed), begin = static_cast<uint32_t>(t) * step;
      return {begin, std::min(begin + step, items.load(std::memory_order_relaxed))};
    }
    return {};
  }

  /// Items of the open phase, none when all are taken.
  Taken take(int thread) noexcept {
    if (const Taken dealt = take_dealt(thread); dealt.begin < dealt.end) return dealt;
    const uint32_t step = grain.load(std::memory_order_relaxed);  // maybe of another phase, which does no harm
    const uint64_t seen = ticket.fetch_add(step, std::memory_order_acq_rel);
    const auto first = static_cast<uint32_t>(seen), all = static_cast<uint32_t>(seen >> 32);
    return first < all ? Taken{first, std::min(first + step, all)} : Taken{};
  }

  /// Works on phases until nothing is left to take.
  void share(int thread) {
    for (uint32_t mine = 0;;) {
      if (const Taken t = take(thread); t.begin < t.end) {
        (*body)(t.begin, t.end, thread);
        mine += t.end - t.begin;
        continue;
      }
      if (mine == 0) return;
      // Read before they are counted: after that, `items` may be the next phase's.
      const uint32_t all = items.load(std::memory_order_relaxed);
      if (done.fetch_add(mine, std::memory_order_acq_rel) + mine != all) return;
      const Phase following = (*next)(thread);
      if (following.items == 0) {
        finished.store(true, std::memory_order_release);
        return announce(signal);
      }
      open(following);
      mine = 0;
    }
  }

  uint32_t wait(uint32_t seen, int thread) noexcept {
    return wait_change(signal, seen, [&] { return fetches[static_cast<size_t>(thread)].bite(); });
  }

  void work(int thread) {
    for (uint32_t seen = 0;;) {
      seen = wait(seen, thread);
      if (stop.load(std::memory_order_acquire)) return;
      share(thread);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>(threads)) {
  CHECK(threads >= 1, "{} threads", threads);
  impl_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([this, i] { impl_->work(i); });
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true, std::memory_order_release);
  announce(impl_->signal);
  for (std::thread& t : impl_->workers) t.join();
}

int ThreadPool::size() const noexcept {
  return impl_->size;
}

void ThreadPool::run(Phase first, const Body& body, const Next& next) {
  Impl& p = *impl_;
  if (p.size == 1) {
    for (; first.items > 0; first = next(0)) body(0, first.items, 0);
    return;
  }
  if (first.items == 0) return;
  p.body = &body;
  p.next = &next;
  p.finished.store(false, std::memory_order_relaxed);
  p.open(first);
  for (;;) {
    const uint32_t seen = p.signal.load(std::memory_order_acquire);
    p.share(0);
    if (p.finished.load(std::memory_order_acquire)) return;
    p.wait(seen, 0);
  }
}

void ThreadPool::expect(int thread, std::span<const std::byte> bytes) noexcept {
  Fetch& f = impl_->fetches[static_cast<size_t>(thread)];
  f = {bytes.data(), static_cast<int64_t>(bytes.size())};
}

void ThreadPool::run(Phase only, const Body& body) {
  run(only, body, [](int) { return Phase{}; });
}

}  // namespace tern
