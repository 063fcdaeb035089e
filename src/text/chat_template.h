// The chat template of a model file: messages to the text the model was trained on. There is no built-in template and
// no guess: a file without one has no chat mode, and a template that fails is an error.
//
// BOS once: many templates write the BOS token themselves, and a tokenizer may add one too. Encode what render()
// returns with special tokens parsed, and with `add_special = !starts_with_bos(text)`.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja.h"

namespace tern::text {

struct RenderOptions {
  /// Functions the model may call: an array as in OpenAI's API ({"type": "function", "function": {...}}), or null.
  nlohmann::ordered_json tools = nullptr;
  /// End with the opening of an assistant's turn.
  bool add_generation_prompt = true;
  /// Sets the variable of that name. Not given: the template's own default.
  std::optional<bool> enable_thinking;
  /// Further variables of the template (an object), e.g. reasoning_effort. They win over everything above.
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();
  /// The clock of strftime_now, shown in local time. Not given: the real one.
  std::optional<std::chrono::system_clock::time_point> now;
};

class ChatTemplate {
 public:
  /// `bos_token` and `eos_token` are the texts of those tokens; empty ones are undefined in the template.
  /// Throws tern::Error{kBadFile} when `text` is no template.
  static ChatTemplate from_source(std::string_view text, std::string bos_token, std::string eos_token);

  /// `messages`: an array of objects with role, content and what else the template reads (tool_calls,
  /// reasoning_content, tool_call_id, name...). Objects keep the order of their keys. Throws tern::Error:
  /// kInvalidArgument, with the template's own words, when it refuses the conversation; see jinja.h for the rest.
  ///
  /// Clients send the `arguments` of a tool call as a string of JSON, some templates need an object and some a string.
  /// They are converted where the template cannot take them as they are, in either direction, and left alone otherwise.
  std::string render(const nlohmann::ordered_json& messages, const RenderOptions& options = {}) const;

  /// Whether `rendered` begins with the BOS token's text: then the tokenizer must not add another.
  bool starts_with_bos(std::string_view rendered) const {
    return !bos_token_.empty() && rendered.starts_with(bos_token_);
  }

  /// How the template reads the arguments of tool calls; found by rendering two small conversations.
  enum class Arguments { kEither, kObject, kString };
  Arguments arguments() const noexcept { return arguments_; }

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}
  std::string render_as_given(const nlohmann::ordered_json& messages, const RenderOptions& options) const;
  std::optional<std::string> probe(const nlohmann::ordered_json& arguments) const;
  Arguments probe_arguments() const;

  jinja::Template template_;
  std::string bos_token_;
  std::string eos_token_;
  Arguments arguments_ = Arguments::kEither;
};

}  // namespace tern::text
