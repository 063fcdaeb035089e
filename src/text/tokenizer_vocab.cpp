#include "text/tokenizer_vocab.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

namespace tern::text {
namespace {

void check_length(std::string_view key, size_t found, size_t wanted) {
  if (found == wanted) return;
  fail(ErrorCode::kBadFile, "{} has {} entries, but tokenizer.ggml.tokens has {}: the file is damaged", key, found,
       wanted);
}

TokenType token_type(int64_t value, size_t id) {
  if (value >= 1 && value <= 6) return static_cast<TokenType>(value);
  // 0 is llama.cpp's "undefined": a token like any other.
  if (value == 0) return TokenType::kNormal;
  fail(ErrorCode::kBadFile, "tokenizer.ggml.token_type[{}] is {}; types are 0 to 6", id, value);
}

}  // namespace

Vocabulary::Vocabulary(const gguf::Metadata& metadata) {
  const std::vector<std::string>* tokens = metadata.get_strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->empty()) {
    fail(ErrorCode::kBadFile, "the file has no tokenizer.ggml.tokens, so text cannot be turned into tokens");
  }
  // Symbols of merging are ids and, above them, code points; both must fit an int32.
  constexpr size_t kMostTokens = std::numeric_limits<int32_t>::max() - 0x110000;
  if (tokens->size() > kMostTokens) {
    fail(ErrorCode::kBadFile, "tokenizer.ggml.tokens has {} entries, more than {}", tokens->size(), kMostTokens);
  }
  for (const std::string& token : *tokens) texts.add(token);

  types.assign(texts.size(), TokenType::kNormal);
  if (const auto values = metadata.get_ints("tokenizer.ggml.token_type")) {
    check_length("tokenizer.ggml.token_type", values->size(), texts.size());
    for (size_t i = 0; i < types.size(); ++i) types[i] = token_type((*values)[i], i);
  }
  if (const gguf::Value* value = metadata.find("tokenizer.ggml.scores"); value != nullptr) {
    const auto values = metadata.get_floats("tokenizer.ggml.scores");
    check_length("tokenizer.ggml.scores", values->size(), texts.size());
    scores.assign(values->begin(), values->end());
    for (size_t i = 0; i < scores.size(); ++i) {
      if (std::isnan(scores[i])) fail(ErrorCode::kBadFile, "tokenizer.ggml.scores[{}] is not a number", i);
    }
  }

  slots_.assign(std::bit_ceil(2 * texts.size()), -1);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;  // a hole in the list: nothing spells it
    int32_t& id = slots_[slot_of(texts[i])];
    if (id >= 0) fail(ErrorCode::kBadFile, "tokenizer.ggml.tokens has '{}' twice, as {} and {}", texts[i], id, i);
    id = static_cast<int32_t>(i);
  }
}

size_t Vocabulary::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t i = std::hash<std::string_view>()(text) & mask;
  while (slots_[i] >= 0 && this->text(slots_[i]) != text) i = (i + 1) & mask;
  return i;
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const int32_t id = slots_[slot_of(text)];
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<int32_t> Vocabulary::find_ordinary(std::string_view text) const {
  const auto id = find(text);
  return id && is_ordinary(*id) ? id : std::nullopt;
}

std::optional<int32_t> Vocabulary::id_at(const gguf::Metadata& metadata, std::string_view key) const {
  const auto id = metadata.get_int(key);
  if (!id) return std::nullopt;
  if (*id < 0 || *id >= size()) {
    fail(ErrorCode::kBadFile, "{} is {}, but the vocabulary has {} tokens (0 to {})", key, *id, size(), size() - 1);
  }
  return static_cast<int32_t>(*id);
}

}  // namespace tern::text
