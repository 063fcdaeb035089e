// Text and tokens that verbs take: -p, -f, stdin, --tokens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::cli {

/// The whole of a file. kNotFound / kIo with path and reason; kInvalidArgument for one that has no end.
std::string read_text_file(const std::string& path);
/// The whole of stdin, which must end (stdin_has_text).
std::string read_stdin();

/// "1,2,3" as token ids. UsageError naming the part that is not one.
std::vector<int32_t> parse_token_list(std::string_view list);

}  // namespace tern::cli
