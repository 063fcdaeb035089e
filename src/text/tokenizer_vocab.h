// The token list of a model as `tokenizer.ggml.*` states it.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "text/string_table.h"

namespace tern::text {

/// Values of `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Vocabulary {
  StringTable texts;             // by id, as in the file; may be empty or ill-formed UTF-8
  std::vector<TokenType> types;  // by id
  std::vector<float> scores;     // by id; empty when the file has none

  /// Reads tokens, types and scores. kBadFile naming key and numbers: a missing key, arrays of different lengths, an
  /// unknown type, a score that is not a number, two tokens of the same text.
  explicit Vocabulary(const gguf::Metadata& metadata);

  int32_t size() const noexcept { return static_cast<int32_t>(texts.size()); }
  TokenType type(int32_t id) const { return types[static_cast<size_t>(id)]; }
  std::string_view text(int32_t id) const { return texts[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view text) const;
  /// The same, of tokens that text is made of: not control, unknown, unused or byte tokens.
  std::optional<int32_t> find_ordinary(std::string_view text) const;
  bool is_ordinary(int32_t id) const { return type(id) == TokenType::kNormal || type(id) == TokenType::kUserDefined; }
  /// The id under `key`: nothing when absent, kBadFile with key and both numbers when it is not a token.
  std::optional<int32_t> id_at(const gguf::Metadata& metadata, std::string_view key) const;

 private:
  /// Where `text` stands in slots_, or the free slot where it would.
  size_t slot_of(std::string_view text) const;
  std::vector<int32_t> slots_;  // ids by the hash of their text, -1 in free ones; at most half are taken
};

}  // namespace tern::text
