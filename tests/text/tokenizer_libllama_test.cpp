// Our tokens against llama.cpp's on one vocabulary, that of the model in models/ (12,288 tokens), under every
// pre-tokenizer; and of the two other small models under their own.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <filesystem>

#include "gguf/writer.h"
#include "text/libllama.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_cases.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

/// A vocabulary-only file for libllama, which does not know the weight formats of the models themselves.
class VocabularyFile {
 public:
  explicit VocabularyFile(const gguf::Metadata& metadata)
      : path_(testing::TempDir() + "tern_libllama_" +
              testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() +
              std::string(metadata.require_string("tokenizer.ggml.pre")) + ".gguf") {
    std::replace(path_.begin() + static_cast<std::ptrdiff_t>(testing::TempDir().size()), path_.end(), '/', '_');
    gguf::Metadata copy = metadata;
    copy.set_string("general.architecture", "llama");
    gguf::Writer writer(path_, copy);
    writer.finish();
  }
  ~VocabularyFile() { std::filesystem::remove(path_); }
  VocabularyFile(const VocabularyFile&) = delete;
  VocabularyFile& operator=(const VocabularyFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool holds(std::string_view text, bool (*is)(char32_t)) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence s = decode_utf8(text.substr(at));
    if (is(s.code_point)) return true;
    at += s.length;
  }
  return false;
}

bool is_mark(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool is_wide_blank(char32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Texts on which llama.cpp does not follow the pattern that the models' own tokenizer.json has (and that the
/// JavaScript tokenizer agrees with us about): its gpt-4o and tekken know ASCII capitals only and no marks, its
/// deepseek-llm and deepseek-coder read every blank beyond ASCII as U+000B.
bool llama_cpp_deviates(std::string_view pre, std::string_view text) {
  if (pre == "gpt-4o" || pre == "tekken") return holds(text, is_mark);
  if (pre == "deepseek-llm" || pre == "deepseek-coder") return holds(text, is_wide_blank);
  return false;
}

/// Compares the whole corpus, with control tokens parsed and not; returns how many texts it was.
size_t compare(const gguf::Metadata& metadata, std::string_view pre) {
  const VocabularyFile file(metadata);
  const Tokenizer ours = Tokenizer::from_metadata(metadata);
  const test::LlamaVocabulary theirs(file.path());
  size_t compared = 0, different = 0;
  for (const Case& c : read_cases("llama3")) {
    // llama.cpp reads ill-formed bytes one by one and normalises nothing.
    std::string valid, normal;
    const std::string_view text = to_nfc(valid_utf8(c.text, valid), normal);
    if (llama_cpp_deviates(pre, text)) continue;
    ++compared;
    for (const bool parse : {false, true}) {
      const auto ids = ours.encode(text, {.add_special = false, .parse_special = parse});
      const auto expected = theirs.tokenize(text, /*add_special=*/false, parse);
      if (ids != expected && ++different <= 5) {
        ADD_FAILURE() << pre << ": " << testing::PrintToString(std::string(text))
                      << "\nours:   " << testing::PrintToString(ids)
                      << "\ntheirs: " << testing::PrintToString(expected);
      }
    }
  }
  EXPECT_EQ(different, 0u);
  for (int32_t id = 0; id < ours.n_vocab(); ++id) {
    EXPECT_EQ(ours.piece(id), theirs.piece(id, false)) << id;
    EXPECT_EQ(ours.piece(id, true), theirs.piece(id, true)) << id;
    EXPECT_EQ(ours.is_end_of_generation(id), theirs.is_end_of_generation(id)) << id;
  }
  return compared;
}

class EveryPreTokenizer : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryPreTokenizer, GivesTheTokensOfLlamaCpp) {
  gguf::Metadata metadata = gguf::File::open(TERN_SOURCE_DIR "/models/ternlet-hybrid-108m-PTQ1_0.gguf").metadata();
  metadata.set_string("tokenizer.ggml.pre", std::string(GetParam()));
  metadata.set_u32("tokenizer.ggml.bos_token_id", 0);  // for those that ask for one
  EXPECT_GE(compare(metadata, GetParam()), 1900u);
}

std::vector<std::string_view> one_name_a_row() {
  std::vector<std::string_view> out;
  for (const PreTokenizerInfo& info : pre_tokenizers()) {
    out.push_back(info.names[0] == "gpt2" ? "gpt-2" : info.names[0]);  // llama.cpp's name
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Ternlet, EveryPreTokenizer, testing::ValuesIn(one_name_a_row()),
                         [](const testing::TestParamInfo<std::string_view>& pre) {
                           std::string name(pre.param);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

class RealFile : public testing::TestWithParam<const char*> {};

TEST_P(RealFile, GivesTheTokensOfLlamaCpp) {
  const std::string path = std::string(TERN_SOURCE_DIR "/../shared/models/") + GetParam() + ".gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "NOT CHECKED: " << path << " is absent";
  EXPECT_GE(compare(gguf::File::open(path).metadata(), "qwen2"), 2000u);
}

INSTANTIATE_TEST_SUITE_P(Ternlet, RealFile, testing::Values("ternlet-bitnet-72m-I2_S", "ternlet-moe-29m-Q8_0"),
                         [](const testing::TestParamInfo<const char*>& file) {
                           std::string name(file.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tern::text
