// Python's two ways to format: "%5.1f" % x and "{:>5.1f}".format(x). Both end in one Spec.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"
#include "text/jinja_text.h"
#include "text/unicode.h"

namespace tern::text::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 400;  // more digits than any double has

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ = or the type's own
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

// The cursor over a format string.
struct Reader {
  std::string_view text;
  std::size_t pos = 0;

  bool done() const { return pos >= text.size(); }
  char peek() const { return done() ? '\0' : text[pos]; }
  bool take(char c) {
    if (done() || text[pos] != c) return false;
    ++pos;
    return true;
  }
  std::optional<std::int64_t> number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    std::int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++pos) n = std::min<std::int64_t>(n * 10 + (peek() - '0'), 1 << 30);
    return n;
  }
};

// `prefix` is the sign and base, which '=' alignment keeps in front of the fill.
std::string padded(Heap& heap, const Spec& spec, const std::string& prefix, const std::string& body, char own_align) {
  const auto size = static_cast<std::int64_t>(char_count(prefix) + char_count(body));
  const std::int64_t missing = std::max<std::int64_t>(spec.width - size, 0);
  heap.reserve(static_cast<std::size_t>(missing) * spec.fill.size());
  heap.work(static_cast<std::uint64_t>(missing) / 8);
  const auto fill = [&](std::int64_t n) {
    std::string out;
    for (; n > 0; --n) out += spec.fill;
    return out;
  };
  switch (spec.align ? spec.align : own_align) {
    case '<':
      return prefix + body + fill(missing);
    case '^':
      return fill(missing / 2) + prefix + body + fill(missing - missing / 2);
    case '=':
      return prefix + fill(missing) + body;
    default:
      return fill(missing) + prefix + body;
  }
}

void group_digits(std::string& digits, char separator, int size) {
  std::size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  end = end == digits.npos ? digits.size() : end;
  for (auto at = static_cast<std::ptrdiff_t>(end) - size; at > 0; at -= size) {
    digits.insert(static_cast<std::size_t>(at), 1, separator);
  }
}

std::string sign_prefix(bool negative, char sign) {
  return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

std::string format_int(Heap& heap, const Spec& spec, Int n) {
  if (spec.type == 'c') {
    if (n < 0 || n > 0x10FFFF) raise("%c needs a character's number");
    std::string out;
    append_utf8(out, static_cast<char32_t>(n));
    return padded(heap, spec, "", out, '<');
  }
  const bool negative = n < 0;
  const __uint128_t size = negative ? -static_cast<__uint128_t>(n) : static_cast<__uint128_t>(n);
  std::string prefix = sign_prefix(negative, spec.sign);
  std::string digits;
  switch (spec.type) {
    case 'b':
      digits = fmt::format("{:b}", size);
      break;
    case 'o':
      digits = fmt::format("{:o}", size);
      break;
    case 'x':
      digits = fmt::format("{:x}", size);
      break;
    case 'X':
      digits = fmt::format("{:X}", size);
      break;
    default:
      digits = fmt::format("{}", size);
  }
  const bool is_decimal_type = spec.type == 'd' || spec.type == 'n' || spec.type == 0;
  if (spec.alternate && !is_decimal_type) prefix += std::string("0") + spec.type;
  if (spec.grouping) group_digits(digits, spec.grouping, is_decimal_type ? 3 : 4);
  return padded(heap, spec, prefix, digits, '>');
}

std::string format_float(Heap& heap, const Spec& spec, double value) {
  if (spec.precision > kMaxPrecision) raise("a precision of {} digits is more than {}", spec.precision, kMaxPrecision);
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value) * (spec.type == '%' ? 100 : 1);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type == 'F' || spec.type == 'E' || spec.type == 'G') digits = upper(digits);
  } else if (spec.type == 0 && spec.precision < 0) {
    digits = float_repr(size);
  } else {
    const char type = spec.type == 0 || spec.type == 'n' ? 'g' : spec.type == '%' ? 'f' : spec.type;
    const char pattern[] = {'%',
                            spec.alternate ? '#' : '.',
                            spec.alternate ? '.' : '*',
                            spec.alternate ? '*' : type,
                            spec.alternate ? type : '\0',
                            '\0'};
    char buffer[800];  // 309 digits before the point, kMaxPrecision after it
    std::snprintf(buffer, sizeof buffer, pattern, static_cast<int>(spec.precision < 0 ? 6 : spec.precision), size);
    digits = buffer;
    if (spec.type == 0 && digits.find_first_of(".e") == digits.npos) digits += ".0";
  }
  if (spec.grouping) group_digits(digits, spec.grouping, 3);
  if (spec.type == '%') digits += '%';
  return padded(heap, spec, sign_prefix(negative, spec.sign), digits, '>');
}

