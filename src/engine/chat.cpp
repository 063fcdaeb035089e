#include "engine/chat.h"

namespace tern {

std::optional<text::ChatTemplate> chat_template(const gguf::File& file, const text::Tokenizer& tokenizer) {
  const auto source = file.metadata().get_string("tokenizer.chat_template");
  if (!source || source->empty()) return std::nullopt;
  const auto text_of = [&](std::optional<int32_t> id) { return id ? tokenizer.token_text(*id) : std::string(); };
  return text::ChatTemplate::from_source(*source, text_of(tokenizer.bos()), text_of(tokenizer.eos()));
}

Chat::Chat(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer, std::string system)
    : template_(chat_template), tokenizer_(tokenizer), system_(std::move(system)) {}

void Chat::add(const char* role, const std::string& text) {
  messages_.push_back({{"role", role}, {"content", text}});
}

std::vector<int32_t> Chat::prompt() const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  for (const auto& message : messages_) messages.push_back(message);
  const std::string text = template_.render(messages);
  return tokenizer_.encode(text, {.add_special = !template_.starts_with_bos(text), .parse_special = true});
}

}  // namespace tern
