// The two kinds of failure. The world's (a file, a device, a request): throw tern::Error, caught at main, at the C ABI and
// at the request handler. Ours (a broken invariant): CHECK, which prints where and aborts.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tern {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kBadFile,          // bytes that break the format
  kUnsupported,      // well-formed, but this build does not implement it
  kNotFound,
  kIo,
  kOutOfMemory,
  kContextFull,  // a prompt or a generation that does not fit the context; the message has both numbers
};

/// A failure of the world. The message says what happened, with the numbers, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Throws Error{code, formatted message}.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message) noexcept;

}  // namespace tern

/// Aborts with file, line and the condition when `condition` is false: a bug of ours, never bad input.
/// Further arguments are a fmt format string and its arguments.
#define CHECK(condition, ...)                                                                     \
  do {                                                                                            \
    if (!(condition)) [[unlikely]]                                                                \
      ::tern::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__));        \
  } while (false)
