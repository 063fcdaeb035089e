// The verbs on tiny models.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/subprocess.h"
#include "gguf/temp_folder.h"
#include "synth/synth.h"

namespace tern {
namespace {

using nlohmann::json;
using test::Finished;
using test::run_tern;

struct Tiny {
  gguf::testing::TempFolder folder;
  std::string path = folder / "tiny.gguf";
  explicit Tiny(std::string_view shape = "tiny-llama", TensorType type = TensorType::F16) {
    synth::write_model(path, synth::find_shape(shape), {.type = type, .threads = 1});
  }
};

json parsed(const Finished& f) {
  EXPECT_EQ(f.code, 0) << f.err;
  return json::parse(f.out, nullptr, false);
}

TEST(Show, ListsTheModelItsFormatsAndItsMemory) {
  const Tiny tiny;
  const json j = parsed(run_tern({"show", tiny.path, "--json"}));
  EXPECT_EQ(j.at("architecture"), "llama");
  EXPECT_EQ(j.at("supported"), true);
  EXPECT_FALSE(j.at("formats").empty());
  EXPECT_EQ(j.at("memory").back().at("context"), 512);
  EXPECT_EQ(run_tern({"show", "-m", tiny.path}).code, 0);
}

TEST(Plan, ListsAnOpPerRowWithKernelAndMemory) {
  const Tiny tiny;
  const json j = parsed(run_tern({"plan", tiny.path, "--json", "--backend", "ref"}));
  EXPECT_EQ(j.at("backend"), "ref");
  EXPECT_GT(j.at("ops").size(), 20u);
  for (const json& op : j.at("ops")) EXPECT_FALSE(op.at("kernel").get<std::string>().empty()) << op;
  EXPECT_FALSE(j.at("memory").empty());
}

TEST(Tokenize, IdsRoundTripThroughLogits) {
  const Tiny tiny;
  const json tokens = parsed(run_tern({"tokenize", "-m", tiny.path, "--json", "the quick brown fox"})).at("tokens");
  EXPECT_GT(tokens.size(), 3u);
  EXPECT_EQ(parsed(run_tern({"tokenize", "-m", tiny.path, "--json"}, "the quick brown fox")).at("tokens"), tokens);
  EXPECT_EQ(parsed(run_tern({"logits", "-m", tiny.path, "--text", "the quick brown fox", "--json"})).at("tokens"),
            tokens);
}

TEST(Logits, HasTheFieldsOfTheGoldenFiles) {
  const Tiny tiny;
  const json j = parsed(
      run_tern({"logits", "-m", tiny.path, "--tokens", "5,6,7", "--top", "4", "--greedy", "3", "--all", "--json"}));
  EXPECT_EQ(j.at("tokens"), (json{5, 6, 7}));
  EXPECT_EQ(j.at("argmax").size(), 3u);
  EXPECT_EQ(j.at("logsumexp").size(), 3u);
  EXPECT_EQ(j.at("top").size(), 3u);
  EXPECT_EQ(j.at("last_top").size(), 4u);
  EXPECT_EQ(j.at("last_top"), j.at("top").back());
  EXPECT_EQ(j.at("greedy").at(0), j.at("argmax").back());
  EXPECT_EQ(j.at("greedy").size(), j.at("greedy_logprobs").size());
}

TEST(Logits, TheBackendsAgreeAndTheBatchSizeDoesNotMatter) {
  const Tiny tiny;
  const std::vector<std::string> base{"logits", "-m",   tiny.path, "--tokens", "5,6,7,8,9,10,11,12,13",
                                      "--json", "-ctk", "f32",     "-ctv",     "f32"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return parsed(run_tern(more));
  };
  const json cpu = with({"--backend", "cpu"}), ref = with({"--backend", "ref"}), chunks = with({"--batch-size", "2"});
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(cpu.at("logsumexp")[i].get<double>(), ref.at("logsumexp")[i].get<double>(), 1e-3);
    EXPECT_NEAR(cpu.at("logsumexp")[i].get<double>(), chunks.at("logsumexp")[i].get<double>(), 1e-3);
  }
}

TEST(Logits, ATokenOutsideTheVocabularyFailsWithBothNumbers) {
  const Tiny tiny;
  const Finished f = run_tern({"logits", "-m", tiny.path, "--tokens", "1,512", "--json"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("token 512 is outside the vocabulary of 512"), std::string::npos) << f.err;
}

TEST(Run, APipedAnswerIsTheOnlyThingOnStdoutWithoutEscapeCodes) {
  const Tiny tiny;
  const Finished f = run_tern({"run", "-m", tiny.path, "-p", "the", "--no-cnv", "-n", "4", "--temp", "0"});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_FALSE(f.out.empty());
  EXPECT_EQ((f.out + f.err).find('\x1b'), std::string::npos);
  EXPECT_EQ((f.out + f.err).find('\r'), std::string::npos);
  EXPECT_NE(f.err.find("tokens/s"), std::string::npos) << f.err;
  const Finished quiet = run_tern({"-m", tiny.path, "-p", "the", "--no-cnv", "-n", "4", "--temp", "0", "-q"});
  EXPECT_EQ(quiet.out, f.out);
  EXPECT_EQ(quiet.err, "");
}

TEST(Run, StdinIsAppendedToThePrompt) {
  const Tiny tiny;
  const std::vector<std::string> tail{"--no-cnv", "-n", "4", "--temp", "0", "-q"};
  const auto with = [&](std::vector<std::string> head, std::string_view input) {
    head.insert(head.end(), tail.begin(), tail.end());
    return run_tern(head, input).out;
  };
  EXPECT_EQ(with({"run", tiny.path, "the quick"}, "brown fox"),
            with({"run", tiny.path, "-p", "the quick\nbrown fox"}, ""));
}

TEST(Run, APromptMayLookLikeAFlag) {
  const Tiny tiny;
  for (const char* prompt : {"-sys", "-abc", "--temp"})
    EXPECT_EQ(run_tern({"run", "-m", tiny.path, "-p", prompt, "--no-cnv", "-n", "2", "-q"}).code, 0) << prompt;
}

TEST(Run, TheSameSeedGivesTheSameAnswer) {
  const Tiny tiny;
  const std::vector<std::string> words{"run", "-m", tiny.path, "-p", "the", "--no-cnv", "-n", "12", "-s", "42", "-q"};
  EXPECT_EQ(run_tern(words).out, run_tern(words).out);
}

TEST(Run, APromptThatDoesNotFitFailsWithBothNumbers) {
  const Tiny tiny;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "x ";
  const Finished f = run_tern({"run", "-m", tiny.path, "-p", text, "--no-cnv", "-c", "64"});
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(f.out, "");
  EXPECT_NE(f.err.find("and the context holds 64"), std::string::npos) << f.err;
}

TEST(Run, ASystemPromptNeedsTheTemplate) {
  const Tiny tiny;
  const Finished f = run_tern({"run", "-m", tiny.path, "-p", "the", "-sys", "be brief", "--no-cnv"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("needs a chat template, and --no-cnv turns it off"), std::string::npos) << f.err;
}

TEST(Perplexity, ScoresEveryPositionOfWholeWindows) {
  const Tiny tiny;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the quick brown fox ";
  const std::string file = tiny.folder.write("text.txt", text);
  const json j =
      parsed(run_tern({"perplexity", "-m", tiny.path, "-f", file, "--window", "32", "--windows", "2", "--json"}));
  EXPECT_EQ(j.at("windows"), 2);
  EXPECT_NEAR(j.at("ppl").get<double>(), std::exp(j.at("nll").get<double>()), 1e-6 * j.at("ppl").get<double>());
  const Finished f = run_tern({"perplexity", "-m", tiny.path, "-f", file, "--window", "4096"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("one window needs 4096"), std::string::npos) << f.err;
}

TEST(Bench, MeasuresPromptAndGeneration) {
  const Tiny tiny;
  const json j = parsed(run_tern({"bench", "-m", tiny.path, "-p", "16", "-n", "4", "-r", "2", "--json"}));
  ASSERT_EQ(j.size(), 2u);
  EXPECT_EQ(j[0].at("test"), "pp16");
  EXPECT_EQ(j[1].at("test"), "tg4");
  for (const json& row : j) EXPECT_EQ(row.at("samples_ts").size(), 2u);
}

TEST(Transcode, WritesTheFileAndNamesIt) {
  const Tiny tiny("tiny-llama", TensorType::PTQ1_0);
  const std::string out = tiny.folder / "out.gguf";
  const Finished f = run_tern({"transcode", "-m", tiny.path, "-t", "PQ2_0", "-o", out});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.out, out + "\n");
  EXPECT_EQ(run_tern({"transcode", "-m", tiny.path, "-t", "PQ2_0", "-o", out}).code, 1);  // it exists now
  EXPECT_EQ(run_tern({"transcode", "-m", tiny.path, "-t", "PQ2_0", "-o", tiny.path, "--force"}).code, 2);
}

TEST(Parity, AFolderWithoutLibraryIsAFailureThatNamesIt) {
  const Tiny tiny;
  const Finished f = run_tern({"parity", "-m", tiny.path, "--libllama", tiny.folder / "nothing"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("nothing"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace tern
