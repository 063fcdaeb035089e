// Strings as Python sees them: sequences of code points in UTF-8, and the properties of characters that its methods
// use. Case mapping is one code point to one (plus the German sharp s): full special casing is not done.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::text::jinja {

/// The code point at `pos`, which moves past it. Strings are well-formed UTF-8 (what comes in is made so); were one
/// not, a bad sequence would count as one U+FFFD.
char32_t next_char(std::string_view s, std::size_t& pos);
std::size_t char_count(std::string_view s);
/// Byte offset of character `index`, or the size when there are fewer.
std::size_t char_offset(std::string_view s, std::size_t index);

/// s.find(needle, from), in linear time whatever the bytes.
std::size_t find_text(std::string_view s, std::string_view needle, std::size_t from = 0);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);
inline bool is_word(char32_t c) {
  return c == '_' || is_alpha(c) || is_numeric(c);
}

std::string upper(std::string_view s);
std::string lower(std::string_view s);
std::string capitalize(std::string_view s);
std::string title(std::string_view s);
std::string casefold(std::string_view s);
std::string swapcase(std::string_view s);

/// Python's str.strip family. `chars` null: whitespace.
std::string_view strip(std::string_view s, const std::string* chars, bool left, bool right);
std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends);
/// str.split() without a separator, at most `limit` cuts (-1: all), from the left or the right.
std::vector<std::string_view> split_space(std::string_view s, std::int64_t limit, bool from_right);
std::vector<std::string_view> split_at(std::string_view s, std::string_view separator, std::int64_t limit,
                                       bool from_right);
/// repr() of a string, with quotes.
std::string quote(std::string_view s);
std::string escape_html(std::string_view s);

}  // namespace tern::text::jinja
