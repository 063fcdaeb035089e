// GBNF, the notation of llama.cpp: `name ::= "text" [a-z] rule (group) <token> | other`, with ? * + {m,n}, `.` and #
// comments. A token is named as its file spells it, `<think>`, or by its number, `<[3]>`.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "text/grammar_rules.h"
#include "text/text_cursor.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

using Kind = Expression::Kind;

constexpr int32_t kMaxDepth = 200;  // of groups
constexpr int32_t kMaxRepeats = 8;
constexpr int32_t kMaxCount = 100'000;
constexpr size_t kMaxTokenName = 256;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

Expression chars(std::vector<CharRange> ranges) {
  return {.kind = Kind::kChars, .ranges = std::move(ranges)};
}

class Parser : TextCursor {
 public:
  explicit Parser(std::string_view text) : TextCursor(text) {}

  std::vector<NamedRule> parse() {
    for (skip(true); !at_end(); skip(true)) parse_rule();
    for (size_t i = 0; i < rules_.size(); ++i)
      if (defined_at_[i] == kUndefined)
        wrong_at(used_at_[i], fmt::format("the rule '{}' is used and nowhere defined", rules_[i].name));
    return std::move(rules_);
  }

  int32_t root(const std::string& name) const {
    const auto it = ids_.find(name);
    if (it == ids_.end()) fail(ErrorCode::kInvalidArgument, "the grammar has no rule '{}' to begin with", name);
    return it->second;
  }

 private:
  static constexpr size_t kUndefined = static_cast<size_t>(-1);

  [[noreturn]] void wrong_at(size_t offset, const std::string& what) const {
    const std::string_view before = text_.substr(0, offset);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    fail(ErrorCode::kInvalidArgument, "grammar, line {} column {}: {}", line, offset - start + 1, what);
  }
  [[noreturn]] void wrong(const std::string& what) const { wrong_at(at_, what); }

  /// Blanks and comments, and newlines where a rule may go on behind them.
  void skip(bool newlines) {
    while (!at_end()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else if (c == '#') {
        while (!at_end() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else {
        return;
      }
    }
  }

  std::string word() {
    const size_t start = at_;
    while (!at_end() && is_word(text_[at_])) ++at_;
    if (at_ == start) wrong("the name of a rule is expected here");
    return std::string(text_.substr(start, at_ - start));
  }

  int32_t rule_of(const std::string& name, size_t offset) {
    const auto [it, added] = ids_.try_emplace(name, static_cast<int32_t>(rules_.size()));
    if (added) rules_.push_back({name, {}}), defined_at_.push_back(kUndefined), used_at_.push_back(offset);
    return it->second;
  }

  void parse_rule() {
    const size_t start = at_;
    const std::string name = word();
    const auto id = static_cast<size_t>(rule_of(name, start));
    if (defined_at_[id] != kUndefined) wrong_at(start, fmt::format("the rule '{}' is defined twice", name));
    defined_at_[id] = start;
    skip(false);
    if (text_.substr(at_, 3) != "::=") wrong("'::=' is expected behind the name of a rule");
    at_ += 3;
    skip(true);
    Expression body = parse_choice(false, 0);
    if (!at_end() && peek() != '\n' && peek() != '\r') wrong(fmt::format("'{}' makes no sense here", peek()));
    rules_[id].body = std::move(body);
  }

  Expression parse_choice(bool nested, int32_t depth) {
    if (depth > kMaxDepth) wrong(fmt::format("groups are nested more than {} deep", kMaxDepth));
    Expression out{.kind = Kind::kChoice};
    do {
      skip(true);
      // An empty last alternative of a rule must not swallow the next one's name.
      out.parts.push_back(next_is_rule() ? Expression{} : parse_sequence(nested, depth));
      const size_t here = at_;
      skip(true);  // a line may begin with |
      if (peek() != '|') at_ = nested ? at_ : here;
    } while (take('|'));
    return out.parts.size() == 1 ? std::move(out.parts[0]) : out;
  }

  bool next_is_rule() {
    const size_t here = at_;
    while (!at_end() && is_word(text_[at_])) ++at_;
    const bool named = at_ > here;
    skip(false);
    const bool out = named && text_.substr(at_, 3) == "::=";
    at_ = here;
    return out;
  }

  Expression parse_sequence(bool nested, int32_t depth) {
    Expression out;
    for (;; skip(nested)) {
      const char c = peek();
      const size_t start = at_;
      if (c == '"') {
        out.parts.push_back(parse_literal());
      } else if (c == '[') {
        out.parts.push_back(parse_class());
      } else if (c == '.') {
        ++at_;
        out.parts.push_back(chars({{0, kLastCodePoint}}));
      } else if (c == '(') {
        ++at_;
        out.parts.push_back(parse_choice(true, depth + 1));
        if (!take(')')) wrong("')' is expected here");
      } else if (!at_end() && is_word(c)) {
        const std::string name = word();
        out.parts.push_back({.kind = Kind::kRule, .rule = rule_of(name, start)});
      } else if (c == '<') {
        out.parts.push_back(parse_token());
      } else if (c == '!') {
        wrong("'any token but' (!<...>) is not part of the grammars of this build");
      } else {
        break;
      }
      parse_repeats(out.parts.back(), nested);
    }
    return out.parts.size() == 1 ? std::move(out.parts[0]) : out;
  }

  void parse_repeats(Expression& item, bool nested) {
    for (int32_t in_a_row = 0;; ++in_a_row) {
      const size_t here = at_;
      skip(nested);
      int32_t min = 0, max = -1;
      if (take('?')) {
        max = 1;
      } else if (take('+')) {
        min = 1;
      } else if (take('{')) {
        min = max = count();
        skip(nested);
        if (take(',')) {
          skip(nested);
          max = peek() == '}' ? -1 : count();
        }
        skip(nested);
        if (!take('}')) wrong("'}' is expected here");
        if (max >= 0 && max < min) wrong_at(here, fmt::format("a repetition of {} to {} times is empty", min, max));
      } else if (!take('*')) {
        at_ = here;
        return;
      }
      if (in_a_row == kMaxRepeats) wrong_at(here, fmt::format("more than {} repetitions of a repetition", kMaxRepeats));
      Expression repeat{.kind = Kind::kRepeat, .min = min, .max = max};
      repeat.parts.push_back(std::move(item));
      item = std::move(repeat);
    }
  }

  int32_t count() {
    if (peek() < '0' || peek() > '9') wrong("a number is expected here");
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > kMaxCount) wrong(fmt::format("a repetition may count to {} at most", kMaxCount));
    }
    return static_cast<int32_t>(value);
  }

