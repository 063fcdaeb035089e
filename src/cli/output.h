// What every verb says the same way: JSON, errors, and text that came from somewhere else. A name in a file must not be
// able to move the cursor, rename the window or hide a line.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tern::cli {

/// `text` with what a terminal obeys instead of showing spelled out (\x1b, \n, \u0090 for C0, DEL and C1 characters,
/// \xff for bytes that are no UTF-8); the characters of `keep` pass.
std::string printable(std::string_view text, std::string_view keep = "");

/// "tern: message", one line on stderr.
void print_error(std::string_view message);

/// One line on stdout (several when `indent` >= 0). Bytes that are no UTF-8 become U+FFFD; on a terminal, characters
/// beyond ASCII are escaped.
void print_json(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace tern::cli
