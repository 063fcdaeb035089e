// One persistent pool: N threads (the caller is thread 0) share phases of work, or run a function together with
// barriers inside.
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

  /// A phase of work: `items` independent items, taken `grain` at a time; 0 items: there is no further phase.
  struct Phase {
    uint32_t items = 0, grain = 1;
  };
  /// Runs phases one after the other. `body(begin, end, thread)` does items of the open phase, on whichever threads
  /// have a core; `next(thread)` is called once when all are done, by the thread that did the last, and says what to
  /// open. A thread that the system keeps off its core delays nobody unless it took items along: this is what to use
  /// for work that is waited for. Neither may throw. Not reentrant; one caller at a time.
  void run_phases(Phase first, const std::function<void(uint32_t begin, uint32_t end, int thread)>& body,
                  const std::function<Phase(int thread)>& next);

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
