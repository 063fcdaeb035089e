// What depends on whether a person is looking: terminals, progress, Ctrl-C.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace tern::cli {

bool stdin_is_terminal() noexcept;
bool stdout_is_terminal() noexcept;
bool stderr_is_terminal() noexcept;
/// stdin is a pipe, a socket or a file: something that ends. A terminal and /dev/null are not.
bool stdin_has_text() noexcept;

/// Counts Ctrl-C presses for the lifetime of the object instead of ending the process. The third without anyone looking
/// ends it, so that a stuck run can be left.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  bool interrupted() const noexcept;
  void clear() noexcept;
};

/// How far something long is, as text: on a terminal a line redrawn in place (name, percent, bar, done/total, rate,
/// time left) that goes when finished, elsewhere a plain line every five seconds.
class Progress {
 public:
  enum class Unit : uint8_t { kBytes, kTokens };
  using Clock = std::chrono::steady_clock;
  Progress(std::string name, Unit unit, bool terminal, Clock::time_point start);
  /// What to write now; mostly nothing.
  std::string update(uint64_t done, uint64_t total, Clock::time_point now);
  std::string finish();  // clears the line

 private:
  std::string name_;
  Unit unit_;
  bool terminal_;
  bool visible_ = false;
  Clock::time_point start_, shown_;
};

/// A Progress on stderr, unless `quiet`.
class ProgressLine {
 public:
  using Unit = Progress::Unit;
  ProgressLine(std::string name, Unit unit, bool quiet = false);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void update(uint64_t done, uint64_t total);
  void finish();

 private:
  const bool quiet_;
  Progress progress_;
};

}  // namespace tern::cli
