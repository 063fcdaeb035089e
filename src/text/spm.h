// SentencePiece BPE (`tokenizer.ggml.model` = llama): characters merge by the score of what they make, blanks are
// U+2581, characters without a token become byte tokens.
#pragma once
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_merges.h"
#include "text/tokenizer_vocab.h"

namespace tern::text {

class Spm {
 public:
  /// `unknown`: what stands for a run of characters without token or byte tokens. kBadFile when there are no scores.
  Spm(const Vocabulary& vocabulary, std::optional<int32_t> unknown);

  /// Appends the tokens of `text` (well-formed UTF-8, U+2581 for blanks, no special tokens in it), after one blank when
  /// `space_prefix`. kBadFile when a character can be expressed in no way.
  void encode(std::string_view text, bool space_prefix, std::vector<int32_t>& out) const;

 private:
  void read_merges(const Vocabulary& vocabulary);
  /// The symbol of one character: its token, or n_tokens + code point where it has none.
  int32_t symbol_of(char32_t code_point) const;
  /// Appends the token of a symbol, else its byte tokens, and returns false; or the unknown token (once a run), and
  /// true.
  bool append(int32_t symbol, bool after_unknown, std::vector<int32_t>& out) const;

  int32_t n_tokens_;
  std::optional<int32_t> unknown_;
  std::array<int32_t, 256> byte_ids_{};  // -1: none
  std::unordered_map<char32_t, int32_t> char_ids_;
  MergeTable merges_;
  /// No token has a blank behind another character, so nothing merges across the start of a word: words merge one by
  /// one.
  bool blanks_only_lead_ = true;
};

/// U+2581, the blank of SentencePiece.
inline constexpr std::string_view kSpmBlank = "\xE2\x96\x81";

}  // namespace tern::text
