// What the hand-written parsers of grammars and patterns share: a place in a text.
#pragma once
#include <cstddef>
#include <string_view>

namespace tern::text {

class TextCursor {
 protected:
  explicit TextCursor(std::string_view text) : text_(text) {}
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace tern::text
