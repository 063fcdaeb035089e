// What JSON Schema says about strings and numbers, as expressions of a grammar.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "text/grammar_rules.h"
#include "text/json_schema.h"
#include "text/text_cursor.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

using Ranges = std::vector<CharRange>;

constexpr int32_t kMaxDepth = 100;  // of groups

std::string gbnf_char(char32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return {static_cast<char>(c)};
  return c <= 0xFFFF ? fmt::format("\\u{:04X}", static_cast<uint32_t>(c))
                     : fmt::format("\\U{:08X}", static_cast<uint32_t>(c));
}

std::string gbnf_class(const Ranges& ranges) {
  std::string out = "[";
  for (const CharRange& r : ranges)
    out += r.low == r.high ? gbnf_char(r.low) : gbnf_char(r.low) + "-" + gbnf_char(r.high);
  return out + "]";
}

Ranges without(const Ranges& from, const Ranges& those) {
  Ranges excluded = complement(from);
  excluded.insert(excluded.end(), those.begin(), those.end());
  return complement(std::move(excluded));
}

/// Characters that a JSON string may hold as they are, and the short escapes of others.
const Ranges kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
constexpr std::pair<char32_t, char> kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

bool contains(const Ranges& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CharRange& r) { return r.low <= c && c <= r.high; });
}

/// One character of `ranges` as it stands in a JSON string; nothing when there is none.
std::string json_spelling(const Ranges& ranges) {
  std::string out;
  const auto add = [&](const std::string& more) { out += (out.empty() ? "" : " | ") + more; };
  if (const Ranges plain = without(ranges, kEscaped); !plain.empty()) add(gbnf_class(plain));
  std::string escapes;
  for (const auto& [c, letter] : kShortEscapes)
    if (contains(ranges, c)) escapes += gbnf_char(static_cast<char32_t>(letter));
  if (!escapes.empty()) add(R"("\\" [)" + escapes + "]");
  return out.empty() ? "[]" : "(" + out + ")";
}

/// A regular expression of ECMA-262, without what looks around or back.
class Pattern : TextCursor {
 public:
  Pattern(std::string_view text, const std::string& path) : TextCursor(text), path_(path) {}

  std::string whole() {
    std::string out;
    do {
      out += (out.empty() ? "" : " | ") + anchored();
    } while (take('|'));
    if (at_ < text_.size()) unsupported("an unmatched ')'");
    return "(" + out + ")";
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorCode::kUnsupported, "the schema's pattern at {} cannot be enforced: {} at character {} of {}", path_,
         what, at_, text_);
  }

  /// An alternative of the top level: open at an end that no anchor closes.
  std::string anchored() {
    const bool begins = take('^');
    std::string out = begins ? "" : "char* ";
    out += sequence(0);
    const bool ends = take('$');
    if (!at_end() && peek() != '|' && peek() != ')') unsupported("an anchor in the middle");
    return out + (ends ? R"("")" : "char*");
  }

  std::string sequence(int32_t depth) {
    if (depth > kMaxDepth) unsupported("too many nested groups");
    std::string out;
    while (!at_end() && peek() != '|' && peek() != ')' && peek() != '$') {
      out += atom(depth);
      out += quantifier() + " ";
    }
    return out.empty() ? R"("" )" : out;
  }

  std::string atom(int32_t depth) {
    if (take('(')) {
      if (take('?') && !take(':')) unsupported("an assertion or a named group");
      std::string out;
      do {
        out += (out.empty() ? "" : " | ") + sequence(depth + 1);
      } while (take('|'));
      if (!take(')')) unsupported(peek() == '$' ? "an anchor in a group" : "a group without an end");
      return "(" + out + ")";
    }
    if (take('[')) return json_spelling(char_class());
    if (take('.')) return json_spelling(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (take('\\')) return json_spelling(escape());
    const char c = peek();
    if (c == '^') unsupported("an anchor in the middle");
    if (c == '*' || c == '+' || c == '?' || c == '{' || c == '}') unsupported("a quantifier of nothing");
    const char32_t point = character();
    return json_spelling({{point, point}});
  }

  std::string quantifier() {
    std::string out;
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') {
      out = c;
      ++at_;
    } else if (c == '{') {
      const size_t end = text_.find('}', at_);
      if (end == text_.npos) unsupported("'{' without an end");
      out = text_.substr(at_, end + 1 - at_);
      if (out.size() < 3 || out.find_first_not_of("0123456789,", 1) != out.size() - 1 || out[1] == ',' ||
          out.size() > 14 || std::count(out.begin(), out.end(), ',') > 1)
        unsupported("a quantifier that counts nothing");
      at_ = end + 1;
    }
    if (!out.empty()) take('?');  // lazy: the same texts
    return out;
  }

  char32_t character() {
    const Utf8Sequence c = decode_utf8(text_.substr(at_));
    at_ += c.length;
    return c.kind == Utf8Sequence::Kind::kValid ? c.code_point : char32_t{0xFFFD};
  }

  Ranges char_class() {
    const bool negated = take('^');
    Ranges out;
    while (!take(']')) {
      if (at_end()) unsupported("'[' without an end");
      Ranges low = take('\\') ? escape() : single(character());
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const Ranges high = take('\\') ? escape() : single(character());
        if (low.size() != 1 || high.size() != 1 || low[0].low != low[0].high || high[0].low != high[0].high ||
            high[0].low < low[0].low)
          unsupported("a range without ends");
        low[0].high = high[0].low;
      }
      out.insert(out.end(), low.begin(), low.end());
    }
    return negated ? complement(std::move(out)) : out;
  }

  static Ranges single(char32_t c) { return {{c, c}}; }

  /// Behind a backslash.
  Ranges escape() {
    static const Ranges kDigits = {{'0', '9'}}, kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                        kSpace = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                  {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                  {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const char c = peek();
    ++at_;
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpace;
      case 'S':
        return complement(kSpace);
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case '0':
        return single(0);
      case 'x':
        return single(hex(2));
      case 'u':
        return single(hex(4));
      default:
        break;
    }
    if ((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\0') {
      --at_;
      unsupported("this escape (a back reference, a boundary or a property)");
    }
    --at_;
    return single(character());
  }

  char32_t hex(size_t digits) {
    const std::string_view text = text_.substr(std::min(at_, text_.size()), digits);
    if (text.size() < digits || text.find_first_not_of("0123456789abcdefABCDEF") != text.npos)
      unsupported("an escape without its hexadecimal digits");
    at_ += digits;
    return static_cast<char32_t>(std::stoul(std::string(text), nullptr, 16));
  }

  const std::string& path_;
};

/// Digits of the numbers between two of equally many digits.
std::string digits_between(std::string_view low, std::string_view high) {
  const auto any = [](size_t n) { return n == 0 ? std::string(R"("")") : fmt::format("[0-9]{{{}}}", n); };
  if (low.empty()) return R"("")";
  if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos) return any(low.size());
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) return fmt::format("\"{}\" {}", low[0], digits_between(low_rest, high_rest));
  const std::string nines(low_rest.size(), '9'), zeros(low_rest.size(), '0');
  std::string out = fmt::format("(\"{}\" {} | \"{}\" {}", low[0], digits_between(low_rest, nines), high[0],
                                digits_between(zeros, high_rest));
  if (high[0] - low[0] > 1)
    out += fmt::format(" | [{}-{}] {}", static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1),
                       any(low_rest.size()));
  return out + ")";
}

