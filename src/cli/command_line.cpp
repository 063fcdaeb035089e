#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace tern::cli {
namespace {

constexpr int kFailed = 1, kUsage = 2;

constexpr std::array kVerbs{
    Verb{"run", "answer a prompt, or chat", setup_run},
    Verb{"serve", "answer over HTTP: OpenAI's API and others", setup_serve},
    Verb{"show", "what a model file is", setup_show},
    Verb{"plan", "the ops, kernels and memory of a model", setup_plan},
    Verb{"tokenize", "text to token ids", setup_tokenize},
    Verb{"logits", "the distributions a model computes, as JSON", setup_logits},
    Verb{"perplexity", "how well a model predicts a text", setup_perplexity},
    Verb{"bench", "how fast a model is on this machine", setup_bench},
    Verb{"parity", "compare with a libllama, position by position", setup_parity},
    Verb{"transcode", "rewrite a model in another format without loss", setup_transcode},
    Verb{"synth", "write a model of random weights, to measure speed", setup_synth},
    Verb{"version", "the version and what this build can do", setup_version},
};

const Verb* find_verb(std::string_view name) {
  const auto* const it = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& v) { return v.name == name; });
  return it == kVerbs.end() ? nullptr : it;
}

void print_help() {
  fmt::print("tern {} - runs low-bit language models (GGUF) on this machine\n\n", version());
  fmt::print("  tern run [MODEL] [PROMPT]     answer a prompt; without one, chat\n");
  fmt::print("  tern -m MODEL -p PROMPT       the same, in llama.cpp's words\n\nVerbs:\n");
  for (const Verb& verb : kVerbs) fmt::print("  {:<12} {}\n", verb.name, verb.summary);
  fmt::print("\n`tern help VERB` lists the flags of a verb.\n");
}

/// Parses and runs one verb.
int run_verb(const Verb& verb, std::span<const std::string_view> arguments) {
  FlagSet flags("tern " + std::string(verb.name), std::string(verb.summary));
  const Action action = verb.setup(flags);
  if (flags.parse(canonical_arguments(flags, arguments)) == FlagSet::Outcome::kHelp) {
    fmt::print("{}", flags.help());
    return 0;
  }
  refuse_leftovers(flags);
  return action();
}

int help(std::span<const std::string_view> arguments) {
  if (arguments.empty()) {
    print_help();
    return 0;
  }
  const Verb* verb = find_verb(arguments[0]);
  if (!verb) throw UsageError(fmt::format("there is no verb '{}' (see `tern help`)", arguments[0]));
  const std::array<std::string_view, 1> flag{"--help"};
  return run_verb(*verb, flag);
}

int dispatch(std::span<const std::string_view> arguments) {
  if (arguments.empty()) {
    if (stdin_is_terminal() || stdin_has_text()) return run_verb(kVerbs[0], arguments);
    print_help();
    return kUsage;
  }
  const std::string_view first = arguments[0];
  if (first == "--help" || first == "-h") return help({});
  if (first == "help") return help(arguments.subspan(1));
  if (first == "--version") return run_verb(*find_verb("version"), {});
  if (first.starts_with('-')) return run_verb(kVerbs[0], arguments);  // llama.cpp's habit: tern -m M -p P
  if (const Verb* verb = find_verb(first)) return run_verb(*verb, arguments.subspan(1));
  std::vector<std::string> names;
  names.reserve(kVerbs.size());
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  const auto near = nearest(first, names);
  throw UsageError(fmt::format("there is no verb '{}'{} (see `tern help`)", first,
                               near ? fmt::format("; did you mean '{}'?", *near) : ""));
}

}  // namespace

std::span<const Verb> verbs() noexcept {
  return kVerbs;
}
std::string_view version() noexcept {
  return TERN_VERSION;
}

int run_command_line(std::span<const std::string_view> arguments) {
  try {
    init_logging(0);
    const int code = dispatch(arguments);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    print_error(fmt::format("cannot write to stdout: {}", std::strerror(errno)));
    return kFailed;
  } catch (const UsageError& error) {
    print_error(error.what());
    return kUsage;
  } catch (const Error& error) {
    print_error(error.what());
    return kFailed;
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return kFailed;
  } catch (const std::exception& error) {
    print_error(fmt::format("unexpected failure: {}", error.what()));
    return kFailed;
  }
}

}  // namespace tern::cli
