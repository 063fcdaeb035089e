// One persistent pool: N threads (the caller is thread 0) run a function together, with barriers inside.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace tern {

class ThreadPool {
 public:
  /// `threads` >= 1 in all; threads-1 are created. They spin for a bounded time, then park, so that an idle engine
  /// costs nothing and a busy neighbour is not starved.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept;
  /// Calls body(thread) on every thread at once; returns when all are done. Not reentrant; one caller at a time.
  /// The body must not throw.
  void run(const std::function<void(int thread)>& body);
  /// Inside run(): waits until every thread of the pool arrived. What was written before is visible after.
  void barrier() noexcept;
  /// Splits [0, n) into `size()` ranges at multiples of `unit`.
  struct Range {
    int64_t begin, end;
  };
  Range range(int thread, int64_t n, int64_t unit = 1) const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads to use when the user names none: physical cores this process may run on (affinity and cgroup quota, one
/// thread a core, performance cores only on hybrid CPUs).
int default_threads();

}  // namespace tern
