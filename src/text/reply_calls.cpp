#include "text/reply_calls.h"

#include <algorithm>

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestName = 256;
constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>",
                           kParameterOpen = "<parameter=", kParameterClose = "</parameter>", kTagClose = "</tool_call>";
constexpr std::string_view kDeepBegin = "<｜tool▁call▁begin｜>", kDeepSep = "<｜tool▁sep｜>",
                           kDeepEnd = "<｜tool▁call▁end｜>", kDeepAllEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kArgs = "[ARGS]", kCallId = "[CALL_ID]";

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string json_quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A value that a model wrote as bare text, as JSON of one of `types`; a string when it is nothing else.
std::string typed_value(std::string_view raw, const std::vector<std::string>& types) {
  const auto may_be = [&](std::string_view type) { return std::find(types.begin(), types.end(), type) != types.end(); };
  const std::string_view text = trimmed(raw);
  if (may_be("null") && (text == "null" || text == "None")) return "null";
  if (may_be("boolean") && (text == "True" || text == "False")) return text == "True" ? "true" : "false";
  const Json value = Json::parse(text, nullptr, false);
  const bool fits =
      !value.is_discarded() && (may_be(value.type_name()) || (value.is_number_integer() && may_be("integer")) ||
                                (value.is_number() && may_be("integer") && !may_be("string")));
  if (fits && !value.is_string()) return std::string(text);
  if ((may_be("object") && text.starts_with('{')) || (may_be("array") && text.starts_with('['))) {
    LenientJson mended("");
    if (text[0] == '{' && mended.read(text) == text.size() && mended.done()) return mended.text();
  }
  if (fits && !may_be("string")) return std::string(text);
  return json_quoted(raw);
}

}  // namespace

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> out;
  if (!schema.is_object()) return out;
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    for (const Json& type : types)
      if (type.is_string()) out.push_back(type.get<std::string>());
  }
  for (const char* word : {"anyOf", "oneOf"})
    if (schema.contains(word) && schema[word].is_array())
      for (const Json& part : schema[word])
        for (std::string& type : types_of(part)) out.push_back(std::move(type));
  for (const char* word : {"enum", "const"})
    if (out.empty() && schema.contains(word)) {
      const Json values = schema[word].is_array() ? schema[word] : Json::array({schema[word]});
      for (const Json& value : values) out.emplace_back(value.type_name());
    }
  return out;
}

size_t held_back(std::string_view text, std::span<const std::string_view> tokens) {
  size_t out = 0;
  for (const std::string_view token : tokens)
    for (size_t n = std::min(text.size(), token.empty() ? 0 : token.size() - 1); n > out; --n)
      if (text.ends_with(token.substr(0, n))) out = n;
  return out;
}

ToolList::ToolList(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (function.is_object() && function.contains("name") && function["name"].is_string()) tools_.push_back(function);
  }
}

const Json* ToolList::find(const std::string& name) const {
  for (const Json& tool : tools_)
    if (tool["name"] == name) return &tool;
  return nullptr;
}

Json ToolList::parameter(const std::string& tool, const std::string& name) const {
  const Json* function = find(tool);
  if (!function || !function->contains("parameters")) return nullptr;
  const Json& parameters = (*function)["parameters"];
  if (!parameters.is_object() || !parameters.contains("properties")) return nullptr;
  const Json& properties = parameters["properties"];
  if (!properties.is_object() || !properties.contains(name)) return nullptr;
  Json out = properties[name];
  if (out.is_object() && out.contains("$ref") && out["$ref"].is_string()) {
    const std::string ref = out["$ref"];
    try {
      if (ref.starts_with("#/")) return parameters.at(Json::json_pointer(ref.substr(1)));
    } catch (const Json::exception&) {
      // A reference to nowhere says nothing about the type.
    }
  }
  return out;
}

CallReader::CallReader(CallForm form, const ToolList& tools, Sink& sink, std::string name)
    : form_(form), tools_(tools), sink_(sink), name_(std::move(name)) {
  if (form == CallForm::kFunction) stage_ = Stage::kName;
  if (form == CallForm::kDeepSeek) stage_ = Stage::kDeepName;
  if (form == CallForm::kPython || form == CallForm::kBare) stage_ = Stage::kJsonStart;
}

