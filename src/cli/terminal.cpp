#include "cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "engine/memory_need.h"

namespace tern::cli {
namespace {

std::atomic<int> interrupts{0};
struct sigaction previous_action;

void on_interrupt(int) {
  if (interrupts.fetch_add(1) >= 2) _exit(130);
}

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLines = std::chrono::seconds(5);

std::string bar(double share) {
  constexpr int kWidth = 24;
  const auto filled = static_cast<size_t>(share * kWidth);
  return std::string(filled, '#') + std::string(kWidth - filled, '.');
}

}  // namespace

bool stdin_is_terminal() noexcept {
  return isatty(STDIN_FILENO) != 0;
}
bool stdout_is_terminal() noexcept {
  return isatty(STDOUT_FILENO) != 0;
}
bool stderr_is_terminal() noexcept {
  return isatty(STDERR_FILENO) != 0;
}

bool stdin_has_text() noexcept {
  struct stat st {};
  if (fstat(STDIN_FILENO, &st) != 0) return false;
  return S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode);
}

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a blocked read of the terminal returns
  sigaction(SIGINT, &action, &previous_action);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_action, nullptr);
}

bool InterruptGuard::interrupted() const noexcept {
  return interrupts.load() > 0;
}
void InterruptGuard::clear() noexcept {
  interrupts = 0;
}

Progress::Progress(std::string name, Unit unit, bool terminal, Clock::time_point start)
    : name_(std::move(name)), unit_(unit), terminal_(terminal), start_(start), shown_(start) {}

std::string Progress::update(uint64_t done, uint64_t total, Clock::time_point now) {
  done = std::min(done, total);
  if (done == 0 || now - shown_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLines))) return "";
  shown_ = now;
  visible_ = terminal_;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double rate = static_cast<double>(done) / std::chrono::duration<double>(now - start_).count();
  const auto amount = [&](double n) {
    return unit_ == Unit::kBytes ? human_bytes(static_cast<uint64_t>(n)) : fmt::format("{:.0f}", n);
  };
  const std::string figures =
      fmt::format("{}/{}{} {}/s {:.0f} s left", amount(static_cast<double>(done)), amount(static_cast<double>(total)),
                  unit_ == Unit::kTokens ? " tokens" : "", amount(rate), static_cast<double>(total - done) / rate);
  return terminal_ ? fmt::format("\r{:<16} {:>3.0f}% [{}] {}\x1b[K", name_, 100 * share, bar(share), figures)
                   : fmt::format("{} {:.0f}% {}\n", name_, 100 * share, figures);
}

std::string Progress::finish() {
  return std::exchange(visible_, false) ? "\r\x1b[K" : "";
}

ProgressLine::ProgressLine(std::string name, Unit unit, bool quiet)
    : quiet_(quiet), progress_(std::move(name), unit, stderr_is_terminal(), Progress::Clock::now()) {}

ProgressLine::~ProgressLine() {
  finish();
}

void ProgressLine::update(uint64_t done, uint64_t total) {
  if (!quiet_) std::fputs(progress_.update(done, total, Progress::Clock::now()).c_str(), stderr);
}

void ProgressLine::finish() {
  std::fputs(progress_.finish().c_str(), stderr);
}

}  // namespace tern::cli
