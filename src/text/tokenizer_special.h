// Finds the tokens that are spelled out in a text and must not be cut: control and user-defined ones.
#pragma once
#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "text/tokenizer_vocab.h"

namespace tern::text {

class SpecialTokens {
 public:
  /// `strip_right(id)`: blanks after the token belong to it. `vocabulary` must outlive this.
  SpecialTokens(const Vocabulary& vocabulary, const std::function<bool(int32_t)>& strip_right);

  /// Part of a text: a token, or (id < 0) ordinary text.
  struct Fragment {
    int32_t id = -1;
    std::string_view text;
  };
  /// Cuts `text` at the leftmost, then longest token; user-defined tokens always, control and unknown ones only on
  /// `control`.
  std::vector<Fragment> split(std::string_view text, bool control) const;

 private:
  struct Token {
    std::string_view text;
    int32_t id;
    bool strip_right;
  };
  /// Tokens sorted by text, for one setting of `control`.
  struct Set {
    std::vector<Token> tokens;
    std::array<bool, 256> starts{};  // by first byte
    const Token* longest_at(std::string_view text) const;
  };
  Set always_, all_;
};

}  // namespace tern::text
