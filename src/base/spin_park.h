// Waiting for another thread: spin while the answer is likely near, then sleep in the kernel, so that a preempted
// partner gets the core that the waiter would burn (an engine whose barriers only spin falls to a twentieth of its
// speed when a neighbour takes one core).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tern {

/// How long a waiter spins before it parks: several times the length of a phase of work, far below a scheduler slice.
inline constexpr std::chrono::microseconds kSpinTime{60};

inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

/// Waits until `word` differs from `old` and returns what it became. What was written before the matching
/// announce() is visible after. While it spins it calls `idle()`, which does what is useful in much less than a
/// microsecond, or returns false.
template <typename Idle>
uint32_t wait_change(const std::atomic<uint32_t>& word, uint32_t old, Idle&& idle) noexcept {
  constexpr int kPolls = 64;  // between two looks at the clock
  std::chrono::steady_clock::time_point start{};
  for (bool first = true;; first = false) {
    for (int i = 0; i < kPolls; ++i) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now != old) return now;
      if (!idle()) cpu_relax();
    }
    const auto now = std::chrono::steady_clock::now();
    if (first) start = now;
    if (now - start >= kSpinTime) break;
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

/// Changes `word` and wakes whoever waits for it. Several threads may announce at once.
inline void announce(std::atomic<uint32_t>& word) noexcept {
  // Sequentially consistent: the look whether somebody sleeps, inside notify_all, must not pass the change.
  word.fetch_add(1, std::memory_order_seq_cst);
  word.notify_all();
}

}  // namespace tern
