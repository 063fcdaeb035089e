#include "text/reply_parser.h"

#include <algorithm>
#include <array>

#include "text/call_grammar.h"
#include "text/reply_calls.h"

namespace tern::text {
namespace {

using Kind = ReplyDelta::Kind;

constexpr int32_t kMaxAttempts = 32;  // of texts that looked like calls: then all is text, in linear time

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/// What opens a call, by syntax. Markup beside the form's own catches models that drift.
struct Opening {
  std::string_view text;
  CallForm form;
};
std::vector<Opening> openings_of(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermesJson:
    case ToolSyntax::kQwenXml:
      return {{"<tool_call>", CallForm::kTagged}, {"<function=", CallForm::kFunction}};
    case ToolSyntax::kLlama3:
      return {{"<|python_tag|>", CallForm::kPython}, {"<function=", CallForm::kFunction}};
    case ToolSyntax::kMistral:
    case ToolSyntax::kMistralArgs:
      return {{"[TOOL_CALLS]", CallForm::kMistral}};
    case ToolSyntax::kDeepSeek:
    case ToolSyntax::kDeepSeekFenced:
      return {{"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", CallForm::kDeepSeek},
              {"<｜tool▁call▁begin｜>", CallForm::kDeepSeek}};
    case ToolSyntax::kNone:
    case ToolSyntax::kHarmony:
    case ToolSyntax::kPlainJson:
      break;
  }
  return {};
}

/// A whole answer may be a call in JSON without any markup.
bool takes_bare_json(ToolSyntax syntax) {
  return syntax == ToolSyntax::kHermesJson || syntax == ToolSyntax::kQwenXml || syntax == ToolSyntax::kLlama3 ||
         syntax == ToolSyntax::kPlainJson;
}

}  // namespace

struct ReplyParser::Impl final : CallReader::Sink {
  enum class Mode : uint8_t { kContent, kReasoning, kCall, kHeader, kBody };

  const ReplyFormat format;
  const ToolList tools;
  const bool parse_tools, harmony;
  const std::vector<Opening> openings;
  std::vector<std::string_view> tokens;  // that content may not hold the beginning of
  uint64_t seed;

  Mode mode = Mode::kContent;
  Input input;
  std::vector<ReplyDelta> out;
  std::optional<CallReader> call;
  std::string_view opening;   // markup in front of `call`
  std::string blanks;         // of content or reasoning, told once more text follows
  bool started = false;       // content that is not blank, or a call, was seen
  bool after_markup = false;  // blanks in front of content belong to the markup
  bool cut = false;
  int32_t calls = 0, attempts = 0;
  std::string recipient;  // harmony
  bool thinking = false;  // harmony: the message is a thought

  Impl(const ReplyFormat& f, const ReplyOptions& options)
      : format{.tools = options.call_forced ? syntax_of_forced_calls(f.tools) : f.tools,
               .think_open = f.think_open,
               .think_close = f.think_close},
        tools(options.tools),
        parse_tools(options.parse_tools && format.tools != ToolSyntax::kNone),
        harmony(format.tools == ToolSyntax::kHarmony),
        openings(parse_tools ? openings_of(format.tools) : std::vector<Opening>{}),
        seed(options.id_seed) {
    for (const Opening& o : openings) tokens.push_back(o.text);
    if (!format.think_open.empty()) tokens.push_back(format.think_open);
    if (options.in_reasoning) mode = Mode::kReasoning;
    if (harmony) mode = Mode::kHeader, thinking = false;
    after_markup = options.in_reasoning;
  }

  void run() {
    while (step()) {
    }
  }

  bool step() {
    switch (mode) {
      case Mode::kContent:
        return content();
      case Mode::kReasoning:
        return reasoning();
      case Mode::kCall:
        return in_call();
      case Mode::kHeader:
        return header();
      case Mode::kBody:
        return body();
    }
    return false;
  }

