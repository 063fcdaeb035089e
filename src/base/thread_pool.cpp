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

  // Each word on its own cache line: waiters poll one while others count on another.
  alignas(64) std::atomic<uint32_t> job{0};         // number of run(); a change starts the workers
  alignas(64) std::atomic<uint32_t> busy{0};        // workers inside the current job
  alignas(64) std::atomic<uint32_t> idle_epoch{0};  // changes when the last worker left
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};  // of the barrier

  const std::function<void(int)>* body = nullptr;  // nullptr with a new job: stop
  const int size;
  std::vector<std::thread> workers;

  void work(int thread) {
    for (uint32_t seen = 0;;) {
      seen = wait_change(job, seen);
      if (!body) return;
      (*body)(thread);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) store_and_wake(idle_epoch, seen);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>(threads)) {
  CHECK(threads >= 1, "{} threads", threads);
  impl_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([this, i] { impl_->work(i); });
}

ThreadPool::~ThreadPool() {
  impl_->body = nullptr;
  store_and_wake(impl_->job, impl_->job.load(std::memory_order_relaxed) + 1);
  for (std::thread& t : impl_->workers) t.join();
}

int ThreadPool::size() const noexcept {
  return impl_->size;
}

void ThreadPool::run(const std::function<void(int thread)>& body) {
  Impl& p = *impl_;
  if (p.size == 1) {
    body(0);
    return;
  }
  p.body = &body;
  p.busy.store(static_cast<uint32_t>(p.size - 1), std::memory_order_relaxed);
  const uint32_t before = p.idle_epoch.load(std::memory_order_relaxed);
  store_and_wake(p.job, p.job.load(std::memory_order_relaxed) + 1);
  body(0);
  wait_change(p.idle_epoch, before);
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
