#include "server/body.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace tern::server {
namespace {

constexpr size_t kMostDepth = 64;
constexpr uint32_t kMostMembers = 1024;  // of an object: looking for a key is linear

/// Looks at a JSON text before it is parsed: the parser's tree and what walks it recursively must not be asked for more
/// than they can take. Strings are skipped; everything else is the parser's business.
void require_sensible(std::string_view text) {
  struct Open {
    bool object;
    uint32_t commas;
  };
  std::array<Open, kMostDepth> stack{};
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == '{' || c == '[') {
      if (depth == kMostDepth)
        throw bad_request("", fmt::format("the JSON is nested deeper than {} levels", kMostDepth));
      stack[depth++] = {c == '{', 0};
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    } else if (c == ',' && depth > 0 && stack[depth - 1].object && ++stack[depth - 1].commas >= kMostMembers) {
      throw bad_request("", fmt::format("an object of the JSON has more than {} members", kMostMembers));
    }
  }
}

[[noreturn]] void wrong_type(std::string_view name, std::string_view wanted, const Json& got) {
  throw bad_request(std::string(name), fmt::format("'{}' must be {}, not {}", name, wanted, got.type_name()));
}

}  // namespace

Json parse_json(std::string_view text) {
  require_sensible(text);
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw bad_request("", "the body is no JSON: " + json_reason(error));
  }
}

Body::Body(std::string_view text) : json_(text.empty() ? Json::object() : parse_json(text)) {
  if (!json_.is_object())
    throw bad_request("", fmt::format("the body must be a JSON object, not {}", json_.type_name()));
}

const Json* Body::any(std::string_view name) {
  asked_.emplace(name);
  const auto it = json_.find(std::string(name));
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

const Json& Body::required(std::string_view name) {
  const Json* value = any(name);
  if (!value) throw bad_request(std::string(name), fmt::format("'{}' is missing", name));
  return *value;
}

std::optional<std::string> Body::string(std::string_view name) {
  const Json* value = any(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) wrong_type(name, "a string", *value);
  return value->get<std::string>();
}

std::optional<int64_t> Body::integer(std::string_view name, int64_t low, int64_t high) {
  const Json* value = any(name);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : 0;
  // Some clients write whole numbers as 64.0; beyond 2^53 a double is no longer the number that was written.
  const bool whole =
      value->is_number_integer() || (value->is_number() && number == std::floor(number) && std::abs(number) < 9e15);
  if (!whole) wrong_type(name, "an integer", *value);
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t n = huge ? INT64_MAX : value->get<int64_t>();
  if (huge || n < low || n > high)
    throw bad_request(std::string(name),
                      fmt::format("'{}' is {}, and must be within {}..{}", name, value->dump(), low, high));
  return n;
}

std::optional<double> Body::number(std::string_view name) {
  const Json* value = any(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) wrong_type(name, "a number", *value);
  return value->get<double>();
}

std::optional<bool> Body::boolean(std::string_view name) {
  const Json* value = any(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) wrong_type(name, "true or false", *value);
  return value->get<bool>();
}

const Json* Body::array(std::string_view name) {
  const Json* value = any(name);
  if (value && !value->is_array()) wrong_type(name, "an array", *value);
  return value;
}

const Json* Body::object(std::string_view name) {
  const Json* value = any(name);
  if (value && !value->is_object()) wrong_type(name, "an object", *value);
  return value;
}

std::vector<std::string> Body::strings(std::string_view name) {
  const Json* value = any(name);
  if (!value) return {};
  std::vector<std::string> out;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    if (!item.is_string()) wrong_type(name, "a string or an array of strings", item);
    out.push_back(item.get<std::string>());
  }
  return out;
}

void Body::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) asked_.emplace(name);
}

void Body::neutral(std::string_view name, const Json& value) {
  const Json* given = any(name);
  if (given && *given != value)
    throw bad_request(
        std::string(name),
        fmt::format("'{}' is not supported: only {}, which changes nothing, is accepted", name, value.dump()));
}

void Body::refuse_rest() const {
  for (const auto& [name, value] : json_.items())
    if (!value.is_null() && !asked_.contains(name))
      throw bad_request(name, fmt::format("unknown parameter '{}'", name));
}

}  // namespace tern::server
