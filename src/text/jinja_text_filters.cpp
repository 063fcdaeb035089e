// Filters on one value: text, numbers, JSON. Facts: jinja2's filters.py; tojson as transformers redefines it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"
#include "text/jinja_parse_number.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace tern::text::jinja {
namespace {

bool is_markup(const Value& value) {
  return value.text() && value.text()->markup;
}

// A filter that maps str(value) to text, and keeps markup markup.
template <std::string (*kMap)(std::string_view)>
Value mapped(Bound& b) {
  return b.heap.str(kMap(b.str(0)), is_markup(b[0]));
}

// Words start after space, '-' and opening brackets; an apostrophe does not start one.
std::string title_words(std::string_view s) {
  std::string out;
  std::size_t start = 0;
  const auto flush = [&](std::size_t end) { out += capitalize(s.substr(start, end - start)); };
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t at = pos;
    const char32_t c = next_char(s, pos);
    if (!is_space(c) && (c >= 0x80 || std::string_view("-({[<").find(static_cast<char>(c)) == std::string_view::npos))
      continue;
    flush(at);
    out += s.substr(at, pos - at);
    start = pos;
  }
  flush(s.size());
  return out;
}

Value trim(Bound& b) {
  const std::string text = b.str(0);
  const bool has_chars = b.has(1) && !b[1].is<None>();
  const std::string chars = has_chars ? b.text(1) : std::string();
  return b.heap.str(std::string(strip(text, has_chars ? &chars : nullptr, true, true)), is_markup(b[0]));
}

Value replace(Bound& b) {
  return b.heap.str(replace_all(b.heap, b.str(0), b.str(1), b.str(2), b.size(3, -1, -1)));
}

Value indent(Bound& b) {
  const std::string& text = b.text(0);
  const Text* width = b[1].text();
  const auto spaces = static_cast<std::size_t>(width ? 0 : b.size(1, 4));
  b.heap.reserve(spaces);
  const std::string prefix = width ? width->bytes : std::string(spaces, ' ');
  const bool blank = b.flag(3);
  const std::string whole = text + '\n';  // so that a newline at the end opens a last, empty line
  std::string out = b.flag(2) ? prefix : std::string();
  bool first = true;
  for (const std::string_view line : split_lines(whole, false)) {
    b.heap.reserve(out.size() + prefix.size());
    if (!first) out += '\n';
    if (!first && (blank || !line.empty())) out += prefix;
    out += line;
    first = false;
  }
  return b.heap.str(std::move(out), is_markup(b[0]));
}

Value truncate(Bound& b) {
  const Text& text = *(b.text(0), b[0].text());
  const std::int64_t limit = b.size(1, 255);
  const std::string end = b.has(3) ? b.text(3) : "...";
  const auto end_size = static_cast<std::int64_t>(char_count(end));
  if (limit < end_size) raise("truncate() needs a length of at least {}, got {}", end_size, limit);
  if (static_cast<std::int64_t>(length(text)) <= limit + b.size(4, 5)) return b[0];
  std::string cut = text.bytes.substr(0, char_offset(text.bytes, static_cast<std::size_t>(limit - end_size)));
  if (!b.flag(2)) cut = cut.substr(0, cut.rfind(' '));
  return b.heap.str(cut + end, text.markup);
}

