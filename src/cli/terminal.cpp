#include "cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

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

std::string read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) text.append(buffer, n);
  return text;
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

ProgressLine::ProgressLine(std::string name, Unit unit)
    : name_(std::move(name)), unit_(unit), enabled_(stderr_is_terminal()) {}

ProgressLine::~ProgressLine() {
  finish();
}

void ProgressLine::update(uint64_t done, uint64_t total) {
  const auto now = Clock::now();
  if (!enabled_ || total == 0 || now - shown_ < kRedraw) return;
  shown_ = now;
  constexpr int kBar = 24;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  const auto amount = [&](double n) {
    return unit_ == Unit::kBytes ? human_bytes(static_cast<uint64_t>(n)) : fmt::format("{:.0f}", n);
  };
  const int filled = static_cast<int>(share * kBar);
  std::string bar(static_cast<size_t>(filled), '#');
  bar.append(static_cast<size_t>(kBar - filled), '.');
  fmt::print(stderr, "\r{:<16} {:>3.0f}% [{}] {}/{}{} {}/s {:.0f} s left\x1b[K", name_, 100 * share, bar,
             amount(static_cast<double>(done)), amount(static_cast<double>(total)),
             unit_ == Unit::kTokens ? " tokens" : "", amount(rate), static_cast<double>(total - done) / rate);
  std::fflush(stderr);
  visible_ = true;
}

void ProgressLine::finish() {
  if (std::exchange(visible_, false)) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
}

}  // namespace tern::cli
