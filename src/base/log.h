// Diagnostics on stderr. Answers never pass through here: they go to stdout.
#pragma once
#include <spdlog/spdlog.h>

namespace tern {

/// Sets the pattern and the level of the process-wide logger (0 warnings, 1 info, 2 debug) and sends it to stderr.
void init_logging(int verbosity);

}  // namespace tern
