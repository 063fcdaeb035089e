// Methods of strings. A method of markup returns markup, and escapes the strings it is given.
#include <algorithm>
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"
#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

const Text& self(Bound& b) {
  return *b[0].text();
}
Value like_self(Bound& b, std::string text) {
  return b.heap.str(std::move(text), self(b).markup);
}
std::string argument(Bound& b, std::size_t i) {
  b.text(i);
  return operand(b.heap, self(b), b[i]);
}
bool given(Bound& b, std::size_t i) {
  return b.has(i) && !b[i].is<None>();
}

template <std::string (*kMap)(std::string_view)>
Value mapped(Bound& b) {
  return like_self(b, kMap(self(b).bytes));
}

template <bool kLeft, bool kRight>
Value stripped(Bound& b) {
  const bool has_chars = given(b, 1);
  const std::string chars = has_chars ? b.text(1) : std::string();
  b.heap.touch(self(b).bytes.size() * chars.size());
  return like_self(b, std::string(strip(self(b).bytes, has_chars ? &chars : nullptr, kLeft, kRight)));
}

Value list_of(Bound& b, const std::vector<std::string_view>& parts, List::Kind kind = List::Kind::kList) {
  List* out = b.heap.list(kind);
  for (const std::string_view part : parts) b.heap.push(out, like_self(b, std::string(part)));
  return out;
}

template <bool kFromRight>
Value split(Bound& b) {
  const std::string& text = self(b).bytes;
  const std::int64_t limit = b.size(2, -1, -1);
  if (!given(b, 1)) return list_of(b, split_space(text, limit, kFromRight));
  const std::string separator = b.text(1);
  if (separator.empty()) raise("split() needs a separator that is not empty");
  if (kFromRight) b.heap.touch(text.size() * separator.size());
  return list_of(b, split_at(text, separator, limit, kFromRight));
}

template <bool kFromRight>
Value partition(Bound& b) {
  const std::string& text = self(b).bytes;
  const std::string separator = b.text(1);
  if (separator.empty()) raise("partition() needs a separator that is not empty");
  if (kFromRight) b.heap.touch(text.size() * separator.size());
  const auto parts = split_at(text, separator, 1, kFromRight);
  if (parts.size() == 2) return list_of(b, {parts[0], separator, parts[1]}, List::Kind::kTuple);
  if (kFromRight) return list_of(b, {"", "", text}, List::Kind::kTuple);
  return list_of(b, {text, "", ""}, List::Kind::kTuple);
}

Value splitlines(Bound& b) {
  return list_of(b, split_lines(self(b).bytes, b.flag(1)));
}

// The part of a string that a method's start and stop arguments (2 and 3) choose, and the characters before it.
struct Part {
  std::string_view text;
  std::int64_t before = 0;
  bool valid = true;  // false: start is past the end, where Python finds nothing, not even ""
};
Part part_of(Bound& b) {
  const std::string& text = self(b).bytes;
  const auto size = static_cast<Int>(length(self(b)));
  const auto position = [&](std::size_t i, Int fallback) {
    const Int at = b.integer(i, fallback);
    return at < 0 ? std::max(at + size, Int{0}) : at;
  };
  const Int start = position(2, 0);
  const Int stop = std::min(position(3, size), size);
  if (start > size || stop < start) return {{}, 0, start <= size && stop >= start};
  const std::size_t from = char_offset(text, static_cast<std::size_t>(start));
  const std::string_view rest = std::string_view(text).substr(from);
  return {rest.substr(0, char_offset(rest, static_cast<std::size_t>(stop - start))), static_cast<std::int64_t>(start),
          true};
}

template <bool kAtStart>
Value has_affix(Bound& b) {
  const Part part = part_of(b);
  const auto matches = [&](const Value& affix) {
    if (!affix.text()) raise("startswith() and endswith() need a string or a tuple of strings");
    const std::string& s = affix.text()->bytes;
    return part.valid && (kAtStart ? part.text.starts_with(s) : part.text.ends_with(s));
  };
  const List* options = b[1].list();
  if (!options || !options->is_tuple()) return matches(b[1]);
  return std::any_of(options->items.begin(), options->items.end(), matches);
}

