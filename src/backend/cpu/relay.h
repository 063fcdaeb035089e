// Phases of chunked work, one after the other, without a barrier that every thread must reach: a phase ends when its
// items are done, whoever did them. A thread that the system took off its core holds nobody up unless it took an item
// along, and whoever finishes the last item carries on with the short serial work before the next phase.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/spin_park.h"

namespace tern::cpu {

class Relay {
 public:
  /// Opens `phase` with `items` > 0 items. Phases must ascend while threads watch.
  void open(uint32_t phase, uint32_t items) noexcept {
    items_.store(items, std::memory_order_release);
    done_.store(0, std::memory_order_relaxed);
    ticket_.store((uint64_t{phase} << 32) | (items == 0 ? kAllTaken : 0), std::memory_order_release);
    store_and_wake(phase_, phase);
  }

  uint32_t phase() const noexcept { return phase_.load(std::memory_order_acquire); }

  struct Range {
    uint32_t begin, end;
    explicit operator bool() const noexcept { return begin < end; }
  };
  /// Takes up to `grain` items of `phase`; empty when all are taken or the phase is over.
  Range claim(uint32_t phase, uint32_t grain) noexcept {
    uint64_t seen = ticket_.load(std::memory_order_acquire);
    for (;;) {
      if (seen >> 32 != phase) return {0, 0};
      const auto next = static_cast<uint32_t>(seen);
      if (next == kAllTaken) return {0, 0};
      // May be the next phase's already; but then the ticket says that all are taken, and the exchange fails.
      const uint32_t items = items_.load(std::memory_order_acquire);
      const uint32_t end = items > next && items - next > grain ? next + grain : kAllTaken;
      const uint64_t taken = (uint64_t{phase} << 32) | end;
      if (ticket_.compare_exchange_weak(seen, taken, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return {next, end == kAllTaken ? items : end};
      }
    }
  }

  /// Reports claimed items as done; true for the one thread that completed the phase and has to open the next.
  bool finish(Range range) noexcept {
    // Read before the items are counted: while they are not, the phase cannot end. Read after, `items_` may already be the
    // next phase's, and its number could be the one that this thread counted to.
    const uint32_t n = range.end - range.begin, items = items_.load(std::memory_order_relaxed);
    return done_.fetch_add(n, std::memory_order_acq_rel) + n == items;
  }

  /// Waits until another phase than `phase` is open and returns it.
  uint32_t wait_past(uint32_t phase) const noexcept { return wait_change(phase_, phase); }

 private:
  static constexpr uint32_t kAllTaken = UINT32_MAX;
  alignas(64) std::atomic<uint64_t> ticket_{kAllTaken};  // phase << 32 | first item that nobody took
  std::atomic<uint32_t> items_{0};               // of the open phase; written before ticket_ opens it
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // what waiters watch
};

}  // namespace tern::cpu
