// A command line that makes no sense: one line on stderr and exit code 2.
#pragma once
#include <stdexcept>

namespace tern::cli {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tern::cli
