// Small vocabularies for tests.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/file.h"
#include "text/tokenizer_vocab.h"
#include "text/unicode.h"

namespace tern::text {

/// How a byte-level vocabulary spells `bytes`.
inline std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, byte_to_code_point(static_cast<uint8_t>(byte)));
  return out;
}

/// A byte-level vocabulary: the bytes are tokens 0 to 255, then what each of `merges` ("a b") makes, then `others`.
inline gguf::Metadata byte_level(const std::vector<std::string>& merges,
                                 const std::vector<std::pair<std::string, TokenType>>& others = {},
                                 const std::string& pre = "gpt2") {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) append_utf8(tokens.emplace_back(), byte_to_code_point(static_cast<uint8_t>(b)));
  for (std::string merge : merges) {
    merge.erase(merge.find(' ', 1), 1);
    tokens.push_back(std::move(merge));
  }
  std::vector<int64_t> types(tokens.size(), 1);
  for (const auto& [text, type] : others) {
    tokens.push_back(text);
    types.push_back(static_cast<int64_t>(type));
  }
  gguf::Metadata out;
  out.set_string("general.architecture", "llama");
  out.set_string("tokenizer.ggml.model", "gpt2");
  out.set_string("tokenizer.ggml.pre", pre);
  out.set_strings("tokenizer.ggml.tokens", std::move(tokens));
  out.set_i32s("tokenizer.ggml.token_type", std::move(types));
  out.set_strings("tokenizer.ggml.merges", merges);
  return out;
}

struct SpmToken {
  std::string text;
  double score = 0;
  TokenType type = TokenType::kNormal;
};

inline gguf::Metadata spm(const std::vector<SpmToken>& list) {
  std::vector<std::string> tokens;
  std::vector<double> scores;
  std::vector<int64_t> types;
  for (const SpmToken& t : list) {
    tokens.push_back(t.text);
    scores.push_back(t.score);
    types.push_back(static_cast<int64_t>(t.type));
  }
  gguf::Metadata out;
  out.set_string("general.architecture", "llama");
  out.set_string("tokenizer.ggml.model", "llama");
  out.set_strings("tokenizer.ggml.tokens", std::move(tokens));
  out.set_f32s("tokenizer.ggml.scores", std::move(scores));
  out.set_i32s("tokenizer.ggml.token_type", std::move(types));
  return out;
}

}  // namespace tern::text
