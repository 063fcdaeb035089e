#include "text/tokenizer_vocab.h"

#include <cmath>
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
  texts = *tokens;

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

  ids_.reserve(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;  // a hole in the list: nothing spells it
    const auto [other, is_new] = ids_.emplace(texts[i], static_cast<int32_t>(i));
    if (!is_new) {
      fail(ErrorCode::kBadFile, "tokenizer.ggml.tokens has '{}' twice, as {} and {}", texts[i], other->second, i);
    }
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const auto it = ids_.find(text);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
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
