// A template's text into tokens, with the whitespace rules that chat templates are written for: the newline after a
// block tag is dropped (trim_blocks), and so is the indentation before one (lstrip_blocks). Facts: jinja2's lexer.py.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace tern::text::jinja {

struct Token {
  enum class Kind { kText, kPrintBegin, kPrintEnd, kBlockBegin, kBlockEnd, kName, kString, kNumber, kOperator, kEnd };
  Kind kind;
  int line;
  std::string text;  // of text, names, strings (unescaped) and operators
  Value value;       // of numbers
};

/// Ends with kEnd. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

/// A template that is no Jinja: kBadFile with its line.
class SyntaxFailure : public Failure {
 public:
  SyntaxFailure(int line, const std::string& message) : Failure(ErrorCode::kBadFile, message), line_(line) {}
  int line() const noexcept { return line_; }

 private:
  int line_;
};

}  // namespace tern::text::jinja
