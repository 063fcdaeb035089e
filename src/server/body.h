// The JSON body of a request, read field by field: types and ranges are checked, and what nobody asked for is refused
// by name. A field that is null counts as absent.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "server/api_error.h"

namespace tern::server {

/// A JSON text that came from outside. ApiError 400 when it is none, or deeper or wider than anything sensible.
Json parse_json(std::string_view text);

class Body {
 public:
  /// ApiError 400 unless `text` is a JSON object. An empty text is an empty object.
  explicit Body(std::string_view text);
  /// What one API asks, put into the words of another. `object` is one.
  static Body of(Json object) {
    Body body;
    body.json_ = std::move(object);
    return body;
  }

  std::optional<std::string> string(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  const Json* array(std::string_view name);
  const Json* object(std::string_view name);
  /// Of any type; nullptr when absent.
  const Json* any(std::string_view name);
  /// The same; ApiError 400 when absent.
  const Json& required(std::string_view name);
  /// One string or an array of them.
  std::vector<std::string> strings(std::string_view name);

  /// What has no influence on the answer.
  void ignore(std::initializer_list<std::string_view> names);
  /// What tern lacks, accepted with the value that changes nothing.
  void neutral(std::string_view name, const Json& value);
  /// ApiError 400 naming the first field that nothing above asked for.
  void refuse_rest() const;

 private:
  Body() = default;

  Json json_;
  std::unordered_set<std::string> asked_;
};

}  // namespace tern::server
