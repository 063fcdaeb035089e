// One persistent pool: N threads, the caller among them, share phases of work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

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

  /// A phase of work: `items` independent items, taken `grain` at a time; 0 items: there is no further phase. Of a
  /// dealt phase thread t takes the t-th grain first, unless another was done with its own before t came.
  struct Phase {
    uint32_t items = 0, grain = 1;
    bool dealt = false;
  };
  using Body = std::function<void(uint32_t begin, uint32_t end, int thread)>;
  using Next = std::function<Phase(int thread)>;
  /// Runs phases one after the other. `body(begin, end, thread)` does items of the open phase, on whichever threads
  /// have a core; `next(thread)` is called once when all are done, by the thread that did the last, and says what to
  /// open. There is no barrier: a thread that the system keeps off its core delays nobody unless it took items along.
  /// What was written in a phase is visible in the next. Neither may throw. Not reentrant; one caller at a time.
  void run(Phase first, const Body& body, const Next& next);
  /// One phase.
  void run(Phase only, const Body& body);

  /// What `thread` will read in a phase to come. When it has to wait for others, it asks for these bytes instead of
  /// only spinning, so that they lie in its cache when it needs them. Called by that thread, within `body`; the memory
  /// may go away at any time.
  void expect(int thread, std::span<const std::byte> bytes) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads to use when the user names none: physical cores this process may run on (affinity and cgroup quota, one
/// thread a core, performance cores only on hybrid CPUs).
int default_threads();

}  // namespace tern