constexpr int64_t kLargest = 9'999'999'999'999'999;  // 16 digits, as `integer` has

/// The numbers from `low` >= 0 to `high`, if any.
std::vector<std::string> naturals(int64_t low, int64_t high) {
  std::vector<std::string> out;
  const int64_t end = std::min(high, kLargest);
  for (int64_t first = 0, last = 9; first <= end; first = last + 1, last = last * 10 + 9) {
    const int64_t from = std::max(low, first), to = std::min(end, last);
    if (from <= to) out.push_back(digits_between(std::to_string(from), std::to_string(to)));
  }
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("({})", fmt::join(parts, " | "));
}

void add_prefixed(std::vector<std::string>& out, std::string_view prefix, const std::vector<std::string>& numbers,
                  std::string_view suffix) {
  if (!numbers.empty()) out.push_back(fmt::format("{}{}{}", prefix, joined(numbers), suffix));
}

/// Integers from low to high, signs included.
std::vector<std::string> integers(int64_t low, int64_t high, std::string_view suffix) {
  std::vector<std::string> out;
  if (high >= 0) add_prefixed(out, "", naturals(std::max<int64_t>(0, low), high), suffix);
  if (low < 0) add_prefixed(out, R"("-" )", naturals(std::max<int64_t>(1, -high), -low), suffix);
  return out;
}

/// The ends of a range of integers.
std::pair<int64_t, int64_t> ends(const std::optional<Bound>& low, const std::optional<Bound>& high) {
  return {low ? low->value + (low->exclusive ? 1 : 0) : -kLargest,
          high ? high->value - (high->exclusive ? 1 : 0) : kLargest};
}

}  // namespace

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Sequence c = decode_utf8(text);
    out += gbnf_char(c.kind == Utf8Sequence::Kind::kValid ? c.code_point : char32_t{0xFFFD});
    text.remove_prefix(c.length);
  }
  return out + "\"";
}

// The automaton of Aho and Corasick: a rule for every beginning of a word that the text may just have ended with.
std::string gbnf_of_text_without(const std::vector<std::string>& words, const std::string& name) {
  std::map<std::string, std::string> rules{{"", name}};  // by beginning
  std::set<char> letters;
  for (const std::string& word : words) {
    for (size_t n = 1; n < word.size(); ++n)
      rules.try_emplace(word.substr(0, n), fmt::format("{}-{}", name, rules.size()));
    letters.insert(word.begin(), word.end());
  }
  Ranges known;
  for (const char c : letters) known.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  const Ranges others = complement(known);
  std::string out;
  for (const auto& [beginning, rule] : rules) {
    std::map<std::string, Ranges> next{{name, others}};
    for (const char c : letters) {
      std::string text = beginning + c;
      if (std::any_of(words.begin(), words.end(), [&](const std::string& word) { return text.ends_with(word); }))
        continue;
      while (!rules.contains(text)) text.erase(0, 1);
      next[rules[text]].push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    }
    out += fmt::format(R"({} ::= "")", rule);
    for (const auto& [to, characters] : next) out += fmt::format(" | {} {}", gbnf_class(characters), to);
    out += "\n";
  }
  return out;
}

