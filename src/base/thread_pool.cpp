#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/spin_park.h"

namespace tern {

struct ThreadPool::Impl {
  explicit Impl(int count) : size(count) {}

  const int size;
  std::vector<std::thread> workers;

  // Each word on its own cache line: waiters poll one while others count on another.
  alignas(64) std::atomic<uint32_t> signal{0};  // changes when there is something new to look at

  // Only the holder of the last unfinished items opens the next phase, so a plain store suffices.
  static constexpr uint32_t kAllTaken = UINT32_MAX;
  alignas(64) std::atomic<uint64_t> ticket{kAllTaken};  // number of the phase << 32 | first item that nobody took
  std::atomic<uint32_t> items{0}, grain{1};             // of the open phase
  alignas(64) std::atomic<uint32_t> done{0};
  const Body* body = nullptr;
  const Next* next = nullptr;
  std::atomic<bool> finished{true}, stop{false};

  void open(Phase p) noexcept {
    grain.store(std::max(1u, p.grain), std::memory_order_relaxed);
    items.store(p.items, std::memory_order_release);
    done.store(0, std::memory_order_relaxed);
    const uint64_t number = (ticket.load(std::memory_order_relaxed) >> 32) + 1;
    ticket.store(number << 32, std::memory_order_release);
    announce(signal);
  }

  struct Taken {
    uint32_t begin = 0, end = 0;
  };
  /// Items of the open phase, none when all are taken. Holding some keeps the phase open.
  Taken take() noexcept {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    for (;;) {
      const auto first = static_cast<uint32_t>(seen);
      if (first == kAllTaken) return {};
      // These may be the next phase's already; but then the ticket says that all are taken, and the exchange fails.
      const uint32_t all = items.load(std::memory_order_acquire), step = grain.load(std::memory_order_relaxed);
      const uint32_t end = all > first && all - first > step ? first + step : kAllTaken;
      if (ticket.compare_exchange_weak(seen, (seen >> 32 << 32) | end, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        return {first, std::min(end, all)};
      }
    }
  }

  /// Works on phases until nothing is left to take.
  void share(int thread) {
    for (Taken t = take(); t.begin < t.end; t = take()) {
      (*body)(t.begin, t.end, thread);
      // Read before the items are counted: while they are not, the phase cannot end. Read after, `items` may already
      // be the next phase's, and its number could be the one that this thread counted to.
      const uint32_t n = t.end - t.begin, all = items.load(std::memory_order_relaxed);
      if (done.fetch_add(n, std::memory_order_acq_rel) + n != all) continue;
      const Phase following = (*next)(thread);
      if (following.items > 0) {
        open(following);
      } else {
        finished.store(true, std::memory_order_release);
        announce(signal);
      }
    }
  }

  void work(int thread) {
    for (uint32_t seen = 0;;) {
      seen = wait_change(signal, seen);
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
    wait_change(p.signal, seen);
  }
}

void ThreadPool::run(Phase only, const Body& body) {
  run(only, body, [](int) { return Phase{}; });
}

}  // namespace tern