std::string format_text(Heap& heap, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, char_offset(text, static_cast<std::size_t>(spec.precision)));
  return padded(heap, spec, "", std::string(text), '<');
}

bool is_float_type(char type) {
  return type != 0 && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

// ---- "..." % values ----

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const Text& format, const Value* single, const List* list, const Dict* named)
      : heap_(heap), format_(format), in_{format.bytes}, single_(single), list_(list), named_(named) {}

  Value run() {
    std::string out;
    while (!in_.done()) {
      heap_.reserve(out.size());
      if (!in_.take('%')) {
        out += in_.text[in_.pos++];
      } else if (in_.take('%')) {
        out += '%';
      } else {
        out += field();
      }
    }
    const std::size_t given = list_ ? list_->items.size() : single_ ? 1 : 0;
    // A container on the right of % is a mapping to Python, and a mapping may have more than is asked for.
    if (used_ < given && !named_ && !(single_ && (single_->list() || single_->dict()))) {
      raise("a format string leaves {} of its {} arguments unused", given - used_, given);
    }
    return heap_.str(std::move(out), format_.markup);
  }

 private:
  const Value& next_value() {
    const std::size_t given = list_ ? list_->items.size() : single_ ? 1 : 0;
    if (used_ >= given) raise("a format string needs more than its {} arguments", given);
    ++used_;
    return list_ ? list_->items[used_ - 1] : *single_;
  }

  std::int64_t star_or_number(std::int64_t fallback) {
    if (!in_.take('*')) return in_.number().value_or(fallback);
    const auto n = next_value().integer();
    if (!n) raise("'*' in a format string needs an integer");
    return static_cast<std::int64_t>(std::clamp(*n, -(Int{1} << 30), Int{1} << 30));
  }

  const Value* named_value() {
    int depth = 1;
    const std::size_t start = in_.pos;
    while (!in_.done() && depth > 0) {
      const char c = in_.text[in_.pos++];
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (depth > 0) raise("a format string has '%(' without ')'");
    const std::string_view key = in_.text.substr(start, in_.pos - 1 - start);
    const Dict* dict = named_ ? named_ : single_ ? single_->dict() : nullptr;
    if (!dict) raise("a format string with names needs a mapping");
    const Value* found = const_cast<Dict*>(dict)->find(key);
    if (!found) raise("a format string asks for '{}', which was not given", key);
    return found;
  }

  std::string field() {
    const Value* value = in_.take('(') ? named_value() : nullptr;
    Spec spec;
    bool zero = false;
    for (bool more = true; more;) {
      switch (in_.peek()) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          spec.sign = spec.sign == '+' ? '+' : ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          zero = true;
          break;
        default:
          more = false;
      }
      if (more) ++in_.pos;
    }
    spec.width = star_or_number(0);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (in_.take('.')) spec.precision = std::max<std::int64_t>(star_or_number(0), 0);
    while (in_.take('h') || in_.take('l') || in_.take('L')) {
    }
    if (in_.done()) raise("a format string ends inside a '%'");
    spec.type = in_.text[in_.pos++];
    return convert(spec, zero, value ? *value : next_value());
  }

  std::string convert(Spec spec, bool zero, const Value& value) {
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      if (!spec.align) spec.align = '>';
      return format_text(heap_, spec, spec.type == 's' ? operand(heap_, format_, value) : to_repr(heap_, value));
    }
    if (spec.type == 'c') {
      if (value.text() && length(value) == 1) return format_text(heap_, spec, value.text()->bytes);
      if (!value.integer()) raise("%c needs an integer or a character");
      return format_int(heap_, spec, *value.integer());
    }
    if (zero && spec.align != '<') {
      spec.fill = "0";
      spec.align = '=';
    }
    const auto number = value.number();
    if (const Undefined* u = value.get<Undefined>()) raise("{}", *u->what);
    if (!number) raise("%{} needs a number, got a value of type '{}'", spec.type, type_name(value));
    if (is_float_type(spec.type) && spec.type != '%') return format_float(heap_, spec, *number);
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (spec.type == 'd') return format_digits(spec, value.integer() ? *value.integer() : truncated(*number));
    if (spec.type != 'x' && spec.type != 'X' && spec.type != 'o')
      raise("a format string has an unknown '%{}'", spec.type);
    if (!value.integer()) raise("%{} needs an integer, got a float", spec.type);
    return format_digits(spec, *value.integer());
  }

  // The precision of an integer is how many digits it has at least.
  std::string format_digits(const Spec& spec, Int n) {
    if (spec.precision <= 0) return format_int(heap_, spec, n);
    Spec inner;
    inner.type = spec.type;
    inner.sign = spec.sign;
    inner.alternate = spec.alternate;
    inner.fill = "0";
    inner.align = '=';
    inner.width = spec.precision + (n < 0 || spec.sign != '-' ? 1 : 0) + (spec.alternate && spec.type != 'd' ? 2 : 0);
    return padded(heap_, spec, "", format_int(heap_, inner, n), '>');
  }

  Heap& heap_;
  const Text& format_;
  Reader in_;
  const Value* single_;
  const List* list_;
  const Dict* named_;
  std::size_t used_ = 0;
};