Value word_count(Bound& b) {
  const std::string text = b.str(0);
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const bool word = is_word(next_char(text, pos));
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

Value center(Bound& b) {
  const std::string text = b.str(0);
  const auto missing = std::max<std::int64_t>(b.size(1, 80) - static_cast<std::int64_t>(char_count(text)), 0);
  b.heap.reserve(static_cast<std::size_t>(missing));
  // Python gives the odd space to the left when the width is odd.
  const std::int64_t left = missing / 2 + (missing & b.size(1, 80) & 1);
  std::string out(static_cast<std::size_t>(left), ' ');
  return b.heap.str(out + text + std::string(static_cast<std::size_t>(missing - left), ' '), is_markup(b[0]));
}

Value string(Bound& b) {
  return b[0].text() ? b[0] : b.heap.str(b.str(0));
}
Value safe(Bound& b) {
  return b.heap.str(b.str(0), true);
}
Value escape(Bound& b) {
  return is_markup(b[0]) ? b[0] : b.heap.str(escape_html(b.str(0)), true);
}
Value force_escape(Bound& b) {
  return b.heap.str(escape_html(b.str(0)), true);
}

Value format(Bound& b) {
  const Value self = string(b);
  Args& args = b.args;
  if (args.named.empty()) {
    std::vector<Value> values(args.positional.begin() + 1, args.positional.end());
    return format_percent(b.heap, *self.text(), b.heap.list(std::move(values), List::Kind::kTuple));
  }
  if (args.positional.size() > 1) raise("format() takes positional arguments or named ones, not both");
  Dict* named = b.heap.dict();
  for (const auto& [name, value] : args.named) b.heap.set(named, name, value);
  return format_percent(b.heap, *self.text(), *named);
}

std::string url_quoted(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (plain || kept.find(c) != kept.npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value url_encode(Bound& b) {
  const Dict* dict = b[0].dict();
  if (b[0].text() || (!dict && !b[0].list())) return b.heap.str(url_quoted(b.str(0), "_.-~/"));
  std::string out;
  const auto part = [&](const Value& v) {
    std::string text = url_quoted(to_str(b.heap, v), "_.-~ ");
    std::replace(text.begin(), text.end(), ' ', '+');
    return text;
  };
  const auto add_pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += part(key) + "=" + part(value);
    b.heap.reserve(out.size());
  };
  if (dict) {
    for (const auto& [key, value] : dict->items) add_pair(key, value);
    return b.heap.str(std::move(out));
  }
  for (const Value& item : sequence(b.heap, b[0])->items) {
    const List* pair = sequence(b.heap, item);
    if (pair->items.size() != 2) raise("urlencode() needs pairs of key and value");
    add_pair(pair->items[0], pair->items[1]);
  }
  return b.heap.str(std::move(out));
}

Value to_json_filter(Bound& b) {
  JsonStyle style;
  style.ascii = b.flag(1);
  style.indented = b.has(2) && !b[2].is<None>();
  if (style.indented) {
    const Text* text = b[2].text();
    style.indent =
        text ? text->bytes : std::string(static_cast<std::size_t>(std::min<std::int64_t>(b.size(2, 0), 1 << 20)), ' ');
    style.item_separator = ",";
  }
  if (b.has(3) && !b[3].is<None>()) {
    const List* separators = sequence(b.heap, b[3]);
    if (separators->items.size() != 2) raise("tojson() needs two separators");
    style.item_separator = to_str(b.heap, separators->items[0]);
    style.key_separator = to_str(b.heap, separators->items[1]);
  }
  style.sort_keys = b.flag(4);
  return b.heap.str(to_json(b.heap, b[0], style));
}

Value to_int(Bound& b) {
  const Value fallback = b.has(1) ? b[1] : Value::integer(0);
  if (const Undefined* u = b[0].get<Undefined>()) raise("{}", *u->what);
  if (const Text* text = b[0].text()) {
    if (const auto n = parse_int(text->bytes, static_cast<int>(b.size(2, 10)))) return *n;
    const auto d = parse_float(text->bytes);
    return d && !std::isnan(*d) ? Value(truncated(*d)) : fallback;
  }
  if (const auto n = b[0].integer()) return *n;
  const auto d = b[0].number();
  return d && !std::isnan(*d) ? Value(truncated(*d)) : fallback;
}

Value to_float(Bound& b) {
  if (const Undefined* u = b[0].get<Undefined>()) raise("{}", *u->what);
  const auto d = b[0].text() ? parse_float(b[0].text()->bytes) : b[0].number();
  return d ? Value(*d) : b.has(1) ? b[1] : Value(0.0);
}

Value absolute(Bound& b) {
  const Value negated = negate(b[0]);
  return *b[0].number() < 0 || std::signbit(*b[0].number()) ? negated : negate(negated);
}

double round_half_even(double value, std::int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits > 300) return value;
  if (digits < -300) return std::copysign(0.0, value);
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  // Printed with that many digits, the decimal value is rounded exactly, as Python's round() is.
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Value round(Bound& b) {
  if (const Undefined* u = b[0].get<Undefined>()) raise("{}", *u->what);
  const auto value = b[0].number();
  if (!value) raise("round() needs a number, got a value of type '{}'", type_name(b[0]));
  const std::int64_t digits = b.size(1, 0, -1000);
  const std::string method = b.has(2) ? b.text(2) : "common";
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(digits));
    const double scaled = *value * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
  }
  if (method != "common") raise("round() knows the methods common, ceil and floor");
  if (const auto n = b[0].integer()) {
    if (digits >= 0) return *n;
    if (digits < -30) return Int{0};
    Int scale = 1;
    for (std::int64_t i = digits; i < 0; ++i) scale *= 10;
    const Int floor = *floor_divide(*n, scale).integer();
    const Int rest = *n - floor * scale;
    const bool up = rest * 2 > scale || (rest * 2 == scale && (floor & 1));
    return multiply(b.heap, floor + (up ? 1 : 0), scale);
  }
  return round_half_even(*value, digits);
}

