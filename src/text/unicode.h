// UTF-8, normalisation form C and the byte alphabet of byte-level vocabularies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tern::text {

/// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The sequence at the head of some bytes. Ill-formed input is cut as Unicode recommends and TextDecoder does: the
/// longest prefix of a well-formed sequence counts as one error.
struct Utf8Sequence {
  enum class Kind : uint8_t { kValid, kInvalid, kTruncated };  // kTruncated: more bytes could still make it valid
  Kind kind = Kind::kInvalid;
  uint8_t length = 1;       // bytes it spans, >= 1
  char32_t code_point = 0;  // of a valid one
};
/// `bytes` must not be empty.
Utf8Sequence decode_utf8(std::string_view bytes) noexcept;

void append_utf8(std::string& out, char32_t code_point);

/// Appends `bytes` with every ill-formed sequence replaced by U+FFFD; returns how many bytes were read: all of them, or
/// all but a truncated tail when `keep_tail`.
size_t append_valid_utf8(std::string& out, std::string_view bytes, bool keep_tail);

/// `text` itself when it is well-formed, else a copy in `storage` with U+FFFD for every ill-formed sequence.
std::string_view valid_utf8(std::string_view text, std::string& storage);

/// `text` (well-formed) in normalisation form C: `text` itself when nothing in it can change, else a copy in `storage`.
/// Linear, also in runs of combining marks.
std::string_view to_nfc(std::string_view text, std::string& storage);

/// The alphabet of byte-level vocabularies (GPT-2's encoder.py): printable Latin-1 bytes stand for themselves, the 68
/// others for U+0100 upwards in order.
char32_t byte_to_code_point(uint8_t byte) noexcept;
/// The bytes that `token` spells in that alphabet, or nothing when it holds a character outside of it.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace tern::text
