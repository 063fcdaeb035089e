#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/spin_park.h"

namespace tern {

struct ThreadPool::Impl {
  explicit Impl(int count) : size(count) {}

  const int size;
  std::vector<std::thread> workers;

  // Each word on its own cache line: waiters poll one while others count on another.
  alignas(64) std::atomic<uint32_t> signal{0};  // changes when there is something new to look at

  // ---- Phases. Only the holder of the last unfinished items opens the next phase, so a plain store suffices. ----
  static constexpr uint32_t kAllTaken = UINT32_MAX;
  alignas(64) std::atomic<uint64_t> ticket{kAllTaken};  // number of the phase << 32 | first item that nobody took
  std::atomic<uint32_t> items{0}, grain{1};             // of the open phase
  alignas(64) std::atomic<uint32_t> done{0};
  const std::function<void(uint32_t, uint32_t, int)>* phase_body = nullptr;
  const std::function<Phase(int)>* phase_next = nullptr;
  std::atomic<bool> finished{true};

  // ---- The function of run(), which every thread has to go through. ----
  std::atomic<uint32_t> job{0};
  const std::function<void(int)>* job_body = nullptr;
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> busy{0};        // workers inside the job
  alignas(64) std::atomic<uint32_t> last_left{0};   // number of the last job that all workers left
  alignas(64) std::atomic<uint32_t> arrived{0};     // at the barrier
  alignas(64) std::atomic<uint32_t> generation{0};  // of the barrier

  void announce() noexcept {
    signal.fetch_add(1, std::memory_order_seq_cst);  // as in store_and_wake(); two threads may announce at once
    signal.notify_all();
  }

  void open(Phase p) noexcept {
    grain.store(std::max(1u, p.grain), std::memory_order_relaxed);
    items.store(p.items, std::memory_order_release);
    done.store(0, std::memory_order_relaxed);
    const uint64_t number = (ticket.load(std::memory_order_relaxed) >> 32) + 1;
    ticket.store(number << 32, std::memory_order_release);
    announce();
  }

  struct Taken {
    uint32_t begin = 0, end = 0;
  };
  /// Items of the open phase, none when all are taken. Holding some keeps the phase open.
  Taken take() noexcept {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    for (;;) {
      const auto next = static_cast<uint32_t>(seen);
      if (next == kAllTaken) return {};
      // These may be the next phase's already; but then the ticket says that all are taken, and the exchange fails.
      const uint32_t all = items.load(std::memory_order_acquire), step = grain.load(std::memory_order_relaxed);
      const uint32_t end = next + step < all ? next + step : kAllTaken;
      if (ticket.compare_exchange_weak(seen, (seen >> 32 << 32) | end, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        return {next, std::min(end, all)};
      }
    }
  }

  /// Works on phases until nothing is left to take.
  void share(int thread) {
    for (Taken t = take(); t.begin < t.end; t = take()) {
      (*phase_body)(t.begin, t.end, thread);
      const uint32_t n = t.end - t.begin;
      if (done.fetch_add(n, std::memory_order_acq_rel) + n != items.load(std::memory_order_relaxed)) continue;
      const Phase next = (*phase_next)(thread);
      if (next.items > 0) {
        open(next);
      } else {
        finished.store(true, std::memory_order_release);
        announce();
      }
    }
  }

  void work(int thread) {
    uint32_t last_job = 0;
    for (uint32_t seen = 0;;) {
      seen = wait_change(signal, seen);
      if (stop.load(std::memory_order_acquire)) return;
      const uint32_t current = job.load(std::memory_order_acquire);
      if (current != last_job) {
        last_job = current;
        (*job_body)(thread);
        if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) store_and_wake(last_left, current);
      } else {
        share(thread);
      }
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
  impl_->announce();
  for (std::thread& t : impl_->workers) t.join();
}

int ThreadPool::size() const noexcept {
  return impl_->size;
}

void ThreadPool::run_phases(Phase first, const std::function<void(uint32_t, uint32_t, int)>& body,
                            const std::function<Phase(int)>& next) {
  Impl& p = *impl_;
  if (p.size == 1) {
    for (; first.items > 0; first = next(0)) body(0, first.items, 0);
    return;
  }
  if (first.items == 0) return;
  p.phase_body = &body;
  p.phase_next = &next;
  p.finished.store(false, std::memory_order_relaxed);
  p.open(first);
  for (;;) {
    const uint32_t seen = p.signal.load(std::memory_order_acquire);
    p.share(0);
    if (p.finished.load(std::memory_order_acquire)) return;
    wait_change(p.signal, seen);
  }
}

void ThreadPool::run(const std::function<void(int thread)>& body) {
  Impl& p = *impl_;
  if (p.size == 1) {
    body(0);
    return;
  }
  p.job_body = &body;
  p.busy.store(static_cast<uint32_t>(p.size - 1), std::memory_order_relaxed);
  const uint32_t before = p.last_left.load(std::memory_order_relaxed);
  p.job.store(p.job.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  p.announce();
  body(0);
  wait_change(p.last_left, before);
}

void ThreadPool::barrier() noexcept {
  Impl& p = *impl_;
  if (p.size == 1) return;
  const uint32_t mine = p.generation.load(std::memory_order_acquire);
  if (p.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(p.size)) {
    p.arrived.store(0, std::memory_order_relaxed);
    store_and_wake(p.generation, mine + 1);
  } else {
    wait_change(p.generation, mine);
  }
}

ThreadPool::Range ThreadPool::range(int thread, int64_t n, int64_t unit) const noexcept {
  const int64_t units = ceil_div(n, unit), threads = impl_->size;
  const auto edge = [&](int64_t t) { return std::min(n, units * t / threads * unit); };
  return {edge(thread), edge(thread + 1)};
}

}  // namespace tern