std::string gbnf_of_pattern(std::string_view pattern, const std::string& path) {
  return Pattern(pattern, path).whole();
}

std::optional<std::string_view> pattern_of_format(std::string_view format) {
  // Dates of the calendar of RFC 3339, leap days included; times without leap seconds.
#define TERN_DATE                                                                                              \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" \
  "(\\d{2}(0[48]|[2468][048]|[13579][26])|(0[048]|[2468][048]|[13579][26])00)-02-29)"
#define TERN_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define TERN_OCTET "(25[0-5]|2[0-4]\\d|1\\d{2}|[1-9]?\\d)"
#define TERN_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
  static constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"date", "^" TERN_DATE "$"},
      {"time", "^" TERN_TIME "$"},
      {"date-time", "^" TERN_DATE "T" TERN_TIME "$"},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
      {"ipv4", "^" TERN_OCTET "(\\." TERN_OCTET "){3}$"},
      {"hostname", "^" TERN_LABEL "(\\." TERN_LABEL "){0,3}$"},
      {"email", "^[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,32}){0,3}@" TERN_LABEL "(\\." TERN_LABEL "){1,3}$"},
      {"uri", "^[a-z][a-z0-9+.-]{0,15}:(//" TERN_LABEL "(\\." TERN_LABEL
              "){0,5}(:\\d{1,4})?)?(/[a-zA-Z0-9._~-]*)*(\\?[a-zA-Z0-9._~=&/-]*)?(#[a-zA-Z0-9._~/-]*)?$"},
  };
#undef TERN_DATE
#undef TERN_TIME
#undef TERN_OCTET
#undef TERN_LABEL
  for (const auto& [name, pattern] : kFormats)
    if (name == format) return pattern;
  return std::nullopt;
}

std::string gbnf_of_other_strings(const std::vector<std::string>& names) {
  struct Node {
    std::map<char32_t, Node> next;
    bool ends = false;
  } root;
  size_t longest = 0;
  for (const std::string& name : names) {
    Node* node = &root;
    size_t length = 0;
    for (std::string_view rest = name; !rest.empty(); ++length) {
      const Utf8Sequence c = decode_utf8(rest);
      node = &node->next[c.kind == Utf8Sequence::Kind::kValid ? c.code_point : char32_t{0xFFFD}];
      rest.remove_prefix(c.length);
    }
    node->ends = true;
    longest = std::max(longest, length);
  }
  // As nested groups: a name too long for them would be refused as such. An escape by number could spell a name, so
  // there is none before the text differs from all names.
  if (longest > 150)
    fail(ErrorCode::kUnsupported,
         "additionalProperties beside a property whose name has more than 150 characters cannot "
         "be enforced: set it to false");
  const auto differs = [](const auto& self, const Node& node) -> std::string {
    Ranges known;
    for (const auto& [c, child] : node.next) known.push_back({c, c});
    std::string out = json_spelling(complement(known)) + " char*";
    for (const auto& [c, child] : node.next) out += fmt::format(" | {} {}", json_spelling({{c, c}}), self(self, child));
    return fmt::format("({}){}", out, node.ends ? "" : "?");
  };
  if (names.empty()) return "string";
  return fmt::format(R"("\"" {} "\"")", differs(differs, root));
}

std::optional<std::string> gbnf_of_integers(std::optional<Bound> low, std::optional<Bound> high) {
  const auto [least, most] = ends(low, high);
  const std::vector<std::string> parts = integers(least, most, "");
  if (parts.empty()) return std::nullopt;
  return joined(parts);
}

std::optional<std::string> gbnf_of_numbers(std::optional<Bound> low, std::optional<Bound> high) {
  const auto [least, most] = ends(low, high);
  std::vector<std::string> parts = integers(least, most, R"( ("." "0"{1,16})?)");
  // Strictly between k and k + 1, for every k from low to high - 1: towards zero the digits before the point are k.
  constexpr std::string_view kFraction = R"( "." "0"{0,15} [1-9] [0-9]{0,15})";
  const int64_t from = low ? low->value : -kLargest, to = high ? high->value : kLargest;
  if (to > 0) add_prefixed(parts, "", naturals(std::max<int64_t>(0, from), to - 1), kFraction);
  if (from < 0) add_prefixed(parts, R"("-" )", naturals(std::max<int64_t>(0, -to), -from - 1), kFraction);
  if (parts.empty()) return std::nullopt;
  return joined(parts);
}

}  // namespace tern::text
