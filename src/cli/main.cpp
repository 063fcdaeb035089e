#include <fcntl.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "cli/verbs.h"

namespace {

/// A closed standard stream would give its number to the next file opened, a model or an output.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  const std::vector<std::string_view> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tern::cli::run_command_line(arguments);
}
