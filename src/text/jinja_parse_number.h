// Python's int("...") and float("..."): nothing when the text is no number.
#pragma once
#include <optional>
#include <string_view>

#include "text/jinja_value.h"

namespace tern::text::jinja {

/// `base` 0: by the prefix (0x, 0o, 0b). Raises when the number has more than 128 bits.
std::optional<Int> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace tern::text::jinja
