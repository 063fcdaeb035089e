#include "cli/output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "text/unicode.h"

namespace tern::cli {

std::string printable(std::string_view from, std::string_view keep) {
  std::string out;
  while (!from.empty()) {
    const text::Utf8Sequence next = text::decode_utf8(from);
    const std::string_view bytes = from.substr(0, next.length);
    from.remove_prefix(next.length);
    const char32_t c = next.code_point;
    if (next.kind != text::Utf8Sequence::Kind::kValid) {
      for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else if (c >= 0x80 && c < 0xa0) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else if ((c >= 0x20 && c != 0x7f) || keep.find(bytes) != keep.npos) {
      out += bytes;
    } else {
      out += c == '\n' ? "\\n" : fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    }
  }
  return out;
}

void print_error(std::string_view message) {
  fmt::print(stderr, "tern: {}\n", printable(message));
}

void print_json(const nlohmann::ordered_json& json, int indent) {
  fmt::print("{}\n", json.dump(indent, ' ', stdout_is_terminal(), nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace tern::cli