// Character index of the first or last match, -1 without one.
template <bool kFromRight>
std::int64_t position_of(Bound& b) {
  const Part part = part_of(b);
  const std::string& wanted = b.text(1);
  if (!part.valid) return -1;
  if (kFromRight) b.heap.touch(part.text.size() * wanted.size());
  const std::size_t at = kFromRight ? part.text.rfind(wanted) : find_text(part.text, wanted);
  return at == part.text.npos ? -1 : part.before + static_cast<std::int64_t>(char_count(part.text.substr(0, at)));
}
template <bool kFromRight>
Value find(Bound& b) {
  return Value::integer(position_of<kFromRight>(b));
}
template <bool kFromRight>
Value index(Bound& b) {
  const std::int64_t at = position_of<kFromRight>(b);
  if (at < 0) raise("index() does not find {}", quote(b.text(1)));
  return Value::integer(at);
}

Value count(Bound& b) {
  const Part part = part_of(b);
  const std::string& wanted = b.text(1);
  if (!part.valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(char_count(part.text)) + 1);
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find_text(part.text, wanted, at)) != part.text.npos; at += wanted.size()) ++n;
  return Value::integer(n);
}

Value replace(Bound& b) {
  const std::string from = argument(b, 1);
  const std::string to = argument(b, 2);
  return like_self(b, replace_all(b.heap, self(b).bytes, from, to, b.size(3, -1, -1)));
}

Value join(Bound& b) {
  std::string out;
  bool first = true;
  for (const Value& item : sequence(b.heap, b[1])->items) {
    if (!item.text()) raise("join() needs strings, got a value of type '{}'", type_name(item));
    if (!first) out += self(b).bytes;
    first = false;
    out += operand(b.heap, self(b), item);
    b.heap.reserve(out.size());
  }
  return like_self(b, std::move(out));
}

Value format(Bound& b) {
  Args rest;
  rest.positional.assign(b.args.positional.begin() + 1, b.args.positional.end());
  rest.named = b.args.named;
  return format_braces(b.interp, *b.args.positional[0].text(), rest);
}

Value remove_prefix(Bound& b) {
  const std::string& text = self(b).bytes;
  return like_self(b, text.starts_with(b.text(1)) ? text.substr(b.text(1).size()) : text);
}
Value remove_suffix(Bound& b) {
  const std::string& text = self(b).bytes;
  return like_self(b, text.ends_with(b.text(1)) ? text.substr(0, text.size() - b.text(1).size()) : text);
}

enum class Side { kLeft, kRight, kBoth };
template <Side kSide>
Value justified(Bound& b) {
  const std::string fill = b.has(2) ? b.text(2) : " ";
  if (char_count(fill) != 1) raise("the fill must be one character");
  const std::int64_t width = b.size(1, 0);
  const std::int64_t missing = std::max<std::int64_t>(width - static_cast<std::int64_t>(length(self(b))), 0);
  b.heap.reserve(static_cast<std::size_t>(missing) * fill.size());
  const std::int64_t left = kSide == Side::kLeft    ? 0
                            : kSide == Side::kRight ? missing
                                                    : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self(b).bytes;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return like_self(b, std::move(out));
}

Value zero_fill(Bound& b) {
  const std::string& text = self(b).bytes;
  const std::int64_t missing = std::max<std::int64_t>(b.size(1, 0) - static_cast<std::int64_t>(length(self(b))), 0);
  b.heap.reserve(static_cast<std::size_t>(missing));
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return like_self(b, text.substr(0, sign) + std::string(static_cast<std::size_t>(missing), '0') + text.substr(sign));
}

