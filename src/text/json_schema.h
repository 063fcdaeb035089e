// Inside grammars: JSON Schema as GBNF. Rules that any schema may use have fixed names: ws, string, char, number,
// integer, boolean, null, value, object, array.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tern::text {

/// The whole grammar. Errors as Grammar::from_json_schema.
std::string gbnf_of_schema(const nlohmann::ordered_json& schema);
/// Rules for the part of `document` that `pointer` ("#/properties/a") shows, the first named `name` and the others
/// beginning with it. They need gbnf_common_rules() beside them. Errors as Grammar::from_json_schema.
std::string gbnf_of_schema_part(const nlohmann::ordered_json& document, const std::string& pointer,
                                const std::string& name);
std::string_view gbnf_common_rules();

// Expressions in GBNF, each safe to be followed by a repetition.

/// `text` as a literal.
std::string gbnf_literal(std::string_view text);
/// Rules for any text that holds none of `words` (of ASCII), the first named `name` and the others beginning with it.
std::string gbnf_of_text_without(const std::vector<std::string>& words, const std::string& name);
/// The inside of a JSON string whose value matches a regular expression of ECMA-262. kUnsupported, with `path`, for
/// what no grammar can say (assertions, back references) and for classes by Unicode property.
std::string gbnf_of_pattern(std::string_view pattern, const std::string& path);
/// The regular expression of a `format`; nothing when unknown.
std::optional<std::string_view> pattern_of_format(std::string_view format);
/// A JSON string that is none of `names`.
std::string gbnf_of_other_strings(const std::vector<std::string>& names);

struct Bound {
  int64_t value = 0;
  bool exclusive = false;
};
/// Integers between bounds (within 10^15) that may be absent; numbers also have fractions, and no exponents. Nothing
/// when no number lies between.
std::optional<std::string> gbnf_of_integers(std::optional<Bound> low, std::optional<Bound> high);
std::optional<std::string> gbnf_of_numbers(std::optional<Bound> low, std::optional<Bound> high);

}  // namespace tern::text
