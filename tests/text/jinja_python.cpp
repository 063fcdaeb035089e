#include "text/jinja_python.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tern::text {
namespace {

// The first python3 may be another installation than Debian's, which has the package.
std::string find_python() {
  for (const std::string python : {"/usr/bin/python3", "python3"}) {
    if (std::system((python + " -c 'import jinja2' 2>/dev/null").c_str()) == 0) return python;
  }
  throw std::runtime_error("no python3 has jinja2, which the template tests compare with: run make deps");
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

Json read_json(const std::string& path) {
  return Json::parse(read_file(path));
}

std::vector<std::optional<std::string>> render_with_python(const std::vector<Json>& cases) {
  const std::string base = std::string(TERN_BINARY_DIR) + "/jinja_cases_" + std::to_string(getpid());
  {
    std::ofstream in(base + ".in");
    for (const Json& c : cases) in << c.dump() << '\n';
  }
  const std::string script = std::string(TERN_SOURCE_DIR) + "/tests/text/jinja_reference.py";
  const std::string command = find_python() + " '" + script + "' <'" + base + ".in' >'" + base + ".out'";
  const int status = std::system(command.c_str());
  std::vector<std::optional<std::string>> results;
  std::ifstream out(base + ".out");
  for (std::string line; std::getline(out, line);) {
    const Json result = Json::parse(line);
    results.push_back(result.contains("ok") ? std::optional(result["ok"].get<std::string>()) : std::nullopt);
  }
  std::filesystem::remove(base + ".in");
  std::filesystem::remove(base + ".out");
  if (status != 0 || results.size() != cases.size()) {
    throw std::runtime_error("jinja_reference.py failed: it answered " + std::to_string(results.size()) + " of " +
                             std::to_string(cases.size()) + " cases");
  }
  return results;
}

}  // namespace tern::text
