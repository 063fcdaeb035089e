// A conversation in the model's own template: messages to the tokens the model was trained on.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tern {

/// The template a file carries; nothing when it carries none. kBadFile when it is no template.
std::optional<text::ChatTemplate> chat_template(const gguf::File& file, const text::Tokenizer& tokenizer);

/// Messages so far, rendered anew for every turn: templates may drop or rewrite earlier turns.
class Chat {
 public:
  /// Both outlive the Chat. An empty `system` makes no system message.
  Chat(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer, std::string system);

  void set_system(std::string system) { system_ = std::move(system); }
  const std::string& system() const noexcept { return system_; }
  void clear() { messages_ = nlohmann::ordered_json::array(); }
  void add_user(const std::string& text) { add("user", text); }
  void add_assistant(const std::string& text) { add("assistant", text); }
  /// Takes back the last message (a user's whose answer failed).
  void drop_last() { messages_.erase(messages_.size() - 1); }
  /// The conversation and the opening of the assistant's turn, as tokens; BOS once.
  std::vector<int32_t> prompt() const;

 private:
  void add(const char* role, const std::string& text);

  const text::ChatTemplate& template_;
  const text::Tokenizer& tokenizer_;
  std::string system_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace tern