Value fallback(Bound& b) {
  const bool use = b[0].is<Undefined>() || (b.flag(2) && !truth(b[0]));
  return !use ? b[0] : b.has(1) ? b[1] : b.heap.str("");
}

Value length_of(Bound& b) {
  return Value::integer(static_cast<std::int64_t>(length(b[0])));
}

Value file_size(Bound& b) {
  const auto value = b[0].text() ? parse_float(b[0].text()->bytes) : b[0].number();
  if (!value) raise("filesizeformat() needs a number");
  const bool binary = b.flag(1);
  const double base = binary ? 1024 : 1000;
  if (*value == 1) return b.heap.str("1 Byte");
  if (*value < base) return b.heap.str(fmt::format("{} Bytes", truncated(*value)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < kPrefixes.size() && *value >= unit * base) {
    unit *= base;
    ++i;
  }
  const std::string prefix = binary ? std::string(1, i == 0 ? 'K' : kPrefixes[i]) + "i" : std::string(1, kPrefixes[i]);
  return b.heap.str(fmt::format("{:.1f} {}B", *value / unit, prefix));
}

constexpr auto kFilters = std::to_array<Builtin>({
    {"abs", "value", absolute},
    {"capitalize", "s", mapped<capitalize>},
    {"center", "s width?", center},
    {"count", "value", length_of},
    {"d", "value default_value? boolean?", fallback},
    {"default", "value default_value? boolean?", fallback},
    {"e", "s", escape},
    {"escape", "s", escape},
    {"filesizeformat", "value binary?", file_size},
    {"float", "value default?", to_float},
    {"forceescape", "s", force_escape},
    {"format", "value ...", format},
    {"indent", "s width? first? blank?", indent},
    {"int", "value default? base?", to_int},
    {"length", "value", length_of},
    {"lower", "s", mapped<lower>},
    {"replace", "s old new count?", replace},
    {"round", "value precision? method?", round},
    {"safe", "s", safe},
    {"string", "s", string},
    {"title", "s", mapped<title_words>},
    {"tojson", "x ensure_ascii? indent? separators? sort_keys?", to_json_filter},
    {"trim", "value chars?", trim},
    {"truncate", "s length? killwords? end? leeway?", truncate},
    {"upper", "s", mapped<upper>},
    {"urlencode", "value", url_encode},
    {"wordcount", "s", word_count},
});

}  // namespace

std::string replace_all(Heap& heap, const std::string& text, const std::string& from, const std::string& to,
                        std::int64_t count) {
  std::string out;
  std::size_t pos = 0;
  const auto more = [&] { return count < 0 || count-- > 0; };
  if (from.empty()) {
    // An empty text stands before every character and at the end.
    while (more()) {
      out += to;
      if (pos >= text.size()) return out;
      const std::size_t start = pos;
      next_char(text, pos);
      out.append(text, start, pos - start);
      heap.reserve(out.size());
    }
    return out.append(text, pos);
  }
  for (std::size_t at; (at = find_text(text, from, pos)) != std::string::npos && more(); pos = at + from.size()) {
    out.append(text, pos, at - pos);
    out += to;
    heap.reserve(out.size());
  }
  return out.append(text, pos);
}

BuiltinTable text_filters() {
  return kFilters;
}

}  // namespace tern::text::jinja
