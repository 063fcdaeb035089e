#include "cli/text_input.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "cli/flags.h"

namespace tern::cli {

namespace {

constexpr size_t kLongestText = size_t{256} << 20;  // some ten million tokens; /dev/zero has no end

std::string read_text(std::FILE* in, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  errno = 0;
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, in)) {
    text.append(buffer, n);
    if (text.size() > kLongestText)
      fail(ErrorCode::kInvalidArgument, "{} holds more than the {} MiB of text that are read", name,
           kLongestText >> 20);
  }
  if (std::ferror(in)) fail(ErrorCode::kIo, "cannot read {}: {}", name, std::strerror(errno));
  return text;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!in)
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  return read_text(in.get(), path);
}

std::string read_stdin() {
  return read_text(stdin, "stdin");
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