CallReader::Result CallReader::read(Input& input) {
  for (;;) {
    switch (step(input)) {
      case Step::kOn:
        break;
      case Step::kWait:
        return Result::kMore;
      case Step::kDone:
        return Result::kDone;
      case Step::kNoCall:
        return Result::kNoCall;
    }
  }
}

CallReader::Step CallReader::step(Input& input) {
  switch (stage_) {
    case Stage::kStart:
      return start(input);
    case Stage::kJsonStart:
      return json_start(input);
    case Stage::kJson:
      return json(input);
    case Stage::kJsonEnd:
      return json_end(input);
    case Stage::kName:
      return function_name(input);
    case Stage::kXmlBody:
      return xml_body(input);
    case Stage::kXmlKey:
      return xml_key(input);
    case Stage::kXmlValue:
      return xml_value(input);
    case Stage::kXmlEnd:
      return xml_end(input);
    case Stage::kDeepName:
      return deep_name(input);
    case Stage::kDeepArguments:
      return deep_arguments(input);
    case Stage::kMistralName:
      return mistral_name(input);
    case Stage::kMistralId:
      return mistral_id(input);
  }
  return Step::kNoCall;
}

void CallReader::take(Input& input, size_t n) {
  if (!called_) taken_ += input.text.substr(0, n);
  input.text.erase(0, n);
}

bool CallReader::skip_blanks(Input& input) {
  size_t n = 0;
  while (n < input.text.size() && is_blank(input.text[n])) ++n;
  take(input, n);
  return !input.text.empty();
}

/// Where markup is no proof of a call, only tools of the request are called.
bool CallReader::wanted(const std::string& name) const {
  if (name.empty() || name.size() > kLongestName) return false;
  return form_ == CallForm::kTagged || form_ == CallForm::kHarmony || form_ == CallForm::kDeepSeek ||
         form_ == CallForm::kMistral || tagged_ || !tools_.known() || tools_.has(name);
}

void CallReader::open_call() {
  if (called_) return;
  called_ = true;
  taken_.clear();
  sink_.begin_call(name_);
}

CallReader::Step CallReader::close_call() {
  called_ = false;
  any_ = true;
  taken_.clear();
  return Step::kOn;
}

CallReader::Step CallReader::start(Input& input) {
  if (!skip_blanks(input)) return input.ended ? Step::kNoCall : Step::kWait;
  if (form_ == CallForm::kHarmony) {
    if (input.text[0] != '{') return Step::kNoCall;
    whole_ = true;
    return begin_json("<|");
  }
  if (form_ == CallForm::kMistral) {
    if (input.text[0] == '[') {
      take(input, 1);
      list_ = true;
      stage_ = Stage::kJsonStart;
    } else {
      stage_ = input.text[0] == '{' ? Stage::kJsonStart : Stage::kMistralName;
    }
    return Step::kOn;
  }
  if (input.text[0] == '{') {
    stage_ = Stage::kJsonStart;
    return Step::kOn;
  }
  const Input::Is function = input.at(kFunctionOpen);
  if (function == Input::Is::kMaybe) return Step::kWait;
  if (function == Input::Is::kNo) return Step::kNoCall;
  take(input, kFunctionOpen.size());
  tagged_ = true;
  stage_ = Stage::kName;
  return Step::kOn;
}

CallReader::Step CallReader::begin_json(std::string_view stop) {
  json_.emplace(stop);
  written_ = 0;
  stage_ = Stage::kJson;
  return Step::kOn;
}

CallReader::Step CallReader::json_start(Input& input) {
  if (!skip_blanks(input)) return input.ended ? Step::kNoCall : Step::kWait;
  if (input.text[0] != '{') return any_ ? Step::kDone : Step::kNoCall;
  name_.clear();
  whole_ = false;
  return begin_json(form_ == CallForm::kTagged ? kTagClose : form_ == CallForm::kPython ? "<|" : "");
}

CallReader::Step CallReader::json(Input& input) {
  take(input, json_->read(input.text));
  const bool stopped = !json_->done() && !input.text.empty() && input.ended;
  if (stopped) take(input, input.text.size());  // half a closing tag at the very end
  const bool end = json_->done() || input.ended;
  if (!json_->done() && end && !(cut_ && called_)) {
    if (!called_ && cut_) return Step::kNoCall;
    json_->close();
  }
  if (!json_header()) return Step::kNoCall;
  if (!end) return Step::kWait;
  return json_->done() ? finish_json() : Step::kDone;
}

