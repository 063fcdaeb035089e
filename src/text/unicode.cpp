#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "base/error.h"

namespace tern::text {
namespace {

// Below U+0300 every code point is its own form C and combines with nothing.
constexpr uint8_t kFirstLeadByteOfMarks = 0xCC;

bool is_combining(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class != 0;
}

struct ByteAlphabet {
  std::array<char32_t, 256> code_points{};
  std::array<int16_t, 0x144> bytes{};  // by code point; -1: not in the alphabet

  constexpr ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      code_points[static_cast<size_t>(b)] = c;
      bytes[c] = static_cast<int16_t>(b);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

}  // namespace

Utf8Sequence decode_utf8(std::string_view bytes) noexcept {
  using Kind = Utf8Sequence::Kind;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {Kind::kValid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kInvalid, 1, 0};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t c = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::kTruncated, static_cast<uint8_t>(i), 0};
    // The second byte also excludes overlong forms, surrogates and what lies beyond U+10FFFF.
    const uint8_t low = i == 1 && lead == 0xE0 ? 0xA0 : i == 1 && lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = i == 1 && lead == 0xED ? 0x9F : i == 1 && lead == 0xF4 ? 0x8F : 0xBF;
    if (at(i) < low || at(i) > high) return {Kind::kInvalid, static_cast<uint8_t>(i), 0};
    c = (c << 6) | (at(i) & 0x3Fu);
  }
  return {Kind::kValid, static_cast<uint8_t>(length), c};
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int rest = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint8_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[rest] | (c >> (6 * rest)));
  for (int i = rest - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
}

size_t append_valid_utf8(std::string& out, std::string_view bytes, bool keep_tail) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence s = decode_utf8(bytes.substr(at));
    if (s.kind == Utf8Sequence::Kind::kTruncated && keep_tail) break;
    out += s.kind == Utf8Sequence::Kind::kValid ? bytes.substr(at, s.length) : kReplacement;
    at += s.length;
  }
  return at;
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence s = decode_utf8(text.substr(at));
    if (s.kind != Utf8Sequence::Kind::kValid) {
      storage.assign(text.substr(0, at));
      append_valid_utf8(storage, text.substr(at), false);
      return storage;
    }
    at += s.length;
  }
  return text;
}

std::string_view to_nfc(std::string_view text, std::string& storage) {
  const bool settled =
      std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= kFirstLeadByteOfMarks; });
  if (settled) return text;

  // utf8proc_map would do all of this, but its ordering of combining marks is quadratic in the length of a run.
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence s = decode_utf8(text.substr(at));
    utf8proc_int32_t parts[8];  // the longest canonical decomposition has 4 code points
    const utf8proc_ssize_t n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(s.code_point), parts, 8, UTF8PROC_DECOMPOSE, nullptr);
    CHECK(n >= 1 && n <= 8, "utf8proc_decompose_char: {}", n);
    points.insert(points.end(), parts, parts + n);
    at += s.length;
  }
  for (auto run = points.begin(); run != points.end();) {
    run = std::find_if(run, points.end(), is_combining);
    const auto end = std::find_if_not(run, points.end(), is_combining);
    if (end - run > 1) {
      std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
        return utf8proc_get_property(a)->combining_class < utf8proc_get_property(b)->combining_class;
      });
    }
    run = end;
  }
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(n >= 0, "utf8proc_normalize_utf32: {}", n);
  storage.clear();
  storage.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(storage, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  return storage;
}

char32_t byte_to_code_point(uint8_t byte) noexcept {
  return kAlphabet.code_points[byte];
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const Utf8Sequence s = decode_utf8(token);
    if (s.kind != Utf8Sequence::Kind::kValid || s.code_point >= kAlphabet.bytes.size()) return std::nullopt;
    const int16_t byte = kAlphabet.bytes[s.code_point];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    token.remove_prefix(s.length);
  }
  return out;
}

}  // namespace tern::text
