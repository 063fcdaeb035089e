#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "text/tokenizer_vocabulary.h"

namespace tern::text {
namespace {

using Ids = std::vector<int32_t>;
constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kParsed{.add_special = false, .parse_special = true};

Tokenizer make(const gguf::Metadata& metadata) {
  return Tokenizer::from_metadata(metadata);
}

/// Expects a refusal whose message holds all of `parts`.
void expect_refused(const gguf::Metadata& metadata, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    make(metadata);
    ADD_FAILURE() << "accepted; wanted: " << testing::PrintToString(parts);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(ByteLevelBpe, MergesTheLowestRankFirstAndTheLeftmostAmongEquals) {
  const Tokenizer t = make(byte_level({"b c", "a b", "ab c", "c c"}));  // 256 bc, 257 ab, 258 abc, 259 cc
  EXPECT_EQ(t.encode("abc"), (Ids{'a', 256}));                          // bc came first, so ab can no longer
  EXPECT_EQ(t.encode("ab"), (Ids{257}));
  EXPECT_EQ(t.encode("ccc"), (Ids{259, 'c'}));
  EXPECT_EQ(t.encode("cccc"), (Ids{259, 259}));
}

TEST(ByteLevelBpe, NeverMergesAcrossPieces) {
  const Tokenizer t = make(byte_level({"a \u0120", "\u0120 a"}));
  EXPECT_EQ(t.encode("a a"), (Ids{'a', 257}));
}

TEST(ByteLevelBpe, GivesARepeatedWordTheSameTokens) {
  const Tokenizer t = make(byte_level({"a b", "\u0120 ab"}));
  EXPECT_EQ(t.encode("ab ab ab"), (Ids{256, 257, 257}));
}

TEST(ByteLevelBpe, KeepsAWholeTokenThatNoMergeMakesOnlyWhereThePreTokenizerSaysSo) {
  const std::vector<std::pair<std::string, TokenType>> word = {{"xyz", TokenType::kNormal}};
  EXPECT_EQ(make(byte_level({}, word, "llama-bpe")).encode("xyz", kPlain), (Ids{256}));
  EXPECT_EQ(make(byte_level({}, word, "qwen2")).encode("xyz", kPlain), (Ids{'x', 'y', 'z'}));
}

TEST(ByteLevelBpe, NormalisesOnlyWhereTheModelWasTrainedSo) {
  EXPECT_EQ(make(byte_level({}, {}, "qwen2")).encode("e\u0301"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(make(byte_level({}, {}, "gpt2")).encode("e\u0301"), (Ids{'e', 0xCC, 0x81}));
}

TEST(ByteLevelBpe, ReadsIllFormedBytesAsReplacementCharacters) {
  const Tokenizer t = make(byte_level({}));
  EXPECT_EQ(t.encode("a\xFF\xE2\x82z"), t.encode("a\uFFFD\uFFFDz"));
}

TEST(ByteLevelBpe, EncodesAMegabyteOfOneWordAndOfBlanksInTime) {
  const Tokenizer t = make(byte_level({"a a", "aa aa", "\u0120 \u0120", "\u0120\u0120 \u0120\u0120"}));
  EXPECT_EQ(t.encode(std::string(1 << 20, 'a')).size(), (1u << 20) / 4);
  EXPECT_EQ(t.encode(std::string(1 << 20, ' ')).size(), (1u << 20) / 4);
}

TEST(ByteLevelBpe, NamesTheByteThatHasNoToken) {
  gguf::Metadata m;
  m.set_string("tokenizer.ggml.model", "gpt2");
  m.set_string("tokenizer.ggml.pre", "gpt2");
  m.set_strings("tokenizer.ggml.tokens", {"a"});
  m.set_strings("tokenizer.ggml.merges", {});
  const Tokenizer t = make(m);
  EXPECT_EQ(t.encode("a"), (Ids{0}));
  try {
    t.encode("ab");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("byte 0x62"), std::string::npos) << e.what();
  }
}

TEST(ByteLevelBpe, TakesAFileOfBitnetWithoutPreAsLlamaBpeAndNoOther) {
  gguf::Metadata m = byte_level({}, {{"xyz", TokenType::kNormal}});
  m.erase("tokenizer.ggml.pre");
  for (const char* architecture : {"bitnet-b1.58", "bitnet-25", "bitnet"}) {
    m.set_string("general.architecture", architecture);
    EXPECT_EQ(make(m).description(), "gpt2/llama-bpe");
  }
  m.set_string("general.architecture", "llama");
  expect_refused(m, ErrorCode::kBadFile, {"no tokenizer.ggml.pre"});
}

TEST(Spm, MergesByScoreOfTheResultAfterABlankInFront) {
  const Tokenizer t = make(spm({{"\u2581", -9}, {"a", -8}, {"b", -7}, {"ab", -2}, {"\u2581a", -1}}));
  EXPECT_EQ(t.encode("ab"), (Ids{4, 2}));
  EXPECT_EQ(t.encode("bab"), (Ids{0, 2, 3}));
}

TEST(Spm, SpellsCharactersWithoutATokenInBytes) {
  std::vector<SpmToken> tokens = {{"<unk>", 0, TokenType::kUnknown}, {"\u2581", -1}};
  for (int b = 0; b < 256; ++b) tokens.push_back({fmt::format("<0x{:02X}>", b), 0, TokenType::kByte});
  const Tokenizer t = make(spm(tokens));
  EXPECT_EQ(t.encode("\u00E9"), (Ids{1, 2 + 0xC3, 2 + 0xA9}));
  EXPECT_EQ(t.decode(Ids{1, 2 + 0xC3, 2 + 0xA9}), "\u00E9");
}

TEST(Spm, StandsOneUnknownTokenForARunOfUnknownCharacters) {
  gguf::Metadata m = spm({{"<unk>", 0, TokenType::kUnknown}, {"\u2581", -1}, {"a", -2}});
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_THROW(make(m).encode("xyaz"), Error);
  m.set_u32("tokenizer.ggml.unknown_token_id", 0);
  EXPECT_EQ(make(m).encode("xyaz"), (Ids{0, 2, 0}));
}

TEST(Spm, MergesACharacterThatIsNoTokenOfItsOwn) {
  gguf::Metadata m = spm({{"\u2581", -1}, {"a", -2}, {"a\u5B57", -3}});
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(make(m).encode("aa\u5B57"), (Ids{1, 2}));
}

TEST(Spm, NeverMergesTextIntoAControlToken) {
  gguf::Metadata m =
      spm({{"\u2581", -1}, {"<", -2}, {"s>", -3}, {"s", -4}, {">", -5}, {"<s>", 0, TokenType::kControl}});
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(make(m).encode("<s>", kPlain), (Ids{1, 2}));
  EXPECT_EQ(make(m).encode("<s>", kParsed), (Ids{5}));
}

TEST(Spm, PutsTheBlankInFrontAndAfterSpecialTokensUnlessTheFileSaysNo) {
  gguf::Metadata m = spm({{"\u2581", -1}, {"a", -2}, {"\u2581a", -3}, {"<s>", 0, TokenType::kControl}});
  EXPECT_EQ(make(m).encode("a<s>a", kParsed), (Ids{2, 3, 2}));
  EXPECT_EQ(make(m).encode(" a", kParsed), (Ids{0, 2}));
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(make(m).encode("a<s> a", kParsed), (Ids{1, 3, 2}));
}

TEST(Spm, TakesAUserDefinedRunOfBlanksInEitherSpelling) {
  for (const char* run : {"  ", "\u2581\u2581"}) {
    gguf::Metadata m = spm({{"\u2581", -1}, {"a", -2}, {"\u2581a", -3}, {run, 0, TokenType::kUserDefined}});
    m.set_bool("tokenizer.ggml.add_space_prefix", false);
    const Tokenizer t = make(m);
    EXPECT_EQ(t.encode("   a"), (Ids{3, 2})) << run;
    EXPECT_EQ(t.encode("\u2581 a"), (Ids{3, 1})) << run;
    EXPECT_EQ(t.piece(3), "  ");
  }
}

TEST(Spm, MergesWordByWordOnlyWhereNoTokenSpansTwo) {
  gguf::Metadata m = spm({{"\u2581", -1}, {"a", -2}, {"b", -3}, {"\u2581b", -9}, {"a\u2581b", -10}});
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(make(m).encode("a b"), (Ids{4}));
}

TEST(Spm, EncodesAMegabyteWithoutABlankInTime) {
  gguf::Metadata m = spm({{"\u2581", -1}, {"a", -2}, {"aa", -3}, {"aaaa", -4}});
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(make(m).encode(std::string(1 << 20, 'a')).size(), (1u << 20) / 4);
}

TEST(Spm, LoadsATokenOfMegabytesInTime) {
  std::string text;
  for (uint32_t i = 0; i < 5'000'000; ++i) text += static_cast<char>('a' + i * 7919u % 23u);
  const std::string half = text.substr(0, 2'000'000);
  const Tokenizer t = make(spm({{"\u2581", -9}, {"a", -8}, {text, -3}, {half, -2}, {text.substr(2'000'000), -1}}));
  EXPECT_EQ(t.n_vocab(), 5);
  EXPECT_EQ(t.piece(2).size(), text.size());
}

TEST(Spm, MakesATokenInEveryWayThereIs) {
  // "aba" is a+ba and ab+a; the better-scored half decides which is made first.
  const std::vector<SpmToken> list{{"a", -9}, {"b", -9}, {"ab", -2}, {"ba", -1}, {"aba", -3}};
  gguf::Metadata m = spm(list);
  m.set_bool("tokenizer.ggml.add_space_prefix", false);
  m.set_bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(make(m).encode("aba"), (std::vector<int32_t>{4}));
  EXPECT_EQ(make(m).encode("abba"), (std::vector<int32_t>{2, 3}));
}

TEST(SpecialTokens, AreTextUnlessAskedForButUserDefinedOnesAlwaysCut) {
  const Tokenizer t =
      make(byte_level({}, {{"<|im_start|>", TokenType::kControl}, {"<think>", TokenType::kUserDefined}}));
  EXPECT_EQ(t.encode("<|im_start|>", kParsed), (Ids{256}));
  EXPECT_EQ(t.encode("<|im_start|>", kPlain).size(), 12u);
  EXPECT_EQ(t.encode("a<think>b", kPlain), (Ids{'a', 257, 'b'}));
  EXPECT_EQ(t.encode("<<|im_start|>><|im_start|", kParsed).size(), 1u + 1 + 1 + 11);
}

TEST(SpecialTokens, TheLongestWinsAtTheLeftmostPlace) {
  const Tokenizer t = make(byte_level(
      {}, {{"ab", TokenType::kUserDefined}, {"abcd", TokenType::kUserDefined}, {"bcdef", TokenType::kUserDefined}}));
  EXPECT_EQ(t.encode("abcdef"), (Ids{257, 'e', 'f'}));
  EXPECT_EQ(t.encode("abcbcdef"), (Ids{256, 'c', 258}));
}

TEST(SpecialTokens, SwallowTheBlanksBehindThemInPhi3) {
  gguf::Metadata m = byte_level({}, {{"<|user|>", TokenType::kControl}, {"<|endoftext|>", TokenType::kControl}});
  m.set_string("general.name", "Phi-3 mini");
  EXPECT_EQ(make(m).encode("<|user|> \n a<|endoftext|> b", kParsed), (Ids{256, 'a', 257, ' ', 'b'}));
  EXPECT_EQ(make(m).encode("<|user|>  ", kParsed), (Ids{256}));
  m.set_string("general.name", "other");
  EXPECT_EQ(make(m).encode("<|user|> a", kParsed), (Ids{256, ' ', 'a'}));
}

TEST(SpecialTokens, HaveAPieceOnlyWhenAskedFor) {
  const Tokenizer t = make(byte_level({}, {{"<|im_end|>", TokenType::kControl}, {"<think>", TokenType::kUserDefined}}));
  EXPECT_EQ(t.piece(256), "");
  EXPECT_EQ(t.piece(256, true), "<|im_end|>");
  EXPECT_EQ(t.piece(257), "<think>");
  EXPECT_EQ(t.piece(' '), " ");
  EXPECT_EQ(t.token_text(' '), "\u0120");
  EXPECT_TRUE(t.is_special(256));
  EXPECT_FALSE(t.is_special(257));
  EXPECT_THROW(t.piece(258), Error);
  EXPECT_THROW(t.piece(-1), Error);
}

TEST(BeginOfSequence, IsAddedOnceAndWhereTheModelWantsIt) {
  gguf::Metadata m = byte_level({}, {{"<s>", TokenType::kControl}, {"</s>", TokenType::kControl}}, "llama-bpe");
  EXPECT_FALSE(make(m).add_bos());  // the pre-tokenizer asks for one, but there is none
  m.set_u32("tokenizer.ggml.bos_token_id", 256);
  m.set_u32("tokenizer.ggml.eos_token_id", 257);
  EXPECT_EQ(make(m).encode("a"), (Ids{256, 'a'}));
  EXPECT_EQ(make(m).encode(""), (Ids{256}));
  EXPECT_EQ(make(m).encode("a", kPlain), (Ids{'a'}));
  EXPECT_EQ(make(m).encode("<s>a", {.add_special = true, .parse_special = true}), (Ids{256, 'a'}));
  m.set_bool("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(make(m).encode("a"), (Ids{256, 'a', 257}));
  m.set_bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(make(m).encode("a"), (Ids{'a', 257}));
}

TEST(EndOfGeneration, IsFoundByKeyAndByName) {
  gguf::Metadata m = byte_level(
      {}, {{"<stop>", TokenType::kControl}, {"<|im_end|>", TokenType::kNormal}, {"<|x|>", TokenType::kControl}});
  m.set_u32("tokenizer.ggml.eos_token_id", 256);
  const Tokenizer t = make(m);
  EXPECT_TRUE(t.is_end_of_generation(256));
  EXPECT_TRUE(t.is_end_of_generation(257));
  EXPECT_FALSE(t.is_end_of_generation(258));
  EXPECT_EQ(t.eot(), 257);
  EXPECT_TRUE(t.is_special(257));  // typed as text by the converter, but text must not end a turn
  EXPECT_NE(t.encode("<|im_end|>", kPlain), (Ids{257}));
}

TEST(EndOfGeneration, IsNotTheEndOfAHarmonyMessage) {
  const Tokenizer t = make(byte_level(
      {}, {{"<|end|>", TokenType::kControl}, {"<|call|>", TokenType::kControl}, {"<|return|>", TokenType::kControl}}));
  EXPECT_FALSE(t.is_end_of_generation(256));
  EXPECT_TRUE(t.is_end_of_generation(257));
  EXPECT_TRUE(t.is_end_of_generation(258));
}

TEST(Refusals, NameTheKeyAndTheNumbers) {
  const gguf::Metadata good = byte_level({"a b"}, {{"<s>", TokenType::kControl}});
  const auto with = [&](auto change) {
    gguf::Metadata m = good;
    change(m);
    return m;
  };
  using M = gguf::Metadata;
  const auto bad = ErrorCode::kBadFile;
  expect_refused(with([](M& m) { m.erase("tokenizer.ggml.tokens"); }), bad, {"no tokenizer.ggml.tokens"});
  expect_refused(with([](M& m) { m.erase("tokenizer.ggml.model"); }), bad, {"tokenizer.ggml.model"});
  expect_refused(with([](M& m) { m.erase("tokenizer.ggml.merges"); }), bad, {"no tokenizer.ggml.merges"});
  expect_refused(with([](M& m) { m.set_string("tokenizer.ggml.model", "bert"); }), ErrorCode::kUnsupported,
                 {"'bert'", "gpt2", "llama"});
  expect_refused(with([](M& m) { m.set_string("tokenizer.ggml.pre", "zzz"); }), ErrorCode::kUnsupported,
                 {"'zzz'", "qwen35", "tekken"});
  expect_refused(with([](M& m) {
                   m.set_i32s("tokenizer.ggml.token_type", {1, 1});
                 }),
                 bad, {"tokenizer.ggml.token_type has 2", "has 258"});
  expect_refused(with([](M& m) { m.set_f32s("tokenizer.ggml.scores", {0}); }), bad,
                 {"tokenizer.ggml.scores has 1", "has 258"});
  expect_refused(with([](M& m) { m.set_i32s("tokenizer.ggml.token_type", std::vector<int64_t>(258, 7)); }), bad,
                 {"token_type[0] is 7"});
  expect_refused(with([](M& m) { m.set_strings("tokenizer.ggml.merges", {"a c"}); }), bad,
                 {"merges[0] is 'a c'", "'ac' is not in"});
  expect_refused(with([](M& m) {
                   m.set_strings("tokenizer.ggml.merges", {"a b", "\u5B57 b"});
                 }),
                 bad, {"merges[1]", "'\u5B57' is not in"});
  expect_refused(with([](M& m) { m.set_strings("tokenizer.ggml.merges", {"ab"}); }), bad, {"merges[0] is 'ab'"});
  expect_refused(with([](M& m) { m.set_strings("tokenizer.ggml.merges", {"a "}); }), bad, {"merges[0] is 'a '"});
  expect_refused(with([](M& m) { m.set_u32("tokenizer.ggml.bos_token_id", 258); }), bad,
                 {"bos_token_id is 258", "258 tokens (0 to 257)"});
  expect_refused(with([](M& m) { m.set_u32("tokenizer.ggml.eos_token_id", 4294967295u); }), bad,
                 {"eos_token_id is 4294967295"});
  expect_refused(with([](M& m) { m.set_bool("tokenizer.ggml.add_bos_token", true); }), bad,
                 {"add_bos_token is true", "no tokenizer.ggml.bos_token_id"});

  gguf::Metadata twice = spm({{"a"}, {"b"}, {"a"}});
  expect_refused(twice, bad, {"'a' twice, as 0 and 2"});
  twice = spm({{"a"}});
  twice.erase("tokenizer.ggml.scores");
  expect_refused(twice, bad, {"no tokenizer.ggml.scores"});
  expect_refused(spm({{"a", std::nan("")}}), bad, {"scores[0] is not a number"});
  expect_refused(spm({{"zz", 0, TokenType::kByte}}), bad, {"token 0 is typed as a byte", "'zz'"});
}

TEST(Tokenizer, EncodesFromManyThreadsAtOnce) {
  const Tokenizer t = make(byte_level({"a b", "\u0120 ab"}, {{"<|x|>", TokenType::kControl}}, "qwen35"));
  const std::string text = "ab ab<|x|> e\u0301 ab\n 12 \xFF";
  const Ids expected = t.encode(text);
  std::vector<Ids> found(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& ids : found) {
      threads.emplace_back([&t, &text, &ids] {
        for (int i = 0; i < 100; ++i) ids = t.encode(text);
      });
    }
  }
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

class RealModel : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(RealModel, TokenizesTheGoldenPromptsAndSpellsThemBack) {
  const auto& [model, golden] = GetParam();
  const std::string root = TERN_SOURCE_DIR;
  std::string path = root + "/models/" + model;
  if (!std::filesystem::exists(path)) path = root + "/../shared/models/" + model;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "NOT CHECKED: " << path << " is absent";
  const Tokenizer t = make(gguf::File::open(path).metadata());
  std::ifstream in(root + "/tests/golden/" + golden);
  ASSERT_TRUE(in) << golden;
  const auto json = nlohmann::json::parse(in);
  ASSERT_GE(json["cases"].size(), 5u);
  for (const auto& c : json["cases"]) {
    const auto text = c["text"].get<std::string>();
    const Ids ids = t.encode(text, {.add_special = true, .parse_special = true});
    EXPECT_EQ(ids, c["tokens"].get<Ids>()) << text;
    EXPECT_EQ(t.decode(ids, true), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Ternlet, RealModel,
                         testing::Values(std::pair{"ternlet-hybrid-108m-PTQ1_0.gguf", "ternlet-hybrid-108m-F32.json"},
                                         std::pair{"ternlet-bitnet-72m-I2_S.gguf", "ternlet-bitnet-72m.json"},
                                         std::pair{"ternlet-moe-29m-Q8_0.gguf", "ternlet-moe-29m-Q8_0.json"}));

}  // namespace
}  // namespace tern::text