/// Tells what is known of the call. False: it is none.
bool CallReader::json_header() {
  const std::string& text = json_->text();
  if (whole_) {
    if (!wanted(name_)) return false;
    open_call();
    sink_.arguments(std::string_view(text).substr(written_));
    written_ = text.size();
    return true;
  }
  const LenientJson::Member* arguments = nullptr;
  for (const LenientJson::Member& member : json_->members()) {
    if (member.key == "arguments" || member.key == "parameters") {
      arguments = &member;
    } else if (member.key == "name" || (member.key == "function" && name_.empty())) {
      if (member.end == std::string::npos || !name_.empty()) continue;
      const Json name =
          Json::parse(std::string_view(text).substr(member.begin, member.end - member.begin), nullptr, false);
      if (!name.is_string()) return false;
      name_ = name.get<std::string>();
      if (!wanted(name_)) return false;
    } else if (form_ == CallForm::kBare && member.key != "type" && member.key != "id") {
      return false;  // an answer in JSON
    }
  }
  if (name_.empty() || !arguments || arguments->begin >= text.size() || text[arguments->begin] != '{') return true;
  open_call();
  const size_t from = std::max(written_, arguments->begin), to = std::min(arguments->end, text.size());
  if (to > from) sink_.arguments(std::string_view(text).substr(from, to - from));
  written_ = std::max(written_, to);
  return true;
}

CallReader::Step CallReader::finish_json() {
  if (!called_) {
    // Arguments that are no object, or none: a string may hold them, a call may have none.
    if (name_.empty()) return Step::kNoCall;
    std::string told = "{}";
    const Json call = Json::parse(json_->text(), nullptr, false);
    if (!call.is_object()) return Step::kNoCall;
    const char* key = call.contains("arguments") ? "arguments" : "parameters";
    if (call.contains(key) && !call[key].is_null()) {
      if (!call[key].is_string()) return Step::kNoCall;
      told = call[key].get<std::string>();
      if (!Json::parse(told, nullptr, false).is_object()) return Step::kNoCall;
    } else if (form_ == CallForm::kBare && !call.contains(key)) {
      return Step::kNoCall;
    }
    open_call();
    sink_.arguments(told);
  }
  close_call();
  stage_ = Stage::kJsonEnd;
  return Step::kOn;
}

/// Behind a call in JSON: what closes it, separates it from the next, or belongs to neither.
CallReader::Step CallReader::json_end(Input& input) {
  struct Token {
    std::string_view text;
    Stage next;
    bool ends;
  };
  static constexpr Token kTagged[] = {{"}", Stage::kJsonEnd, false}, {kTagClose, Stage::kJsonEnd, true}};
  static constexpr Token kFunction[] = {{kFunctionClose, Stage::kXmlEnd, false}};
  static constexpr Token kList[] = {{",", Stage::kJsonStart, false}, {"]", Stage::kJsonEnd, true}};
  static constexpr Token kPython[] = {{";", Stage::kJsonStart, false}};
  static constexpr Token kDeep[] = {{"```", Stage::kJsonEnd, false},
                                    {kDeepEnd, Stage::kJsonEnd, false},
                                    {kDeepBegin, Stage::kDeepName, false},
                                    {kDeepAllEnd, Stage::kJsonEnd, true}};
  std::span<const Token> tokens;
  if (form_ == CallForm::kDeepSeek) {
    tokens = kDeep;
  } else if (form_ == CallForm::kFunction || tagged_) {
    tokens = kFunction;
  } else if (form_ == CallForm::kTagged) {
    tokens = kTagged;
  } else if (form_ == CallForm::kMistral) {
    if (list_) tokens = kList;
  } else if (form_ != CallForm::kHarmony) {
    tokens = kPython;
  }
  size_t blanks = 0;
  while (blanks < input.text.size() && is_blank(input.text[blanks])) ++blanks;
  const Input rest{input.text.substr(blanks), input.ended};
  if (rest.text.empty() && !input.ended && !tokens.empty()) return Step::kWait;
  for (const Token& token : tokens) {
    const Input::Is is = rest.at(token.text);
    if (is == Input::Is::kMaybe) return Step::kWait;
    if (is == Input::Is::kNo) continue;
    input.text.erase(0, blanks + token.text.size());
    stage_ = token.next;
    return token.ends ? Step::kDone : Step::kOn;
  }
  return Step::kDone;
}

