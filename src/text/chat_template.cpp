#include "text/chat_template.h"

#include <array>

#include "base/error.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;

// Arguments that no template writes by itself, and how Python prints them as JSON and as a dict.
constexpr std::string_view kProbeKey = "tern_probe";
const Json kProbeArguments = {{"tern_probe", 41}};
constexpr std::string_view kProbeJson = R"({"tern_probe": 41})";
constexpr std::string_view kProbeRepr = "{'tern_probe'";
// Six renderings of three short messages: together they may take what one of a user's may.
constexpr jinja::Limits kProbeLimits{.memory = jinja::Limits{}.memory / 8, .work = jinja::Limits{}.work / 8};

// Calls `convert` on the arguments of every tool call.
template <typename Convert>
void convert_arguments(Json& messages, Convert convert) {
  for (Json& message : messages) {
    if (!message.is_object() || !message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      if (!call.is_object()) continue;
      Json& function = call.contains("function") ? call["function"] : call;
      if (function.is_object() && function.contains("arguments")) convert(function["arguments"]);
    }
  }
}

void string_to_object(Json& arguments) {
  if (!arguments.is_string()) return;
  Json parsed = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
  if (parsed.is_object()) arguments = std::move(parsed);
}

void object_to_string(Json& arguments) {
  if (arguments.is_object()) arguments = jinja::python_json(arguments);
}

}  // namespace

ChatTemplate ChatTemplate::from_source(std::string_view text, std::string bos_token, std::string eos_token) {
  ChatTemplate out(jinja::Template::parse(text));
  out.bos_token_ = std::move(bos_token);
  out.eos_token_ = std::move(eos_token);
  out.arguments_ = out.probe_arguments();
  return out;
}

std::string ChatTemplate::render(const Json& messages, const RenderOptions& options) const {
  if (!messages.is_array())
    fail(ErrorCode::kInvalidArgument, "messages must be an array, got {}", messages.type_name());
  if (arguments_ == Arguments::kEither) return render_as_given(messages, options);
  Json converted = messages;
  convert_arguments(converted, arguments_ == Arguments::kObject ? string_to_object : object_to_string);
  return render_as_given(converted, options);
}

std::string ChatTemplate::render_as_given(const Json& messages, const RenderOptions& options) const {
  if (!options.kwargs.is_object()) {
    fail(ErrorCode::kInvalidArgument, "the variables of a chat template must be an object, got {}",
         options.kwargs.type_name());
  }
  // The variables that transformers always defines: templates ask `tools is not none` of them.
  Json variables = {{"messages", messages},
                    {"tools", options.tools},
                    {"documents", nullptr},
                    {"add_generation_prompt", options.add_generation_prompt}};
  if (!bos_token_.empty()) variables["bos_token"] = bos_token_;
  if (!eos_token_.empty()) variables["eos_token"] = eos_token_;
  if (options.enable_thinking) variables["enable_thinking"] = *options.enable_thinking;
  for (const auto& [key, value] : options.kwargs.items()) variables[key] = value;
  return template_.render(variables, options.now.value_or(std::chrono::system_clock::now()));
}

// A conversation with one tool call, with and without text beside it: some templates refuse one or drop the call. The
// first rendering that shows the call, or nothing.
std::optional<std::string> ChatTemplate::probe(const Json& arguments) const {
  ChatTemplate probed = *this;
  probed.template_ = template_.limited_to(kProbeLimits);
  const Json function = {{"name", "probe"}, {"arguments", arguments}};
  const Json call = {{"id", "call00001"}, {"type", "function"}, {"function", function}};
  const Json parameters = {{"type", "object"}, {"properties", {{"x", {{"type", "integer"}, {"description", "x"}}}}}};
  RenderOptions options;
  options.tools = Json::array(
      {{{"type", "function"}, {"function", {{"name", "probe"}, {"description", "x"}, {"parameters", parameters}}}}});
  for (const Json& content : {Json(""), Json("x"), Json(nullptr)}) {
    const Json messages =
        Json::array({{{"role", "user"}, {"content", "x"}},
                     {{"role", "assistant"}, {"content", content}, {"tool_calls", Json::array({call})}},
                     {{"role", "tool"}, {"tool_call_id", "call00001"}, {"name", "probe"}, {"content", "x"}}});
    try {
      std::string text = probed.render_as_given(messages, options);
      if (text.find(kProbeKey) != text.npos) return text;
    } catch (const Error&) {
      // A template that refuses this conversation takes no arguments of this kind, which is what is asked.
    }
  }
  return std::nullopt;
}

ChatTemplate::Arguments ChatTemplate::probe_arguments() const {
  const auto as_object = probe(kProbeArguments);
  const auto as_string = probe(std::string(kProbeJson));
  const auto shows = [](const std::optional<std::string>& text, std::string_view what) {
    return text && text->find(what) != text->npos;
  };
  const bool takes_string = shows(as_string, kProbeJson);
  const bool takes_object = as_object && !shows(as_object, kProbeRepr);
  if (takes_string) return takes_object ? Arguments::kEither : Arguments::kString;
  return Arguments::kObject;  // also when neither shows: an object is what transformers asks its callers for
}

}  // namespace tern::text
