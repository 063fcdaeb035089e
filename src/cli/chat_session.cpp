#include "cli/chat_session.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/line_reader.h"
#include "cli/model_summary.h"
#include "engine/chat.h"

namespace tern::cli {
namespace {

constexpr std::string_view kHelp =
    "  /set NAME VALUE   temp, top-k, top-p, min-p, repeat-penalty, seed, n, system, verbose (on or off)\n"
    "  /show             the model and the settings\n"
    "  /clear            begin a new conversation\n"
    "  /bye              leave (Ctrl-D too)\n"
    "  /? or /help       this\n"
    "  \"\"\" begins and ends a message of several lines; Ctrl-C stops an answer\n";

/// Numbers of `/set`: the same names as the flags, without their dashes.
template <typename T>
T parse_number(std::string_view name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(ErrorCode::kInvalidArgument, "/set {}: '{}' is not a number it can be", name, text);
  return value;
}

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
        fmt::print(stderr, "{}\n", error.what());
      }
    }
  }

 private:
  void take_turn(const std::string& text) {
    chat_.add_user(text);
    try {
      const InterruptGuard interrupts;
      const Answer result = answer(model_, sequence_, chat_.prompt(), options_.sampling.resolve(),
                                   options_.sampling.max_tokens, interrupts);
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

  void set(const std::string& name, const std::string& value) {
    SamplerOptions& o = options_.sampling.options;
    if (name == "temp")
      o.temperature = parse_number<float>(name, value);
    else if (name == "top-k")
      o.top_k = parse_number<int32_t>(name, value);
    else if (name == "top-p")
      o.top_p = parse_number<float>(name, value);
    else if (name == "min-p")
      o.min_p = parse_number<float>(name, value);
    else if (name == "repeat-penalty")
      o.repeat_penalty = parse_number<float>(name, value);
    else if (name == "seed")
      options_.sampling.seed = parse_number<int64_t>(name, value);
    else if (name == "n")
      options_.sampling.max_tokens = parse_number<int32_t>(name, value);
    else if (name == "system")
      chat_.set_system(value);
    else if (name == "verbose")
      options_.verbose = value != "off";
    else
      fail(ErrorCode::kInvalidArgument, "there is nothing named '{}' to set (/? lists the names)", name);
  }

  void show() const {
    const SamplerOptions& o = options_.sampling.options;
    fmt::print(stderr, "model    {} ({} parameters)\n", model_.file().path(),
               human_count(parameter_count(model_.file())));
    fmt::print(stderr, "context  {} of {} tokens used\n", sequence_.position(), model_.runner().limits().context);
    fmt::print(stderr, "sampling temp {} top-k {} top-p {} min-p {} repeat-penalty {} seed {} n {}\n", o.temperature,
               o.top_k, o.top_p, o.min_p, o.repeat_penalty, options_.sampling.seed, options_.sampling.max_tokens);
    fmt::print(stderr, "system   {}\n", chat_.system().empty() ? "(none)" : chat_.system());
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