CallReader::Step CallReader::function_name(Input& input) {
  const size_t end = input.text.find_first_of("><{\n");
  if (end == input.text.npos && input.text.size() <= kLongestName) return input.ended ? Step::kNoCall : Step::kWait;
  if (end == input.text.npos || input.text[end] != '>') return Step::kNoCall;
  name_ = trimmed(std::string_view(input.text).substr(0, end));
  if (name_.size() >= 2 && name_.front() == '"' && name_.back() == '"') name_ = name_.substr(1, name_.size() - 2);
  if (!wanted(name_)) return Step::kNoCall;
  take(input, end + 1);
  first_key_ = true;
  stage_ = Stage::kXmlBody;
  return Step::kOn;
}

CallReader::Step CallReader::xml_body(Input& input) {
  if (!skip_blanks(input) && !input.ended) return Step::kWait;
  if (!called_ && input.text.starts_with('{')) {
    whole_ = true;
    return begin_json(kFunctionClose);
  }
  const Input::Is parameter = input.at(kParameterOpen), close = input.at(kFunctionClose), tag = input.at(kTagClose);
  if (parameter == Input::Is::kMaybe || close == Input::Is::kMaybe || tag == Input::Is::kMaybe) return Step::kWait;
  if (parameter == Input::Is::kYes) {
    take(input, kParameterOpen.size());
    stage_ = Stage::kXmlKey;
    return Step::kOn;
  }
  if (!called_ && close == Input::Is::kNo && tag == Input::Is::kNo) return Step::kNoCall;
  // Without its closing tag a call ends where something else begins.
  open_call();
  if (!(cut_ && close == Input::Is::kNo)) sink_.arguments(first_key_ ? "{}" : "}");
  if (close == Input::Is::kYes) take(input, kFunctionClose.size());
  close_call();
  stage_ = Stage::kXmlEnd;
  return Step::kOn;
}

CallReader::Step CallReader::xml_key(Input& input) {
  const size_t end = input.text.find_first_of("><\n");
  if (end == input.text.npos && input.text.size() <= kLongestName && !input.ended) return Step::kWait;
  if (end == input.text.npos || end > kLongestName || input.text[end] != '>') {
    if (!called_) return Step::kNoCall;
    sink_.arguments("}");
    close_call();
    return Step::kDone;
  }
  key_ = trimmed(std::string_view(input.text).substr(0, end));
  take(input, end + 1);
  open_call();
  sink_.arguments((first_key_ ? "{" : ", ") + json_quoted(key_) + ": ");
  first_key_ = false;
  const std::vector<std::string> types = types_of(tools_.parameter(name_, key_));
  text_value_ = types.empty() ? tools_.known() : types == std::vector<std::string>{"string"};
  value_begun_ = false;
  stage_ = Stage::kXmlValue;
  return Step::kOn;
}

/// The value ends at its closing tag, or at a line that begins with what can only follow it.
CallReader::Step CallReader::xml_value(Input& input) {
  static constexpr std::string_view kEnds[] = {kParameterClose, "\n</function>", "\n<parameter=", "\n</tool_call>"};
  size_t end = input.text.npos;
  for (const std::string_view token : kEnds) end = std::min(end, input.text.find(token));
  const bool found = end != input.text.npos;
  if (text_value_) {
    if (!value_begun_) {
      if (input.text.empty() && !input.ended) return Step::kWait;
      sink_.arguments("\"");
      value_begun_ = true;
      if (input.text.starts_with('\n') && end != 0) {
        input.text.erase(0, 1);
        return Step::kOn;
      }
    }
    size_t ready = found ? end : input.text.size();
    if (!found && !input.ended) {
      ready -= held_back(input.text, kEnds);
      if (ready > 0 && input.text[ready - 1] == '\n') --ready;  // the last line break belongs to the markup
    } else if (ready > 0 && input.text[ready - 1] == '\n') {
      --ready;
    }
    const std::string piece = json_quoted(std::string_view(input.text).substr(0, ready));
    sink_.arguments(std::string_view(piece).substr(1, piece.size() - 2));
    if (!found && !input.ended) {
      input.text.erase(0, ready);
      return Step::kWait;
    }
    if (!(cut_ && !found)) sink_.arguments("\"");
  } else {
    if (!found && !input.ended) return Step::kWait;
    std::string_view value = std::string_view(input.text).substr(0, end);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    if (!(cut_ && !found)) write_value(value);
  }
  input.text.erase(0, found ? end : input.text.size());
  if (input.at(kParameterClose) == Input::Is::kYes) input.text.erase(0, kParameterClose.size());
  stage_ = Stage::kXmlBody;
  return Step::kOn;
}

