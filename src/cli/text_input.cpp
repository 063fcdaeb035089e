#include "cli/text_input.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cli/flags.h"

namespace tern::cli {

std::string read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in.is_open() && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (!in.is_open() || in.bad() || text.bad())
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  return std::move(text).str();
}

std::vector<int32_t> parse_token_list(std::string_view list) {
  std::vector<int32_t> ids;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    int32_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc{} || end != part.data() + part.size() || id < 0)
      throw UsageError(fmt::format("--tokens wants ids separated by commas, and '{}' is not one", part));
    ids.push_back(id);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return ids;
}

}  // namespace tern::cli