// ---- "...".format(...) ----

bool is_align(char32_t c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t after = 0;
  if (!text.empty()) {
    next_char(text, after);
    if (after < text.size() && is_align(static_cast<unsigned char>(text[after]))) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      text.remove_prefix(after + 1);
    } else if (is_align(static_cast<unsigned char>(text[0]))) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  Reader in{text};
  for (const char c : {'+', '-', ' '}) {
    if (in.take(c)) spec.sign = c;
  }
  spec.alternate = in.take('#');
  if (in.peek() == '0' && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = in.number().value_or(0);
  if (in.take(',')) spec.grouping = ',';
  if (in.take('_')) spec.grouping = '_';
  if (in.take('.')) {
    const auto precision = in.number();
    if (!precision) raise("a format has '.' without a precision");
    spec.precision = *precision;
  }
  if (!in.done()) spec.type = in.text[in.pos++];
  if (!in.done()) raise("'{}' is no format", text);
  return spec;
}

std::string format_value(Heap& heap, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_str(heap, value);
  Spec spec = parse_spec(spec_text);
  const auto unknown = [&]() { raise("a value of type '{}' has no format '{}'", type_name(value), spec_text); };
  if (const Text* text = value.text()) {
    if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.grouping) unknown();
    if (spec.align == '=') spec.align = '<';
    return format_text(heap, spec, text->bytes);
  }
  if (const auto n = value.integer(); n && !is_float_type(spec.type)) {
    if (spec.precision >= 0 ||
        (spec.type != 0 && std::string_view("bcdoxXn").find(spec.type) == std::string_view::npos)) {
      unknown();
    }
    return format_int(heap, spec, *n);
  }
  const auto number = value.number();
  if (!number || (spec.type != 0 && spec.type != 'n' && !is_float_type(spec.type))) unknown();
  return format_float(heap, spec, number.value_or(0));
}

class BraceFormatter {
 public:
  BraceFormatter(Interp& interp, const Text& format, const Args& args)
      : interp_(interp), heap_(interp.heap()), format_(format), args_(args) {}

  Value run() { return heap_.str(expand(format_.bytes, 2), format_.markup); }

 private:
  std::string expand(std::string_view text, int depth) {
    if (depth == 0) raise("a format has too many nested fields");
    std::string out;
    Reader in{text};
    while (!in.done()) {
      heap_.reserve(out.size());
      const char c = in.text[in.pos++];
      if (c == '{' && !in.take('{')) {
        out += field(in, depth);
      } else if (c == '}' && !in.take('}')) {
        raise("a format has a '}}' without its '{{'");
      } else {
        out += c;
      }
    }
    return out;
  }