  Expression parse_literal() {
    const size_t start = at_++;
    Expression out;
    while (!take('"')) {
      if (at_end()) wrong_at(start, "the text that begins here has no closing quote");
      const char32_t c = character();
      out.parts.push_back(chars({{c, c}}));
    }
    return out;
  }

  Expression parse_token() {
    const size_t length = text_.substr(at_, kMaxTokenName).find_first_of(">\n");
    if (length == text_.npos || text_[at_ + length] != '>' || length == 1) wrong("the name of a token ends with '>'");
    Expression out{.kind = Kind::kToken};
    out.token = text_.substr(at_, length + 1);
    at_ += length + 1;
    return out;
  }

  Expression parse_class() {
    const size_t start = at_++;
    const bool negated = take('^');
    std::vector<CharRange> ranges;
    while (!take(']')) {
      if (at_end()) wrong_at(start, "the characters that begin here have no closing ']'");
      const char32_t low = character();
      char32_t high = low;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        high = character();
        if (high < low) wrong("the range of characters that ends here is empty");
      }
      ranges.push_back({low, high});
    }
    return chars(negated ? complement(std::move(ranges)) : std::move(ranges));
  }

  char32_t character() {
    if (peek() != '\\') {
      const Utf8Sequence c = decode_utf8(text_.substr(at_));
      if (c.kind != Utf8Sequence::Kind::kValid) wrong("the grammar is no valid UTF-8 here");
      at_ += c.length;
      return c.code_point;
    }
    const size_t start = at_++;
    const char c = peek();
    ++at_;
    switch (c) {
      case 'x':
        return hex(start, 2);
      case 'u':
        return hex(start, 4);
      case 'U':
        return hex(start, 8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        wrong_at(start, fmt::format("unknown escape: \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] are known"));
    }
  }

  char32_t hex(size_t start, int32_t digits) {
    uint64_t value = 0;
    for (int32_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) wrong_at(start, fmt::format("this escape needs {} hexadecimal digits", digits));
      value = value * 16 + static_cast<uint64_t>(digit);
    }
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      wrong_at(start, "this is no character of Unicode");
    return static_cast<char32_t>(value);
  }

  std::vector<NamedRule> rules_;
  std::vector<size_t> defined_at_, used_at_;
  std::map<std::string, int32_t> ids_;
};

}  // namespace

std::vector<CharRange> complement(std::vector<CharRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CharRange& a, const CharRange& b) { return a.low < b.low; });
  std::vector<CharRange> out;
  char32_t next = 0;
  for (const CharRange& range : ranges) {
    if (range.low > next) out.push_back({next, range.low - 1});
    next = std::max<char32_t>(next, range.high + 1);
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return out;
}

std::shared_ptr<const Grammar> Grammar::from_gbnf(std::string_view text, const std::string& root) {
  Parser parser(text);
  const std::vector<NamedRule> rules = parser.parse();
  return std::make_shared<const Grammar>(compile_rules(rules, parser.root(root)));
}

}  // namespace tern::text