Value expand_tabs(Bound& b) {
  const std::int64_t size = std::min<std::int64_t>(b.size(1, 8), 1 << 16);
  std::string out;
  std::int64_t column = 0;
  const std::string& text = self(b).bytes;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    const char32_t c = next_char(text, pos);
    if (c == '\t') {
      const std::int64_t n = size > 0 ? size - column % size : 0;
      b.heap.reserve(out.size() + static_cast<std::size_t>(n));
      out.append(static_cast<std::size_t>(n), ' ');
      column += n;
    } else {
      out.append(text, start, pos - start);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like_self(b, std::move(out));
}

// isalpha() and its kin: every character has the property, and there is one (unless `empty` is fine).
template <bool (*kTest)(char32_t), bool kEmpty = false>
Value all_are(Bound& b) {
  const std::string& text = self(b).bytes;
  for (std::size_t pos = 0; pos < text.size();) {
    if (!kTest(next_char(text, pos))) return false;
  }
  return kEmpty || !text.empty();
}
bool is_alnum(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}
bool is_ascii(char32_t c) {
  return c < 0x80;
}

Value is_lower_text(Bound& b) {
  Args args{{b[0]}, {}};
  return b.interp.call_test("lower", args);
}
Value is_upper_text(Bound& b) {
  Args args{{b[0]}, {}};
  return b.interp.call_test("upper", args);
}
Value is_title_text(Bound& b) {
  const std::string& text = self(b).bytes;
  return title(text) == text && lower(text) != upper(text);
}
Value is_identifier(Bound& b) {
  const std::string& text = self(b).bytes;
  return !text.empty() && (text[0] < '0' || text[0] > '9') && truth(all_are<is_word>(b));
}

constexpr auto kMethods = std::to_array<Builtin>({
    {"capitalize", "self", mapped<capitalize>},
    {"casefold", "self", mapped<casefold>},
    {"center", "self width fillchar?", justified<Side::kBoth>},
    {"count", "self sub start? end?", count},
    {"endswith", "self suffix start? end?", has_affix<false>},
    {"expandtabs", "self tabsize?", expand_tabs},
    {"find", "self sub start? end?", find<false>},
    {"format", "self ...", format},
    {"index", "self sub start? end?", index<false>},
    {"isalnum", "self", all_are<is_alnum>},
    {"isalpha", "self", all_are<is_alpha>},
    {"isascii", "self", all_are<is_ascii, true>},
    {"isdecimal", "self", all_are<is_decimal>},
    {"isdigit", "self", all_are<is_digit>},
    {"isidentifier", "self", is_identifier},
    {"islower", "self", is_lower_text},
    {"isnumeric", "self", all_are<is_numeric>},
    {"isprintable", "self", all_are<is_printable, true>},
    {"isspace", "self", all_are<is_space>},
    {"istitle", "self", is_title_text},
    {"isupper", "self", is_upper_text},
    {"join", "self iterable", join},
    {"ljust", "self width fillchar?", justified<Side::kLeft>},
    {"lower", "self", mapped<lower>},
    {"lstrip", "self chars?", stripped<true, false>},
    {"partition", "self sep", partition<false>},
    {"removeprefix", "self prefix", remove_prefix},
    {"removesuffix", "self suffix", remove_suffix},
    {"replace", "self old new count?", replace},
    {"rfind", "self sub start? end?", find<true>},
    {"rindex", "self sub start? end?", index<true>},
    {"rjust", "self width fillchar?", justified<Side::kRight>},
    {"rpartition", "self sep", partition<true>},
    {"rsplit", "self sep? maxsplit?", split<true>},
    {"rstrip", "self chars?", stripped<false, true>},
    {"split", "self sep? maxsplit?", split<false>},
    {"splitlines", "self keepends?", splitlines},
    {"startswith", "self prefix start? end?", has_affix<true>},
    {"strip", "self chars?", stripped<true, true>},
    {"swapcase", "self", mapped<swapcase>},
    {"title", "self", mapped<title>},
    {"upper", "self", mapped<upper>},
    {"zfill", "self width", zero_fill},
});

}  // namespace

BuiltinTable text_methods() {
  return kMethods;
}

}  // namespace tern::text::jinja