  void tell(Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!out.empty() && out.back().kind == kind && kind != Kind::kToolCall) {
      out.back().text += text;
    } else {
      out.push_back({.kind = kind, .text = std::string(text)});
    }
  }

  /// Tells the first `n` bytes of the input but blanks at their end, which wait for what follows.
  void tell_text(Kind kind, size_t n) {
    std::string text = std::exchange(blanks, {}) + input.text.substr(0, n);
    input.text.erase(0, n);
    size_t end = text.size();
    while (end > 0 && is_blank(text[end - 1])) --end;
    if (end == 0 && after_markup) return;
    size_t begin = 0;
    if (after_markup)
      while (is_blank(text[begin])) ++begin;
    blanks = text.substr(end);
    if (end == 0) return;
    after_markup = false;
    if (kind == Kind::kContent) started = true;
    tell(kind, std::string_view(text).substr(begin, end - begin));
  }

  bool content() {
    const bool fresh = !started && attempts < kMaxAttempts;
    size_t first = input.text.npos;
    std::string_view what;
    const Opening* opens = nullptr;
    for (const Opening& o : openings) {
      if (attempts >= kMaxAttempts) break;
      const size_t at = input.text.find(o.text);
      if (at < first) first = at, what = o.text, opens = &o;
    }
    const size_t solid =
        static_cast<size_t>(std::find_if_not(input.text.begin(), input.text.end(), is_blank) - input.text.begin());
    if (fresh && !format.think_open.empty() && solid <= first &&
        input.text.compare(solid, format.think_open.size(), format.think_open) == 0) {
      input.text.erase(0, solid + format.think_open.size());
      mode = Mode::kReasoning;
      blanks.clear();
      after_markup = true;
      return true;
    }
    if (fresh && parse_tools && takes_bare_json(format.tools) && solid < input.text.size() &&
        input.text[solid] == '{') {
      begin_call(CallForm::kBare, {}, solid);
      return true;
    }
    if (opens) {
      tell_text(Kind::kContent, first);
      begin_call(opens->form, what, 0);
      return true;
    }
    const size_t held = input.ended ? 0 : held_back(input.text, tokens);
    tell_text(Kind::kContent, input.text.size() - held);
    return false;
  }

  bool reasoning() {
    const size_t end = input.text.find(format.think_close);
    if (end == input.text.npos) {
      const std::array<std::string_view, 1> close = {format.think_close};
      tell_text(Kind::kReasoning, input.text.size() - (input.ended ? 0 : held_back(input.text, close)));
      return false;
    }
    tell_text(Kind::kReasoning, end);
    input.text.erase(0, format.think_close.size());
    blanks.clear();
    after_markup = true;
    mode = Mode::kContent;
    return true;
  }

  std::string leading;  // blanks in front of a call that may turn out to be none

  void begin_call(CallForm form, std::string_view markup, size_t blank) {
    leading = std::exchange(blanks, {}) + input.text.substr(0, blank);
    input.text.erase(0, blank + markup.size());
    opening = markup;
    call.emplace(form, tools, *this);
    mode = Mode::kCall;
  }

  bool in_call() {
    if (cut) call->cut();
    const int32_t before = calls;
    const CallReader::Result result = call->read(input);
    if (calls > before) leading.clear();
    if (result == CallReader::Result::kMore) return false;
    mode = Mode::kContent;
    if (result == CallReader::Result::kDone) {
      started = true;
      after_markup = true;
      // Between calls thoughts may begin again.
      started = false;
    } else {
      ++attempts;
      std::string rest = call->taken() + input.text;
      // Its first character is told, so that the same text is not tried again.
      input.text = after_markup ? std::string(opening) : leading + std::string(opening);
      if (opening.empty()) input.text += rest.substr(0, 1), rest.erase(0, 1);
      tell_text(Kind::kContent, input.text.size());
      input.text = std::move(rest);
    }
    leading.clear();
    call.reset();
    return true;
  }

  void begin_call(const std::string& name) override {
    out.push_back({.kind = Kind::kToolCall, .call = calls++, .id = new_id(), .name = name});
  }
  void arguments(std::string_view text) override {
    if (text.empty()) return;
    if (out.empty() || out.back().kind != Kind::kToolCall || out.back().call != calls - 1) {
      out.push_back({.kind = Kind::kToolCall, .text = std::string(text), .call = calls - 1});
    } else {
      out.back().text += text;
    }
  }

  /// Letters and digits: nine where Mistral's templates want so many.
  std::string new_id() {
    constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const bool mistral = format.tools == ToolSyntax::kMistral || format.tools == ToolSyntax::kMistralArgs;
    std::string id = mistral ? "" : "call_";
    for (size_t i = 0; i < (mistral ? 9u : 24u); ++i) {
      uint64_t z = (seed += 0x9E3779B97F4A7C15u);
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      id += kAlphabet[(z ^ (z >> 31)) % kAlphabet.size()];
    }
    return id;
  }

  // Harmony: <|start|>assistant<|channel|>NAME to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|>

  static constexpr size_t kLongestHeader = 512;
  static constexpr std::string_view kMessage = "<|message|>";
  static constexpr std::array<std::string_view, 5> kEnds = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                                            "<|channel|>"};

  bool header() {
    constexpr std::array<std::string_view, 4> kBegins = {"<|channel|>", "<|start|>", "<|message|>", " to="};
    const bool possible =
        std::any_of(kBegins.begin(), kBegins.end(), [&](std::string_view b) { return input.at(b) != Input::Is::kNo; });
    if (input.text.empty() && input.ended) return false;
    const size_t end = input.text.find(kMessage);
    const bool too_long =
        end == input.text.npos ? input.text.size() > kLongestHeader + kMessage.size() : end > kLongestHeader;
    if (!possible || too_long || (end == input.text.npos && input.ended)) {
      // Text without a header, or a header without its end.
      recipient.clear();
      thinking = false;
      mode = Mode::kBody;
      if (possible) tell_text(Kind::kContent, 1);  // so that it is not read as a header again
      return true;
    }
    if (end == input.text.npos) return false;
    const std::string_view head = std::string_view(input.text).substr(0, end);
    recipient.clear();
    if (const size_t to = head.find("to="); to != head.npos) {
      const std::string_view rest = head.substr(to + 3);
      recipient = rest.substr(0, rest.find_first_of(" <\n"));
      if (recipient == "assistant" || recipient == "user") recipient.clear();
    }
    thinking = head.find("analysis") != head.npos && recipient.empty();
    input.text.erase(0, end + kMessage.size());
    mode = Mode::kBody;
    after_markup = false;
    blanks.clear();
    if (!recipient.empty() && parse_tools) {
      constexpr std::string_view kFunctions = "functions.";
      const std::string name = recipient.starts_with(kFunctions) ? recipient.substr(kFunctions.size()) : recipient;
      leading.clear();
      opening = {};
      message.emplace(CallForm::kHarmony, tools, *this, name);
    }
    return true;
  }

  std::optional<CallReader> message;  // a call in harmony

  bool body() {
    if (message) {
      if (cut) message->cut();
      const CallReader::Result result = message->read(input);
      if (result == CallReader::Result::kMore) return false;
      if (result == CallReader::Result::kNoCall) input.text = message->taken() + input.text;
      message.reset();
      return true;
    }
    const Kind kind = thinking ? Kind::kReasoning : Kind::kContent;
    size_t end = input.text.npos;
    std::string_view what;
    for (const std::string_view token : kEnds) {
      const size_t at = input.text.find(token);
      if (at < end) end = at, what = token;
    }
    if (end == input.text.npos) {
      const size_t held = input.ended ? 0 : held_back(input.text, kEnds);
      tell_text(kind, input.text.size() - held);
      return false;
    }
    tell_text(kind, end);
    if (thinking) blanks.clear();
    if (what != "<|start|>" && what != "<|channel|>") input.text.erase(0, what.size());
    mode = Mode::kHeader;
    return true;
  }
};

ReplyParser::ReplyParser(const ReplyFormat& format, const ReplyOptions& options)
    : impl_(std::make_unique<Impl>(format, options)) {}
ReplyParser::~ReplyParser() = default;
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;

std::vector<ReplyDelta> ReplyParser::push(std::string_view text) {
  impl_->input.text += text;
  impl_->run();
  return std::exchange(impl_->out, {});
}

std::vector<ReplyDelta> ReplyParser::finish(bool cut) {
  impl_->input.ended = true;
  impl_->cut = cut;
  impl_->run();
  const bool said = impl_->mode == Impl::Mode::kContent || (impl_->mode == Impl::Mode::kBody && !impl_->thinking);
  if (said && !impl_->after_markup) impl_->tell(ReplyDelta::Kind::kContent, std::exchange(impl_->blanks, {}));
  return std::exchange(impl_->out, {});
}

}  // namespace tern::text
