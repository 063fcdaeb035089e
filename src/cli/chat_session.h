// The interactive chat: reads lines at `>>>`, answers, obeys /commands.
#pragma once
#include <string>

#include "cli/flags.h"
#include "engine/model.h"
#include "text/chat_template.h"

namespace tern::cli {

struct ChatOptions {
  std::string system;
  SamplingFlags sampling;
  bool verbose = false;
};

/// Until Ctrl-D, /bye or two Ctrl-C in a row. Returns the exit code.
int chat_session(Model& model, const text::ChatTemplate& chat_template, const ChatOptions& options);

}  // namespace tern::cli
