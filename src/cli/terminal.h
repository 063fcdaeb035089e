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
std::string read_stdin();

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

/// One line on stderr: name, percent, bar, done/total, rate, time left. Silent unless stderr is a terminal; gone when
/// finished.
class ProgressLine {
 public:
  enum class Unit : uint8_t { kBytes, kTokens };
  ProgressLine(std::string name, Unit unit);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void update(uint64_t done, uint64_t total);
  void finish();  // clears the line

 private:
  using Clock = std::chrono::steady_clock;
  std::string name_;
  Unit unit_;
  bool visible_ = false;
  const bool enabled_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

}  // namespace tern::cli
