#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "text/jinja_text.h"
#include "text/unicode.h"

namespace tern::text::jinja {
namespace {

// Longest first: the lexer takes the first that matches.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

bool is_base_digit(char c, int base) {
  const int digit = is_digit_char(c)       ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : 99;
  return digit < base;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) read_text();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure(line_, message); }
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }
  bool at(std::string_view s) const { return rest().starts_with(s); }

  void add(Token::Kind kind, std::string text, Value value = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(value)});
  }

  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(pos_ + bytes), '\n'));
    pos_ += bytes;
    if (bytes > 0) at_line_start_ = source_[pos_ - 1] == '\n';
  }

  void skip_space() {
    std::size_t end = pos_;
    for (std::size_t next = pos_; next < source_.size(); end = next) {
      if (!is_space(next_char(source_, next))) break;
    }
    advance(end - pos_);
  }

  // The end of a tag at the cursor: `-}` eats the space after it, `+}` keeps the newline that a block tag eats.
  bool take_end(std::string_view end, bool is_block) {
    const std::size_t mark = at("-") || (is_block && at("+")) ? 1 : 0;
    if (!rest().substr(mark).starts_with(end)) return false;
    const char sign = mark ? source_[pos_] : ' ';
    advance(mark + end.size());
    if (sign == '-') {
      skip_space();
    } else if (is_block && sign != '+' && at("\n")) {
      advance(1);
    }
    return true;
  }

  // Text up to the tag at `tag`, less the whitespace that the tag's sign or lstrip_blocks takes.
  void add_text(std::size_t tag, char sign, bool strip_indent) {
    std::string_view text = std::string_view(source_).substr(pos_, tag - pos_);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && strip_indent) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t indent = newline == text.npos ? 0 : newline + 1;
      if ((indent > 0 || at_line_start_) && strip(text.substr(indent), nullptr, true, false).empty()) {
        text = text.substr(0, indent);
      }
    }
    if (!text.empty()) add(Token::Kind::kText, std::string(text));
    advance(tag - pos_);
  }

  char sign_at(std::size_t pos) const {
    return pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+') ? source_[pos] : ' ';
  }

  // Text up to the next tag, and the tag.
  void read_text() {
    std::size_t tag = pos_;
    while (tag < source_.size() && !(source_[tag] == '{' && tag + 1 < source_.size() &&
                                     (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#'))) {
      ++tag;
    }
    if (tag == source_.size()) {
      add_text(tag, '+', false);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::size_t raw = kind == '%' ? match_keyword_tag(tag, "raw") : 0;
    add_text(tag, sign, kind != '{');
    if (raw) {
      read_raw(raw);
      return;
    }
    if (kind != '#') add(kind == '{' ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin, "");
    advance(sign == ' ' ? 2 : 3);
    if (kind == '#') {
      read_comment();
    } else {
      read_tag(kind == '{');
    }
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) fail("a comment has no end: '#}' is missing");
    const bool marked = end > pos_ && sign_at(end - 1) != ' ';
    advance(end - pos_ - (marked ? 1 : 0));
    CHECK(take_end("#}", true));
  }

  // Where the name of `{% keyword` at `tag` ends, when the tag holds nothing else; 0 otherwise.
  std::size_t match_keyword_tag(std::size_t tag, std::string_view keyword) const {
    const auto skip = [&](std::size_t pos) {
      for (std::size_t next = pos; next < source_.size(); pos = next) {
        if (!is_space(next_char(source_, next))) break;
      }
      return pos;
    };
    std::size_t pos = skip(tag + (sign_at(tag + 2) == ' ' ? 2 : 3));
    if (std::string_view(source_).substr(pos, keyword.size()) != keyword) return 0;
    pos = skip(pos + keyword.size());
    const bool marked = sign_at(pos) == '-' || (sign_at(pos) == '+' && keyword == "endraw");
    return std::string_view(source_).substr(pos + (marked ? 1 : 0), 2) == "%}" ? pos : 0;
  }

  // The cursor is before `{% raw %}`, whose own end is at `end`. Unlike a block's, that end keeps the newline after it.
  void read_raw(std::size_t end) {
    advance(end - pos_);
    if (at("-")) {
      advance(3);
      skip_space();
    } else {
      advance(2);
    }
    for (std::size_t tag = source_.find("{%", pos_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      if (const std::size_t close = match_keyword_tag(tag, "endraw")) {
        add_text(tag, sign_at(tag + 2), true);
        advance(close - pos_);
        CHECK(take_end("%}", true));
        return;
      }
    }
    fail("a raw block has no end: '{% endraw %}' is missing");
  }

  void read_tag(bool is_print) {
    std::string open;  // brackets: no tag ends inside of them
    while (pos_ < source_.size()) {
      if (open.empty() && take_end(is_print ? "}}" : "%}", !is_print)) {
        add(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd, "");
        return;
      }
      std::size_t next = pos_;
      const char32_t c = next_char(source_, next);
      if (is_space(c)) {
        skip_space();
      } else if (c < 0x80 && is_digit_char(static_cast<char>(c))) {
        read_number();
      } else if (is_word(c)) {
        read_name();
      } else if (c == '\'' || c == '"') {
        read_string(static_cast<char>(c));
      } else {
        read_operator(open);
      }
    }
  }

  // End of `digits(_digits)*` from `pos`, or `pos`.
  std::size_t digits(std::size_t pos, int base = 10) const {
    const auto digit = [&](std::size_t i) { return i < source_.size() && is_base_digit(source_[i], base); };
    if (!digit(pos)) return pos;
    while (digit(pos) || (pos < source_.size() && source_[pos] == '_' && digit(pos + 1))) ++pos;
    return pos;
  }

  void read_number() {
    const std::size_t start = pos_;
    std::size_t end = digits(start);
    bool is_float = false;
    if (start == 0 || source_[start - 1] != '.') {
      const auto char_at = [&](std::size_t i) { return i < source_.size() ? source_[i] : '\0'; };
      if (char_at(end) == '.' && digits(end + 1) > end + 1) {
        end = digits(end + 1);
        is_float = true;
      }
      if (char_at(end) == 'e' || char_at(end) == 'E') {
        const std::size_t exponent = end + (sign_at(end + 1) == ' ' ? 1 : 2);
        if (digits(exponent) > exponent) {
          end = digits(exponent);
          is_float = true;
        }
      }
    }
    if (is_float) {
      add(Token::Kind::kNumber, "", Value(std::strtod(without_underscores(start, end).c_str(), nullptr)));
      advance(end - start);
    } else {
      read_integer();
    }
  }

  std::string without_underscores(std::size_t start, std::size_t end) const {
    std::string out = source_.substr(start, end - start);
    std::erase(out, '_');
    return out;
  }

  void read_integer() {
    const char mark = pos_ + 1 < source_.size() ? static_cast<char>(source_[pos_ + 1] | 0x20) : '\0';
    const int base = source_[pos_] != '0' ? 10 : mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 1;
    std::size_t start = pos_;
    std::size_t end = pos_;
    if (base == 10) {
      end = digits(start);
    } else if (base > 1) {
      start = pos_ + 2 + (pos_ + 2 < source_.size() && source_[pos_ + 2] == '_' ? 1 : 0);
      end = digits(start, base);
    }
    if (end == start) {  // a lone 0, or zeros: 007 is three numbers to Python too
      start = pos_;
      end = digits(start, 1);
    }
    Int value = 0;
    for (const char c : without_underscores(start, end)) {
      const int digit = is_digit_char(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value)) {
        fail("an integer has more than 38 digits");
      }
    }
    add(Token::Kind::kNumber, "", Value(value));
    advance(end - pos_);
  }

  void read_name() {
    std::size_t end = pos_;
    for (std::size_t next = pos_; next < source_.size(); end = next) {
      if (!is_word(next_char(source_, next))) break;
    }
    std::size_t first = pos_;
    const char32_t c = next_char(source_, first);
    if (c != '_' && !is_alpha(c)) fail("a name starts with a character that no name can start with");
    add(Token::Kind::kName, source_.substr(pos_, end - pos_));
    advance(end - pos_);
  }

  void read_operator(std::string& open) {
    const auto op = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view s) { return at(s); });
    if (op == kOperators.end()) {
      std::size_t end = pos_;
      next_char(source_, end);
      fail(fmt::format("unexpected character {}", quote(source_.substr(pos_, end - pos_))));
    }
    if (*op == "(" || *op == "[" || *op == "{") {
      open += *op == "(" ? ')' : *op == "[" ? ']' : '}';
    } else if (*op == ")" || *op == "]" || *op == "}") {
      if (open.empty()) fail(fmt::format("unexpected '{}'", *op));
      if (open.back() != op->front()) fail(fmt::format("unexpected '{}', expected '{}'", *op, open.back()));
      open.pop_back();
    }
    add(Token::Kind::kOperator, std::string(*op));
    advance(op->size());
  }

  void read_string(char quote) {
    std::string out;
    std::size_t pos = pos_ + 1;
    while (true) {
      if (pos >= source_.size()) fail(fmt::format("a string has no end: {} is missing", quote));
      const char c = source_[pos++];
      if (c == quote) break;
      if (c != '\\') {
        out += c;
      } else if (pos >= source_.size()) {
        fail("a string ends in a backslash");
      } else {
        pos = unescape(pos, out);
      }
    }
    add(Token::Kind::kString, std::move(out));
    advance(pos - pos_);
  }

  // What follows the backslash before `pos`; returns where the text goes on.
  std::size_t unescape(std::size_t pos, std::string& out) const {
    constexpr std::string_view kFrom = "\\'\"abfnrtv";
    constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[pos];
    if (const std::size_t i = kFrom.find(c); i != kFrom.npos) {
      out += kTo[i];
      return pos + 1;
    }
    if (c == '\n') return pos + 1;
    if (c >= '0' && c <= '7') {
      std::size_t end = pos;
      while (end < pos + 3 && end < source_.size() && is_base_digit(source_[end], 8)) ++end;
      append_utf8(out, static_cast<char32_t>(std::stoul(source_.substr(pos, end - pos), nullptr, 8)));
      return end;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t size = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string hex = source_.substr(pos + 1, size);
      if (hex.size() < size || !std::all_of(hex.begin(), hex.end(), [](char h) { return is_base_digit(h, 16); })) {
        fail(fmt::format("a string has a \\{} without {} hexadecimal digits", c, size));
      }
      const unsigned long code = std::stoul(hex, nullptr, 16);
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        fail(fmt::format("a string has \\{}{}, which is no character", c, hex));
      }
      append_utf8(out, static_cast<char32_t>(code));
      return pos + 1 + size;
    }
    if (c == 'N') fail("a string has a \\N escape, which is not supported: write the character itself");
    out += '\\';  // an unknown escape stands for itself
    if (static_cast<unsigned char>(c) < 0x80) return pos;
    // Python goes through an ASCII form first, whose own backslash this one then escapes.
    const char32_t wide = next_char(source_, pos);
    const auto n = static_cast<unsigned>(wide);
    out += n < 0x100 ? fmt::format("x{:02x}", n) : n < 0x10000 ? fmt::format("u{:04x}", n) : fmt::format("U{:08x}", n);
    return pos;
  }

  std::string source_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

// \r\n and \r become \n, and one newline at the end is dropped.
std::string normalized(std::string_view source) {
  std::string storage;
  source = valid_utf8(source, storage);
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalized(source)).run();
}

}  // namespace tern::text::jinja
