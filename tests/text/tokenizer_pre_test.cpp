#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/pre_tokenizer.h"

namespace tern::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view name, std::string_view text) {
  std::vector<std::string_view> pieces;
  PreTokenizer(name).split(text, pieces);
  return Pieces(pieces.begin(), pieces.end());
}

TEST(PreTokenizer, CutsWordsNumbersAndBlanksAsEachModelDoes) {
  EXPECT_EQ(split("gpt2", "I'll go12 3!\n\n x"), (Pieces{"I", "'ll", " go", "12", " 3", "!", "\n\n", " x"}));
  EXPECT_EQ(split("llama-bpe", "I'LL 12345,x\n\n  y"), (Pieces{"I", "'LL", " ", "123", "45", ",x", "\n\n", " ", " y"}));
  EXPECT_EQ(split("qwen2", "v12 (a)\r\n"), (Pieces{"v", "1", "2", " (", "a", ")\r\n"}));
  EXPECT_EQ(split("smollm", "a12 b"), (Pieces{"a", "1", "2", " b"}));
  EXPECT_EQ(split("gpt-4o", "HTTPServer's don'T/\n"), (Pieces{"HTTPServer's", " don'T", "/\n"}));
  EXPECT_EQ(split("tekken", "HTTPServer's 12"), (Pieces{"HTTPServer", "'s", " ", "1", "2"}));
  EXPECT_EQ(split("deepseek-v3", "a1234\u4E00\u3042b .x"), (Pieces{"a", "123", "4", "\u4E00\u3042", "b", " .", "x"}));
  EXPECT_EQ(split("deepseek-llm", "ab 12\n\u4E00!  "), (Pieces{"ab", " ", "12", "\n", "\u4E00", "!", "  "}));
  EXPECT_EQ(split("deepseek-coder", " ab12\n ."), (Pieces{" ab", "1", "2", "\n", " ."}));
}

TEST(PreTokenizer, KeepsCombiningMarksInTheWordForQwen35Only) {
  EXPECT_EQ(split("qwen35", "x\u0316y"), (Pieces{"x\u0316y"}));
  EXPECT_EQ(split("qwen2", "x\u0316y"), (Pieces{"x", "\u0316y"}));
}

TEST(PreTokenizer, TakesBlanksFromTheUnicodePropertyAndNotFromPerl) {
  EXPECT_EQ(split("gpt2", "\u0085\u0085a"), (Pieces{"\u0085", "\u0085", "a"}));  // a blank
  EXPECT_EQ(split("gpt2", "\u180E\u180Ea"), (Pieces{"\u180E\u180E", "a"}));      // none
  EXPECT_EQ(split("gpt2", "\uFEFF\uFEFFa"), (Pieces{"\uFEFF\uFEFF", "a"}));      // none
}

TEST(PreTokenizer, TakesOnlyAsciiLettersForAContraction) {
  EXPECT_EQ(split("llama-bpe", "a'\u017F"), (Pieces{"a", "'\u017F"}));
  EXPECT_EQ(split("llama-bpe", "a'\u017Fb"), (Pieces{"a", "'\u017Fb"}));  // case folding would cut before the b
}

TEST(PreTokenizer, RefusesAnUnknownNameAndListsTheKnownOnes) {
  try {
    PreTokenizer("no-such-pre");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    const std::string message = e.what();
    EXPECT_NE(message.find("'no-such-pre'"), std::string::npos) << message;
    for (const PreTokenizerInfo& info : pre_tokenizers()) {
      for (const auto name : info.names) EXPECT_NE(message.find(name), std::string::npos) << name;
    }
  }
}

TEST(PreTokenizer, GivesAnAliasTheRowOfItsFirstName) {
  EXPECT_EQ(&PreTokenizer("falcon3").info(), &PreTokenizer("llama-bpe").info());
  EXPECT_EQ(&PreTokenizer("deepseek-r1-qwen").info(), &PreTokenizer("qwen2").info());
  EXPECT_EQ(&PreTokenizer("llama4").info(), &PreTokenizer("gpt-4o").info());
}

TEST(PreTokenizer, NamesNothingTwice) {
  std::vector<std::string_view> names;
  for (const PreTokenizerInfo& info : pre_tokenizers()) names.insert(names.end(), info.names.begin(), info.names.end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

// A pattern that rescans a run from each of its characters would take hours here and run into the suite's time limit.
TEST(PreTokenizer, CutsAMegabyteOfOneCharacterInTimeAndLosesNothing) {
  for (const PreTokenizerInfo& info : pre_tokenizers()) {
    const PreTokenizer pre(info.names[0]);
    for (const std::string_view unit :
         {" ", "\n", "a", "A", "1", ".", "\u0001", "\u0301", "\u5B57", " \t", "aB", "'", "\u00A0"}) {
      std::string text;
      while (text.size() < (1u << 20)) text += unit;
      text += 'x';
      std::vector<std::string_view> pieces;
      pre.split(text, pieces);
      size_t size = 0;
      for (const auto piece : pieces) {
        ASSERT_FALSE(piece.empty());
        ASSERT_EQ(piece.data(), text.data() + size);
        size += piece.size();
      }
      EXPECT_EQ(size, text.size()) << info.names[0];
    }
  }
}

}  // namespace
}  // namespace tern::text
