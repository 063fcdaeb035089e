// Inside the reply parser: one run of tool calls, from behind the markup that opens it to where ordinary text goes on.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/reply_json.h"
#include "text/reply_parser.h"

namespace tern::text {

/// The text still to be read, taken from the front.
struct Input {
  std::string text;
  bool ended = false;  // nothing more will come

  enum class Is : uint8_t { kYes, kNo, kMaybe };  // kMaybe: more text decides
  Is at(std::string_view token) const {
    if (text.starts_with(token)) return Is::kYes;
    return !ended && text.size() < token.size() && token.starts_with(text) ? Is::kMaybe : Is::kNo;
  }
};

/// The longest end of `text` with which one of `tokens` begins.
size_t held_back(std::string_view text, std::span<const std::string_view> tokens);

/// How the text behind an opening markup reads.
enum class CallForm : uint8_t {
  kTagged,    // <tool_call>: JSON, or <function=name>
  kFunction,  // <function=: a name, then parameters or JSON
  kMistral,   // [TOOL_CALLS]: a list, or name [ARGS] JSON
  kPython,    // <|python_tag|>: JSON
  kBare,      // JSON alone
  kDeepSeek,  // <｜tool▁call▁begin｜>
  kHarmony,   // JSON behind a header that named the function
};

/// The types that a schema lets a value have; empty: it does not say.
std::vector<std::string> types_of(const nlohmann::ordered_json& schema);

/// Tools of a request by name, as far as a reply needs them.
class ToolList {
 public:
  explicit ToolList(const nlohmann::ordered_json& tools);
  bool known() const noexcept { return !tools_.empty(); }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  /// The schema of a parameter; null when the tool does not say.
  nlohmann::ordered_json parameter(const std::string& tool, const std::string& name) const;

 private:
  const nlohmann::ordered_json* find(const std::string& name) const;
  std::vector<nlohmann::ordered_json> tools_;  // function objects
};

class CallReader {
 public:
  /// `name`: of the function, where it stood in front. `sink` hears pieces of calls: name in the first of each.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void begin_call(const std::string& name) = 0;
    virtual void arguments(std::string_view text) = 0;
  };
  CallReader(CallForm form, const ToolList& tools, Sink& sink, std::string name = {});

  enum class Result : uint8_t { kMore, kDone, kNoCall };
  /// Takes from `input` what belongs to calls. kDone: the rest is text. kNoCall: this is none; what was taken since the
  /// last call ended is in taken().
  Result read(Input& input);
  const std::string& taken() const noexcept { return taken_; }
  /// The answer was cut: leave an open call open.
  void cut() noexcept { cut_ = true; }

 private:
  enum class Stage : uint8_t {
    kStart,
    kJsonStart,
    kJson,
    kJsonEnd,
    kName,
    kXmlBody,
    kXmlKey,
    kXmlValue,
    kXmlEnd,
    kDeepName,
    kDeepArguments,
    kMistralName,
    kMistralId
  };
  enum class Step : uint8_t { kOn, kWait, kDone, kNoCall };
  Step step(Input& input);
  Step start(Input& input);
  Step json_start(Input& input);
  Step json(Input& input);
  Step json_end(Input& input);
  Step function_name(Input& input);
  Step xml_body(Input& input);
  Step xml_key(Input& input);
  Step xml_value(Input& input);
  Step xml_end(Input& input);
  Step deep_name(Input& input);
  Step deep_arguments(Input& input);
  Step mistral_name(Input& input);
  Step mistral_id(Input& input);

  void take(Input& input, size_t n);
  bool skip_blanks(Input& input);  // false: nothing is left
  void open_call();
  Step close_call();
  Step begin_json(std::string_view stop);
  bool json_header();
  Step finish_json();
  void write_value(std::string_view value);
  bool wanted(const std::string& name) const;

  const CallForm form_;
  const ToolList& tools_;
  Sink& sink_;
  Stage stage_ = Stage::kStart;
  std::string taken_, name_, key_, line_end_;
  std::optional<LenientJson> json_;
  size_t written_ = 0;   // bytes of json_ that were told
  bool whole_ = false;   // json_ is the arguments, not a call around them
  bool called_ = false;  // begin_call of the open call was told
  bool any_ = false;     // a call has ended
  bool list_ = false;    // in a JSON list
  bool first_key_ = true;
  bool text_value_ = false, value_begun_ = false;
  bool tagged_ = false;  // <function= inside <tool_call>
  bool cut_ = false;
};

}  // namespace tern::text