void CallReader::write_value(std::string_view value) {
  std::vector<std::string> types = types_of(tools_.parameter(name_, key_));
  // Nothing says what the tools take: what reads as JSON is JSON.
  if (types.empty()) types = {"null", "boolean", "number", "object", "array", "string"};
  sink_.arguments(typed_value(value, types));
}

CallReader::Step CallReader::xml_end(Input& input) {
  size_t blanks = 0;
  while (blanks < input.text.size() && is_blank(input.text[blanks])) ++blanks;
  const Input rest{input.text.substr(blanks), input.ended};
  const Input::Is tag = rest.at(kTagClose);
  if ((rest.text.empty() && !input.ended) || tag == Input::Is::kMaybe) return Step::kWait;
  if (tag == Input::Is::kYes) input.text.erase(0, blanks + kTagClose.size());
  return Step::kDone;
}

CallReader::Step CallReader::deep_name(Input& input) {
  const size_t sep = input.text.find(kDeepSep);
  if (sep == input.text.npos) {
    if (input.text.size() > kLongestName || input.ended) return any_ ? Step::kDone : Step::kNoCall;
    return Step::kWait;
  }
  name_ = trimmed(std::string_view(input.text).substr(0, sep));
  take(input, sep + kDeepSep.size());
  stage_ = Stage::kDeepArguments;
  return Step::kOn;
}

/// Behind the separator: the arguments, or the name (what stood in front was the type) and a fence around them.
CallReader::Step CallReader::deep_arguments(Input& input) {
  const size_t brace = input.text.find('{');
  if (brace == input.text.npos) {
    if (input.text.size() > kLongestName || input.ended) return Step::kNoCall;
    return Step::kWait;
  }
  const std::string_view front = trimmed(std::string_view(input.text).substr(0, brace));
  if (!front.empty()) name_ = trimmed(front.substr(0, front.find('\n')));
  if (name_.empty() || front.size() > kLongestName) return Step::kNoCall;
  take(input, brace);
  whole_ = true;
  return begin_json(kDeepEnd);
}

CallReader::Step CallReader::mistral_name(Input& input) {
  const size_t end = input.text.find_first_of("[{\n");
  if (end == input.text.npos) {
    if (input.text.size() > kLongestName || input.ended) return Step::kNoCall;
    return Step::kWait;
  }
  const Input rest{input.text.substr(end), input.ended};
  const Input::Is arguments = rest.at(kArgs), id = rest.at(kCallId);
  if (arguments == Input::Is::kMaybe || id == Input::Is::kMaybe) return Step::kWait;
  const bool direct = rest.text[0] == '{';
  if (arguments == Input::Is::kNo && id == Input::Is::kNo && !direct) return Step::kNoCall;
  name_ = trimmed(std::string_view(input.text).substr(0, end));
  if (!wanted(name_)) return Step::kNoCall;
  take(input, end + (direct ? 0 : arguments == Input::Is::kYes ? kArgs.size() : kCallId.size()));
  stage_ = Stage::kMistralId;
  return Step::kOn;
}

/// The id, if any, up to the arguments.
CallReader::Step CallReader::mistral_id(Input& input) {
  const size_t brace = input.text.find('{');
  if (brace == input.text.npos) {
    if (input.text.size() > kLongestName || input.ended) return Step::kNoCall;
    return Step::kWait;
  }
  const std::string_view front = trimmed(std::string_view(input.text).substr(0, brace));
  if (!front.empty() && !front.ends_with(kArgs)) return Step::kNoCall;
  take(input, brace);
  whole_ = true;
  return begin_json("");
}

}  // namespace tern::text
