// How a model writes calls and thoughts, found by letting its template write some.
#include <array>

#include "base/error.h"
#include "text/reply_parser.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kName = "tern_probe_call";
constexpr std::string_view kArgument = "tern_probe_argument";

/// What the template writes for a call of kName; empty when it writes none.
std::string rendered_call(const ChatTemplate& chat_template) {
  const Json parameters = {{"type", "object"},
                           {"properties", {{kArgument, {{"type", "string"}, {"description", "x"}}}}}};
  RenderOptions options;
  options.add_generation_prompt = false;
  options.tools = Json::array(
      {{{"type", "function"}, {"function", {{"name", "other"}, {"description", "x"}, {"parameters", parameters}}}}});
  const Json function = {{"name", kName}, {"arguments", {{kArgument, "x"}}}};
  const Json call = {{"id", "call00001"}, {"type", "function"}, {"function", function}};
  for (const Json& content : {Json(""), Json(nullptr), Json("x")}) {
    const Json messages =
        Json::array({{{"role", "user"}, {"content", "x"}},
                     {{"role", "assistant"}, {"content", content}, {"tool_calls", Json::array({call})}},
                     {{"role", "tool"}, {"tool_call_id", "call00001"}, {"name", kName}, {"content", "x"}}});
    try {
      const std::string text = chat_template.render(messages, options);
      const size_t at = text.find(kName);
      if (at == text.npos) continue;
      // From the line of the call on, with the markup in front of it.
      const size_t start = at < 64 ? 0 : at - 64;
      return text.substr(start);
    } catch (const Error&) {
      // A template may refuse one form of this conversation and take another.
    }
  }
  return {};
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

ToolSyntax tool_syntax(std::string_view call, std::string_view source) {
  if (has(source, "<|channel|>") && has(source, "<|message|>")) return ToolSyntax::kHarmony;
  if (!has(source, "tools") && !has(source, "tool_calls")) return ToolSyntax::kNone;
  // A template that does not write calls back has them in its instructions.
  const std::string_view shown = call.empty() ? source : call;
  if (has(shown, "[TOOL_CALLS]")) return has(shown, "[ARGS]") ? ToolSyntax::kMistralArgs : ToolSyntax::kMistral;
  if (has(shown, "<｜tool▁call▁begin｜>"))
    return has(shown, "```json") ? ToolSyntax::kDeepSeekFenced : ToolSyntax::kDeepSeek;
  if (has(shown, "<function=")) return ToolSyntax::kQwenXml;
  if (has(shown, "<arg_key>")) return ToolSyntax::kNone;
  const bool json = has(call, "\"name\": \"" + std::string(kName)) || has(call, "\"name\":\"" + std::string(kName));
  if (has(shown, "<tool_call>") && (json || call.empty())) return ToolSyntax::kHermesJson;
  if (has(source, "<|python_tag|>")) return ToolSyntax::kLlama3;
  if (json) return has(call, "\"parameters\":") ? ToolSyntax::kLlama3 : ToolSyntax::kPlainJson;
  return ToolSyntax::kNone;
}

}  // namespace

ReplyFormat probe_reply_format(const ChatTemplate& chat_template, std::string_view source) {
  ReplyFormat out{tool_syntax(rendered_call(chat_template), source), {}, {}};
  if (out.tools == ToolSyntax::kHarmony) return out;  // thoughts have a channel of their own
  constexpr std::array<std::array<std::string_view, 2>, 4> kThoughts = {{{"<think>", "</think>"},
                                                                         {"[THINK]", "[/THINK]"},
                                                                         {"<seed:think>", "</seed:think>"},
                                                                         {"<|START_THINKING|>", "<|END_THINKING|>"}}};
  for (const auto& [open, close] : kThoughts) {
    if (!has(source, close)) continue;
    out.think_open = open;
    out.think_close = close;
    break;
  }
  return out;
}

}  // namespace tern::text