  // After the '{' of a field, through its '}'.
  std::string field(Reader& in, int depth) {
    const std::size_t start = in.pos;
    bool in_index = false;
    while (!in.done() && (in_index || (in.peek() != '}' && in.peek() != ':' && in.peek() != '!'))) {
      in_index = in.peek() == '[' ? true : in.peek() == ']' ? false : in_index;
      if (in.peek() == '{' && !in_index) raise("a format has a '{{' inside a field's name");
      ++in.pos;
    }
    const std::string_view name = in.text.substr(start, in.pos - start);
    Value value = lookup(name);
    if (in.take('!')) {
      const char conversion = in.peek();
      ++in.pos;
      if (conversion == 'r' || conversion == 'a') {
        value = heap_.str(to_repr(heap_, value));
      } else if (conversion == 's') {
        value = heap_.str(to_str(heap_, value));
      } else {
        raise("a format has an unknown conversion after '!'");
      }
    }
    std::string spec;
    if (in.take(':')) {
      const std::size_t begin = in.pos;
      for (int open = 0; !in.done() && (open > 0 || in.peek() != '}'); ++in.pos) {
        open += in.peek() == '{' ? 1 : in.peek() == '}' ? -1 : 0;
      }
      spec = expand(in.text.substr(begin, in.pos - begin), depth - 1);
    }
    if (!in.take('}')) raise("a format has a '{{' without its '}}'");
    const std::string out = format_value(heap_, value, spec);
    const bool is_markup = value.text() && value.text()->markup;
    return format_.markup && !is_markup ? escape_html(out) : out;
  }

  static bool is_number(std::string_view s) {
    return !s.empty() && s.size() < 10 && s.find_first_not_of("0123456789") == s.npos;
  }

  Value argument(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const Numbering numbering = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kNone && numbering_ != numbering) raise("a format mixes {{}} with numbered fields");
      numbering_ = numbering;
      const std::size_t index = name.empty() ? next_++ : std::stoul(std::string(name));
      if (index >= args_.positional.size())
        raise("a format asks for argument {}, {} were given", index, args_.positional.size());
      return args_.positional[index];
    }
    for (const auto& [key, value] : args_.named) {
      if (key.text()->bytes == name) return value;
    }
    raise("a format asks for '{}', which was not given", name);
  }

  // name, name.attribute, name[index]
  Value lookup(std::string_view name) {
    const std::size_t first = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first));
    name.remove_prefix(first);
    while (!name.empty()) {
      const bool is_index = name[0] == '[';
      const std::size_t end = is_index ? name.find(']') : std::min(name.find_first_of(".[", 1), name.size());
      if ((!is_index && name[0] != '.') || end == name.npos) raise("a format has a field name that makes no sense");
      const std::string_view part = name.substr(1, end - 1);
      if (!is_index) {
        value = interp_.get_attr(value, part);
      } else if (is_number(part)) {
        value = interp_.get_item(value, Value::integer(std::stol(std::string(part))));
      } else {
        value = interp_.get_item(value, heap_.str(std::string(part)));
      }
      name.remove_prefix(end + (is_index ? 1 : 0));
    }
    return value;
  }

  Interp& interp_;
  Heap& heap_;
  const Text& format_;
  const Args& args_;
  enum class Numbering { kNone, kAutomatic, kManual };
  Numbering numbering_ = Numbering::kNone;
  std::size_t next_ = 0;
};

}  // namespace

Value format_percent(Heap& heap, const Text& format, const Value& value) {
  const List* list = value.list();
  if (list && list->is_tuple()) return PercentFormatter(heap, format, nullptr, list, nullptr).run();
  return PercentFormatter(heap, format, &value, nullptr, nullptr).run();
}

Value format_percent(Heap& heap, const Text& format, const Dict& named) {
  return PercentFormatter(heap, format, nullptr, nullptr, &named).run();
}

Value format_braces(Interp& interp, const Text& format, const Args& args) {
  return BraceFormatter(interp, format, args).run();
}

}  // namespace tern::text::jinja
