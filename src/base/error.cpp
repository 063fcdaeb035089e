#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace tern {

void check_failed(const char* file, int line, const char* condition, const std::string& message) noexcept {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed%s%s\n", file, line, condition, message.empty() ? "" : ": ",
               message.c_str());
  std::abort();
}

}  // namespace tern
