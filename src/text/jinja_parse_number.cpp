#include "text/jinja_parse_number.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

// `text` without the underscores that stand between two digits; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto is_alnum = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_alnum(text[i - 1]) || !is_alnum(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

bool take_sign(std::string_view& text) {
  if (text.empty() || (text[0] != '-' && text[0] != '+')) return false;
  const bool negative = text[0] == '-';
  text.remove_prefix(1);
  return negative;
}

}  // namespace

std::optional<Int> parse_int(std::string_view text, int base) {
  text = strip(text, nullptr, true, true);
  const bool negative = take_sign(text);
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) base = 10;
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || base < 2 || base > 36) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_sub_overflow(value, Int{digit}, &value)) {
      raise("an integer grows past 128 bits");
    }
  }
  if (!negative && __builtin_sub_overflow(Int{0}, value, &value)) raise("an integer grows past 128 bits");
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, nullptr, true, true);
  const bool negative = take_sign(text);
  const double sign = negative ? -1.0 : 1.0;
  const std::string word = lower(text.substr(0, 16));
  if (text.size() == word.size() && (word == "inf" || word == "infinity"))
    return sign * std::numeric_limits<double>::infinity();
  if (text.size() == word.size() && word == "nan") return std::numeric_limits<double>::quiet_NaN();
  // strtod also reads hexadecimal, which Python's float does not.
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || digits->find_first_not_of("0123456789.eE+-") != digits->npos) return std::nullopt;
  if ((*digits)[0] != '.' && ((*digits)[0] < '0' || (*digits)[0] > '9')) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return sign * value;
}

}  // namespace tern::text::jinja
