#include "text/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "text/json_schema.h"
#include "text/reply_calls.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kMostCalls = 16;  // a model that has lost its way must not call for ever

/// begin (head NAME middle ARGUMENTS tail) between (head ...) end. Without `between` there is one call in an answer.
struct Frame {
  std::string_view begin, head, middle, tail, between, end;
  bool xml = false;  // arguments are tags, not JSON
  bool many = true;
};

Frame frame_of(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermesJson:
      return {"", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n", ""};
    case ToolSyntax::kQwenXml:
      return {"", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>", "\n", "", true};
    case ToolSyntax::kLlama3:
      return {"", "{\"name\": \"", "\", \"parameters\": ", "}", "", "", false, false};
    case ToolSyntax::kMistral:
      return {"[TOOL_CALLS][", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"};
    case ToolSyntax::kMistralArgs:
      return {"", "[TOOL_CALLS]", "[ARGS]", "", "", ""};
    case ToolSyntax::kHarmony:
      return {"", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", "", "", false, false};
    case ToolSyntax::kDeepSeek:
      return {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "",
              "<｜tool▁calls▁end｜>"};
    case ToolSyntax::kDeepSeekFenced:
      return {"<｜tool▁calls▁begin｜>",
              "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
              "\n```json\n",
              "\n```<｜tool▁call▁end｜>",
              "\n",
              "<｜tool▁calls▁end｜>"};
    case ToolSyntax::kNone:
    case ToolSyntax::kPlainJson:
      break;
  }
  return {"", "{\"name\": \"", "\", \"arguments\": ", "}", "", "", false, false};
}

/// `text` as a sequence of literals, and of tokens where the vocabulary has one for `<...>` or `[...]` in it.
std::string spelled(std::string_view text, const Tokenizer& tokenizer) {
  std::string out, plain;
  const auto flush = [&] {
    if (!plain.empty()) out += gbnf_literal(plain) + " ";
    plain.clear();
  };
  while (!text.empty()) {
    const size_t end = text[0] == '<' ? text.find('>') : text[0] == '[' ? text.find(']') : text.npos;
    const auto token = end == text.npos || end == 1 ? std::nullopt : tokenizer.find(text.substr(0, end + 1));
    if (!token) {
      plain += text[0];
      text.remove_prefix(1);
      continue;
    }
    flush();
    out += fmt::format("<[{}]> ", *token);
    text.remove_prefix(end + 1);
  }
  flush();
  return out.empty() ? R"("" )" : out;
}

const Json& function_of(const Json& tool) {
  return tool.contains("function") ? tool["function"] : tool;
}

/// Rules for the part of `document` at `pointer`, or what any JSON of `otherwise` is where no grammar can say more.
std::string schema_rules(const Json& document, const std::string& pointer, const std::string& name, bool strict,
                         std::string_view otherwise) {
  try {
    return gbnf_of_schema_part(document, pointer, name);
  } catch (const Error& error) {
    if (strict || error.code() != ErrorCode::kUnsupported) throw;
    return fmt::format("{} ::= {}\n", name, otherwise);
  }
}

/// The value of a parameter as bare text: strings without their quotes, others in JSON.
std::string bare_value_rules(const Json& parameters, const Json& schema, const std::string& key,
                             const std::string& name, bool strict) {
  const std::vector<std::string> types = types_of(schema);
  const bool text = types.empty() || std::find(types.begin(), types.end(), "string") != types.end();
  if (!text) {
    const std::string pointer = "#" + (Json::json_pointer("/properties") / key).to_string();
    return schema_rules(parameters, pointer, name, strict, "value");
  }
  std::string choices;
  if (schema.is_object() && schema.contains("enum") && schema["enum"].is_array())
    for (const Json& value : schema["enum"])
      choices +=
          (choices.empty() ? "" : " | ") + gbnf_literal(value.is_string() ? value.get<std::string>() : value.dump());
  return fmt::format("{} ::= {}\n", name, choices.empty() ? "call-text" : choices);
}

/// <parameter=KEY> VALUE </parameter>, in the order of the schema; those that are not required may be left out.
std::string xml_rules(const Json& function, const Json& parameters, const std::string& name, bool strict) {
  const ToolList tools(Json::array({function}));
  const Json required = parameters.value("required", Json::array());
  std::string rule = fmt::format(R"({} ::= "" )", name), rules;
  int32_t count = 0;
  const Json properties = parameters.value("properties", Json::object());
  if (!properties.is_object())
    fail(ErrorCode::kInvalidArgument, "the properties of {} are no object", function["name"].dump());
  for (const auto& [key, unused] : properties.items()) {
    const std::string value = fmt::format("{}-p{}", name, ++count);
    rules += bare_value_rules(parameters, tools.parameter(function["name"], key), key, value, strict);
    const bool needed = std::find(required.begin(), required.end(), Json(key)) != required.end();
    rule += fmt::format("({} {} {}){} ", gbnf_literal("<parameter=" + key + ">\n"), value,
                        gbnf_literal("\n</parameter>\n"), needed ? "" : "?");
  }
  return rule + "\n" + rules;
}

std::string arguments_rules(const Json& function, const std::string& name, bool xml) {
  const bool strict = function.value("strict", Json(false)) == Json(true);
  Json parameters = function.value("parameters", Json(nullptr));
  if (parameters.is_null()) parameters = {{"type", "object"}, {"properties", Json::object()}};
  if (!parameters.is_object())
    fail(ErrorCode::kInvalidArgument, "the parameters of the tool {} are no schema", function["name"].dump());
  if (xml) return xml_rules(function, parameters, name, strict);
  if (!parameters.contains("type")) parameters["type"] = "object";
  return schema_rules(parameters, "#", name, strict, "object");
}

}  // namespace

ToolSyntax syntax_of_forced_calls(ToolSyntax syntax) {
  return syntax == ToolSyntax::kNone ? ToolSyntax::kPlainJson : syntax;
}

std::string gbnf_of_calls(ToolSyntax syntax, const Json& tools, bool many, const Tokenizer& tokenizer) {
  const Frame frame = frame_of(syntax);
  std::string rules, choice;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = function_of(tools[i]);
    const std::string name = fmt::format("call-{}-arguments", i);
    std::string shown = function["name"].get<std::string>();
    if (!frame.xml) shown = Json(shown).dump(), shown = shown.substr(1, shown.size() - 2);
    choice +=
        fmt::format("{}{} {}{}", i == 0 ? "" : " | ", gbnf_literal(shown), spelled(frame.middle, tokenizer), name);
    rules += arguments_rules(function, name, frame.xml);
  }
  if (frame.xml)
    rules += gbnf_of_text_without({"</parameter>", "\n</function>", "\n<parameter=", "\n</tool_call>"}, "call-text");
  const std::string call = spelled(frame.head, tokenizer) + "(" + choice + ") " + spelled(frame.tail, tokenizer);
  std::string out = "calls ::= " + spelled(frame.begin, tokenizer) + "call ";
  if (syntax == ToolSyntax::kHarmony) out = "calls ::= (" + spelled("<|start|>assistant", tokenizer) + ")? call ";
  if (many && frame.many) out += fmt::format("({}call){{0,{}}} ", spelled(frame.between, tokenizer), kMostCalls - 1);
  return out + spelled(frame.end, tokenizer) + "\ncall ::= " + call + "\n" + rules;
}

std::string gbnf_of_content(ToolSyntax syntax, const std::string& content, const Tokenizer& tokenizer) {
  if (syntax != ToolSyntax::kHarmony) return content;
  return fmt::format("({})? {} {}", spelled("<|start|>assistant", tokenizer),
                     spelled("<|channel|>final<|message|>", tokenizer), content);
}

}  // namespace tern::text
