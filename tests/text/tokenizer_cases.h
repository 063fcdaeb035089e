// The texts of the corpus and what the JavaScript tokenizer of a package makes of them, as tokenizer_reference.mjs
// wrote them.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tern::text {

inline std::string base64_decode(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                  : c >= 'a' && c <= 'z' ? c - 'a' + 26
                  : c >= '0' && c <= '9' ? c - '0' + 52
                  : c == '+'             ? 62
                                         : 63;
    bits = bits << 6 | static_cast<uint32_t>(v);
    n += 6;
    if (n >= 8) out += static_cast<char>(bits >> (n -= 8));
  }
  return out;
}

struct Case {
  std::string text;
  std::vector<int32_t> ids;
};

inline std::vector<Case> read_cases(const std::string& package) {
  const std::string path = std::string(TERN_BINARY_DIR) + "/tokenizer_references/" + package + ".tsv";
  std::ifstream in(path);
  EXPECT_TRUE(in) << path << " is missing: run make deps, then this test through ctest, whose fixture writes the file";
  std::vector<Case> out;
  for (std::string line; std::getline(in, line);) {
    const size_t tab = line.find('\t');
    std::istringstream ids(line.substr(tab + 1));
    Case c{base64_decode(std::string_view(line).substr(0, tab)), {}};
    for (int32_t id; ids >> id;) c.ids.push_back(id);
    EXPECT_TRUE(ids.eof()) << line;
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace tern::text
