// Python's jinja2 as the oracle of the template tests.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tern::text {

using Json = nlohmann::ordered_json;

/// Renders each case ({"template", "variables", ...}, see jinja_reference.py) with the python3 that has jinja2. Text,
/// or nothing where the template failed. Throws std::runtime_error when there is no such Python: `make deps` installs
/// it.
std::vector<std::optional<std::string>> render_with_python(const std::vector<Json>& cases);

Json read_json(const std::string& path);
std::string read_file(const std::string& path);

}  // namespace tern::text
