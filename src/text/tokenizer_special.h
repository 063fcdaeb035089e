// Finds the tokens that are spelled out in a text and must not be cut: control and user-defined ones.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::text {

class SpecialTokens {
 public:
  struct Token {
    std::string text;  // not empty
    int32_t id = -1;
    bool control = false;      // looked for only on demand
    bool strip_right = false;  // the blanks behind it belong to it
  };
  explicit SpecialTokens(const std::vector<Token>& tokens);

  /// Part of a text: a token, or (id < 0) what lies between tokens.
  struct Fragment {
    int32_t id = -1;
    std::string_view text;
  };
  /// Cuts `text` at the leftmost, then longest token; at control tokens only when `control`.
  std::vector<Fragment> split(std::string_view text, bool control) const;

 private:
  /// Tokens sorted by text, for one setting of `control`.
  struct Set {
    std::vector<Token> tokens;
    std::array<bool, 256> starts{};  // by first byte
    const Token* longest_at(std::string_view text) const;
  };
  Set always_, all_;
};

}  // namespace tern::text
