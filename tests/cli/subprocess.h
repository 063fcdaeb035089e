// Runs the tern binary as a user does.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tern::test {

struct Finished {
  int code = -1;  // exit code; 128 + signal when one ended it
  std::string out, err;
};

/// Runs `tern` with `arguments`, `input` on its stdin (a pipe), and `environment` ("NAME=value") added to this one's.
Finished run_tern(const std::vector<std::string>& arguments, std::string_view input = "",
                  const std::vector<std::string>& environment = {});

/// The same, interrupted (Ctrl-C) once something has been written to stdout.
Finished interrupt_tern(const std::vector<std::string>& arguments);

/// The same on a terminal of its own: what is typed, and everything that is shown (stdout and stderr together). Each
/// entry of `typed` is sent when `>>> ` is shown once more; the program then has to end by itself.
Finished chat_with_tern(const std::vector<std::string>& arguments, const std::vector<std::string>& typed);

}  // namespace tern::test
