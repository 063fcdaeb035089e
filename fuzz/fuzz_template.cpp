// Any bytes as a chat template: it either throws Error or renders well-formed UTF-8, within its limits of work and
// memory.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/jinja.h"
#include "text/unicode.h"

namespace {

using namespace tern;

// A conversation, and the names that the seeds use.
const nlohmann::ordered_json& variables() {
  static const auto json = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "héllo 你好"},
                 {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f",
                  "arguments": {"a": 1, "b": [true, null, 2.5]}}}]}, {"role": "tool", "content": "r"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
    "n": null, "t": true, "f": false, "i": 7, "neg": -7, "x": 2.5, "s": "Hello, World", "u": "héllo ÀÉ 你好 👩‍🚀",
    "w": "  pad\t\n", "l": [3, 1, 2], "e": [], "d": {"b": 1, "a": [1, 2, {"k": "v"}], "items": "shadow"},
    "names": ["bob", "Alice", "carol", "alice"], "html": "<a href=\"x\">'&'</a>", "text": "one two\nthree\r\n\nfive",
    "users": [{"name": "Bob", "age": 30, "tags": ["x"]}, {"name": "alice", "age": 25, "tags": []}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}]}], "big": 18446744073709551615})");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const text::jinja::Limits limits{.memory = std::size_t{32} << 20, .output = std::size_t{1} << 20, .work = 200'000};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const auto parsed = text::jinja::Template::parse(source, limits);
    const std::string out = parsed.render(variables(), std::chrono::system_clock::from_time_t(1'750'000'000));
    std::string storage;
    CHECK(text::valid_utf8(out, storage) == out, "a template rendered bytes that are no UTF-8");
  } catch (const Error&) {
  }
  return 0;
}
