#include "text/jinja_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "text/unicode.h"

namespace tern::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Superscripts, subscripts, circled and parenthesised numbers: digits to Python, though not decimal ones.
bool is_digit_sign(char32_t c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "SS";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "Ss";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_lower(std::string& out, char32_t c) {
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Byte offset of the character before `pos` (> 0).
std::size_t previous_char(std::string_view s, std::size_t pos) {
  do --pos;
  while (pos > 0 && (static_cast<unsigned char>(s[pos]) & 0xC0) == 0x80);
  return pos;
}

char32_t char_at(std::string_view s, std::size_t pos) {
  return next_char(s, pos);
}

}  // namespace

char32_t next_char(std::string_view s, std::size_t& pos) {
  const auto byte = static_cast<unsigned char>(s[pos]);
  if (byte < 0x80) {
    ++pos;
    return byte;
  }
  const Utf8Sequence sequence = decode_utf8(s.substr(pos));
  pos += sequence.length;
  return sequence.kind == Utf8Sequence::Kind::kValid ? sequence.code_point : U'\xFFFD';
}

std::size_t char_count(std::string_view s) {
  return static_cast<std::size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t char_offset(std::string_view s, std::size_t index) {
  std::size_t pos = 0;
  while (index > 0 && pos < s.size()) {
    next_char(s, pos);
    --index;
  }
  return pos;
}

std::size_t find_text(std::string_view s, std::string_view needle, std::size_t from) {
  if (from > s.size()) return s.npos;
  // string_view::find is quadratic on text like "aaaa"; the C library's search is not.
  const void* found = memmem(s.data() + from, s.size() - from, needle.data(), needle.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - s.data()) : s.npos;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_digit(char32_t c) {
  return is_decimal(c) || is_digit_sign(c);
}
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}
bool is_printable(char32_t c) {
  const auto k = category(c);
  return c == ' ' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_SO);
}

std::string upper(std::string_view s) {
  std::string out;
  for (std::size_t pos = 0; pos < s.size();) append_upper(out, next_char(s, pos));
  return out;
}

std::string lower(std::string_view s) {
  std::string out;
  for (std::size_t pos = 0; pos < s.size();) append_lower(out, next_char(s, pos));
  return out;
}

std::string capitalize(std::string_view s) {
  if (s.empty()) return {};
  std::string out;
  std::size_t pos = 0;
  append_title(out, next_char(s, pos));
  return out + lower(s.substr(pos));
}

std::string title(std::string_view s) {
  std::string out;
  bool in_word = false;
  for (std::size_t pos = 0; pos < s.size();) {
    const char32_t c = next_char(s, pos);
    if (in_word) {
      append_lower(out, c);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string casefold(std::string_view s) {
  std::string out;
  for (std::size_t pos = 0; pos < s.size();) {
    const char32_t c = next_char(s, pos);
    if (c == 0xDF || c == 0x1E9E) {
      out += "ss";
    } else {
      append_lower(out, c);
    }
  }
  return out;
}

std::string swapcase(std::string_view s) {
  std::string out;
  for (std::size_t pos = 0; pos < s.size();) {
    const char32_t c = next_char(s, pos);
    if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_lower(out, c);
    }
  }
  return out;
}

std::string_view strip(std::string_view s, const std::string* chars, bool left, bool right) {
  const auto stripped = [&](char32_t c) {
    if (!chars) return is_space(c);
    for (std::size_t pos = 0; pos < chars->size();) {
      if (next_char(*chars, pos) == c) return true;
    }
    return false;
  };
  std::size_t begin = 0;
  std::size_t end = s.size();
  for (std::size_t pos = 0; left && begin < end; begin = pos) {
    if (!stripped(next_char(s, pos))) break;
  }
  while (right && end > begin) {
    const std::size_t last = previous_char(s, end);
    if (!stripped(char_at(s, last))) break;
    end = last;
  }
  return s.substr(begin, end - begin);
}

std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> lines;
  lines.reserve(static_cast<std::size_t>(std::count(s.begin(), s.end(), '\n')) + 1);
  std::size_t start = 0;
  for (std::size_t pos = 0; pos < s.size();) {
    const std::size_t end = pos;
    const char32_t c = next_char(s, pos);
    if (!is_line_end(c)) continue;
    if (c == '\r' && pos < s.size() && s[pos] == '\n') ++pos;
    lines.push_back(s.substr(start, (keep_ends ? pos : end) - start));
    start = pos;
  }
  if (start < s.size()) lines.push_back(s.substr(start));
  return lines;
}

std::vector<std::string_view> split_space(std::string_view s, std::int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  if (limit < 0) parts.reserve(static_cast<std::size_t>(std::count(s.begin(), s.end(), ' ')) + 1);
  while (true) {
    s = strip(s, nullptr, !from_right, from_right);
    if (s.empty()) break;
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.push_back(s);
      break;
    }
    std::size_t cut = from_right ? s.size() : 0;
    if (from_right) {
      while (cut > 0 && !is_space(char_at(s, previous_char(s, cut)))) cut = previous_char(s, cut);
      parts.push_back(s.substr(cut));
      s = s.substr(0, cut);
    } else {
      while (cut < s.size() && !is_space(char_at(s, cut))) next_char(s, cut);
      parts.push_back(s.substr(0, cut));
      s = s.substr(cut);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view s, std::string_view separator, std::int64_t limit,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t cut = from_right ? s.rfind(separator) : find_text(s, separator);
    if (cut == std::string_view::npos) break;
    const std::string_view before = s.substr(0, cut);
    const std::string_view after = s.substr(cut + separator.size());
    parts.push_back(from_right ? after : before);
    s = from_right ? before : after;
  }
  parts.push_back(s);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string quote(std::string_view s) {
  const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t pos = 0; pos < s.size();) {
    const char32_t c = next_char(s, pos);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
  }
  return out + quote;
}

std::string escape_html(std::string_view s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace tern::text::jinja
