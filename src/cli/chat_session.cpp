#include "cli/chat_session.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/line_reader.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "engine/chat.h"

namespace tern::cli {
namespace {

constexpr std::string_view kHelp =
    "  /set NAME VALUE   temp, top-k, top-p, min-p, repeat-, presence- or frequency-penalty, seed, n, system, verbose (on or off)\n"
    "  /show             the model and the settings\n"
    "  /clear            begin a new conversation\n"
    "  /bye              leave (Ctrl-D too)\n"
    "  /? or /help       this\n"
    "  \"\"\" begins and ends a message of several lines; Ctrl-C stops an answer\n";

class Session {
 public:
  Session(Model& model, const text::ChatTemplate& chat_template, const ChatOptions& options)
      : model_(model),
        options_(options),
        chat_(chat_template, model.tokenizer(), options.system),
        sequence_(model.runner().start()) {}

  int loop() {
    fmt::print(stderr, "type a message, or /? for help\n");
    bool interrupted_before = false;
    while (true) {
      const LineReader::Line line = reader_.read_message();
      if (line.end == LineReader::End::kEof) return 0;
      if (line.end == LineReader::End::kInterrupted) {
        if (interrupted_before) return 0;
        interrupted_before = true;
        fmt::print(stderr, "(once more, or Ctrl-D, to leave)\n");
        continue;
      }
      interrupted_before = false;
      if (line.text.find_first_not_of(" \t\n") == std::string::npos) continue;
      try {
        if (!line.text.starts_with('/')) {
          take_turn(line.text);
        } else if (!command(line.text)) {
          return 0;
        }
      } catch (const Error& error) {
        fmt::print(stderr, "{}\n", printable(error.what()));
      } catch (const UsageError& error) {
        fmt::print(stderr, "{}\n", printable(error.what()));
      }
    }
  }

 private:
  void take_turn(const std::string& text) {
    chat_.add_user(text);
    try {
      const InterruptGuard interrupts;
      const Answer result =
          answer(model_, sequence_, chat_.prompt(),
                 {.sampling = options_.sampling.resolve(), .max_tokens = options_.sampling.max_tokens}, interrupts);
      chat_.add_assistant(result.text);
      if (options_.verbose) print_stats(model_, result.stats);
    } catch (const Error&) {
      chat_.drop_last();  // a message that does not fit must not spoil the next one
      throw;
    }
  }

  /// Returns false to leave.
  bool command(const std::string& line) {
    const size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank);
    const std::string rest = blank == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', blank));
    if (name == "/bye" || name == "/exit" || name == "/quit") return false;
    if (name == "/?" || name == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else if (name == "/clear") {
      chat_.clear();
      sequence_.rewind(0);
    } else if (name == "/show") {
      show();
    } else if (name == "/set") {
      const size_t gap = rest.find(' ');
      set(rest.substr(0, gap), gap == std::string::npos ? "" : rest.substr(gap + 1));
    } else {
      fail(ErrorCode::kInvalidArgument, "there is no command {} (/? lists them)", name);
    }
    return true;
  }

  /// The sampling flags without their dashes, checked as they are; and what only a chat has.
  void set(const std::string& name, const std::string& value) {
    FlagSet flags("/set", "");
    options_.sampling.declare(flags);
    const std::string flag = (name.size() == 1 ? "-" : "--") + name;
    if (name == "system")
      chat_.set_system(value);
    else if (name == "verbose")
      options_.verbose = value != "off";
    else if (flags.takes_value(flag))
      flags.assign(flag, value);
    else
      fail(ErrorCode::kInvalidArgument, "there is nothing named '{}' to set (/? lists the names)", name);
  }

  void show() const {
    const SamplerOptions& o = options_.sampling.options;
    fmt::print(stderr, "model    {} ({} parameters)\n", printable(model_.file().path()),
               human_count(parameter_count(model_.file())));
    fmt::print(stderr, "context  {} of {} tokens used\n", sequence_.position(), model_.runner().limits().context);
    fmt::print(stderr, "sampling {} seed {} n {}\n", sampling_text(o), options_.sampling.seed,
               options_.sampling.max_tokens);
    fmt::print(stderr, "system   {}\n", chat_.system().empty() ? "(none)" : printable(chat_.system()));
  }

  Model& model_;
  ChatOptions options_;
  Chat chat_;
  Sequence sequence_;
  LineReader reader_;
};

}  // namespace

int chat_session(Model& model, const text::ChatTemplate& chat_template, const ChatOptions& options) {
  return Session(model, chat_template, options).loop();
}

}  // namespace tern::cli
