// tern run: answers one prompt, or chats when there is none and a person is there.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/chat_session.h"
#include "cli/flags.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/trace.h"
#include "cli/verbs.h"
#include "engine/chat.h"

namespace tern::cli {
namespace {

constexpr int kInterrupted = 130;

struct Flags {
  ModelFlags model;
  SamplingFlags sampling;
  TraceFlags trace;
  std::vector<std::string> words;  // positional: [MODEL] [PROMPT...]
  std::string prompt, prompt_file, system;
  bool no_conversation = false, conversation = false, verbose = false;
};

/// Sorts out `[MODEL] [PROMPT...]`: the first word is a model unless -m named one or it has blanks, which a name never
/// has.
void place_words(Flags& flags) {
  std::vector<std::string>& words = flags.words;
  if (words.empty()) return;
  if (flags.model.file.path.empty() && words[0].find_first_of(" \n\t") == std::string::npos) {
    flags.model.file.path = words[0];
    words.erase(words.begin());
  }
  for (const std::string& word : words) flags.prompt += (flags.prompt.empty() ? "" : " ") + word;
}

/// -p, -f and stdin, in that order, each on a line of its own.
std::string whole_prompt(const Flags& flags) {
  std::string text = flags.prompt;
  const auto append = [&](const std::string& more) {
    if (!text.empty() && !more.empty() && text.back() != '\n') text += '\n';
    text += more;
  };
  if (!flags.prompt_file.empty()) append(read_text_file(flags.prompt_file));
  if (stdin_has_text()) append(read_stdin());
  return text;
}

void print_banner(Model& model) {
  const BackendInfo info = model.backend().info();
  const Runner::Limits& limits = model.runner().limits();
  const MemoryNeed& need = model.memory();
  fmt::print(stderr, "tern {} | {} on {}\n", version(), info.name, info.device);
  fmt::print(stderr, "{} ({}, {} parameters, {:.2f} bits a weight), loaded in {:.2f} s\n",
             printable(model_name(model.file())), model.plan().architecture, human_count(parameter_count(model.file())),
             bits_per_weight(model.file()), model.load_seconds());
  const int64_t trained = model.plan().n_context_train;
  fmt::print(stderr, "context {} tokens{}, KV {}/{} {}, memory {}\n", limits.context,
             trained > 0 && limits.context > trained ? fmt::format(" (trained for {})", trained) : "",
             kv_type_name(limits.k), kv_type_name(limits.v), human_bytes(need.kv), human_bytes(need.total()));
  for (const std::string& line : placement_lines(model.placement())) fmt::print(stderr, "{}\n", line);
}

std::vector<int32_t> prompt_tokens(const Flags& flags, Model& model, const std::string& text) {
  const auto chat_form = flags.no_conversation ? std::nullopt : chat_template(model.file(), model.tokenizer());
  if (!chat_form) {
    if (flags.conversation)
      fail(ErrorCode::kUnsupported, "{} has no chat template: it cannot chat, only continue a text (--no-cnv -p TEXT)",
           model_name(model.file()));
    if (!flags.system.empty())
      fail(ErrorCode::kInvalidArgument, "a system prompt needs a chat template, and {}",
           flags.no_conversation ? "--no-cnv turns it off" : model_name(model.file()) + " has none");
    return model.tokenizer().encode(text, {.add_special = true, .parse_special = true});
  }
  Chat chat(*chat_form, model.tokenizer(), flags.system);
  chat.add_user(text);
  return chat.prompt();
}

int answer_once(const Flags& flags, Model& model, const std::string& text) {
  const std::vector<int32_t> tokens = prompt_tokens(flags, model, text);
  if (tokens.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty: there is nothing to continue");
  model.runner().require_room(static_cast<int64_t>(tokens.size()));
  if (const auto code = trace_prompt(flags.trace, flags.model, model, tokens)) return *code;
  const InterruptGuard interrupts;
  Sequence sequence = model.runner().start();
  const Answer result = answer(
      model, sequence, tokens,
      {.sampling = flags.sampling.resolve(), .max_tokens = flags.sampling.max_tokens, .quiet = flags.model.quiet},
      interrupts);
  if (!flags.model.quiet) print_stats(model, result.stats);
  return interrupts.interrupted() ? kInterrupted : 0;
}

/// Takes the sampling that the file recommends, and says so.
void take_file_sampling(Flags& flags, const gguf::File& file, const FlagSet& set) {
  const FileSampling recommended = file_sampling(file.metadata());
  flags.sampling.take_file(recommended, set);
  if (flags.model.quiet) return;
  if (!recommended.values.empty())
    fmt::print(stderr, "sampling {}, where no flag says otherwise as the file recommends\n",
               sampling_text(flags.sampling.options));
  for (const std::string& key : recommended.ignored)
    fmt::print(stderr, "tern: the file has {}, which is not implemented: it has no effect\n", printable(key));
}

int run(Flags& flags, const FlagSet& set) {
  if (flags.no_conversation && flags.conversation) throw UsageError("--conversation and --no-cnv exclude each other");
  place_words(flags);
  const std::string text = whole_prompt(flags);
  const bool chatting = text.empty() && stdin_is_terminal();
  if (text.empty() && !chatting) throw UsageError("no prompt: give one with -p, -f or on stdin");
  if (chatting && flags.no_conversation) throw UsageError("--no-cnv needs a prompt (-p or -f)");
  const auto model = flags.model.load();
  if (!flags.model.quiet) print_banner(*model);
  take_file_sampling(flags, model->file(), set);
  if (!chatting) return answer_once(flags, *model, text);
  const auto chat_form = chat_template(model->file(), model->tokenizer());
  if (!chat_form)
    fail(ErrorCode::kUnsupported, "{} has no chat template: it cannot chat, only continue a text (--no-cnv -p TEXT)",
         model_name(model->file()));
  return chat_session(*model, *chat_form,
                      {.system = flags.system, .sampling = flags.sampling, .verbose = flags.verbose});
}

}  // namespace

Action setup_run(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, false);
  set.words("WORDS", flags->words, "[MODEL] [PROMPT...]: a .gguf file, then what to answer");
  set.option("-p,--prompt", flags->prompt, "the prompt; text on stdin is appended");
  set.option("-f,--file", flags->prompt_file, "take the prompt from a file");
  set.option("--system-prompt", flags->system, "-sys: the system prompt");
  set.flag("--no-cnv,--no-conversation", flags->no_conversation,
           "continue the prompt as it stands, without the chat template");
  set.flag("--conversation", flags->conversation, "-cnv: use the chat template (the default where the model has one)");
  set.flag("-v,--verbose", flags->verbose, "in a chat: a line of figures after every answer");
  flags->sampling.declare(set);
  flags->trace.declare(set);
  return [flags, &set] { return run(*flags, set); };
}

}  // namespace tern::cli
