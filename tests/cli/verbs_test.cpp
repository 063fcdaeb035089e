// The verbs on tiny models.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/subprocess.h"
#include "gguf/temp_folder.h"
#include "support/edited_file.h"
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

TEST(Run, ALeadingZeroMeansNothing) {
  const Tiny tiny;
  const auto with = [&](const char* n) {
    return run_tern({"run", "-m", tiny.path, "-p", "the", "--no-cnv", "--temp", "0", "-q", "-n", n}).out;
  };
  EXPECT_EQ(with("010"), with("10"));
  EXPECT_NE(with("010"), with("8"));
}

TEST(Run, TheEnvironmentSaysWhatNoFlagSays) {
  const Tiny tiny;
  const std::vector<std::string> environment{"LLAMA_ARG_MODEL=" + tiny.path, "LLAMA_ARG_N_PREDICT=2"};
  const std::vector<std::string> words{"run", "-p", "the", "--no-cnv", "--temp", "0", "-q"};
  const auto with = [&](std::vector<std::string> more, const std::vector<std::string>& variables) {
    more.insert(more.begin(), words.begin(), words.end());
    return run_tern(more, "", variables).out;
  };
  EXPECT_EQ(with({}, environment), with({"-m", tiny.path, "-n", "2"}, {}));
  EXPECT_EQ(with({"-n", "5"}, environment), with({"-m", tiny.path, "-n", "5"}, {}));
}

TEST(Run, TheFileRecommendsTheSamplingThatNoFlagChooses) {
  const Tiny tiny;
  const auto edited = [&](float temperature) {
    return test::edit_metadata(tiny.path, tiny.folder / "edited.gguf", [&](gguf::Metadata& m) {
      m.set_f32("general.sampling.temp", temperature);
      m.set_u32("general.sampling.mirostat", 2);
    });
  };
  const std::string greedy = edited(0);
  const std::vector<std::string> words{"run", "-p", "the", "--no-cnv", "-n", "8", "-s", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return run_tern(more);
  };
  const Finished f = with({"-m", greedy});
  EXPECT_EQ(f.out, with({"-m", tiny.path, "--temp", "0"}).out);
  EXPECT_NE(f.err.find("sampling temp 0 top-k 40"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("general.sampling.mirostat, which is not implemented"), std::string::npos) << f.err;
  EXPECT_EQ(with({"-m", greedy, "--temp", "1"}).out, with({"-m", tiny.path, "--temp", "1"}).out);
  const json shown = parsed(run_tern({"show", greedy, "--json"}));
  EXPECT_EQ(shown.at("sampling"), (json{{"temp", 0.0}}));
  EXPECT_EQ(shown.at("sampling_ignored"), (json{"general.sampling.mirostat"}));

  const std::string nonsense = edited(-3);
  const Finished refused = with({"-m", nonsense});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("general.sampling.temp"), std::string::npos) << refused.err;
  EXPECT_EQ(with({"-m", nonsense, "--temp", "0"}).code, 0);
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

TEST(Perplexity, TheContextIsTheWindowUnlessTheWindowIsNamedToo) {
  const Tiny tiny;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the quick brown fox ";
  const std::string file = tiny.folder.write("text.txt", text);
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"perplexity", "-m", tiny.path, "-f", file, "--windows", "1", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tern(words);
  };
  EXPECT_EQ(parsed(with({"-c", "32"})).at("window"), 32);
  EXPECT_EQ(parsed(with({"-c", "64", "--window", "32"})).at("window"), 32);
  const Finished f = with({"-c", "31", "--window", "32"});
  EXPECT_EQ(f.code, 2);
  EXPECT_NE(f.err.find("a window of 32 tokens does not fit a context of 31"), std::string::npos) << f.err;
}

TEST(Trace, ListsEveryOpAndThenAnswers) {
  const Tiny tiny;
  const Finished f =
      run_tern({"run", "-m", tiny.path, "-p", "the", "--no-cnv", "-n", "2", "--temp", "0", "-q", "--trace"});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_FALSE(f.out.empty());
  const json plan = parsed(run_tern({"plan", tiny.path, "--json"}));
  EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), static_cast<ptrdiff_t>(plan.at("ops").size()) + 1) << f.err;
  EXPECT_NE(f.err.find("HASH"), std::string::npos);
}

TEST(Trace, TheBackendsAgreeWithinATolerance) {
  const Tiny tiny;
  const auto with = [&](const char* tolerance) {
    return run_tern({"run", "-m", tiny.path, "-p", "the", "--no-cnv", "-q", "--diff", "ref", "--tolerance", tolerance});
  };
  const Finished same = with("1e-2");
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("ops agree within 0.01"), std::string::npos) << same.out;
  const Finished strict = with("0");
  EXPECT_EQ(strict.code, 1) << strict.out;
  EXPECT_NE(strict.out.find("first difference: op "), std::string::npos) << strict.out;
}

TEST(Show, AHostileFileCannotReachTheTerminal) {
  const Tiny tiny;
  const std::string path = test::edit_metadata(tiny.path, tiny.folder / "hostile.gguf", [](gguf::Metadata& m) {
    m.set_string("general.name", "\x1b]0;owned\x07\x9b");
    m.set_string("general.license", "a\nfake line");
    m.set_string("x.\x1b[2J", "\x1b[31m");
  });
  const std::vector<std::vector<std::string>> commands{
      {"show", path, "--metadata", "--tensors"},
      {"show", path, "--json"},
      {"plan", path},
      {"plan", path, "--json"},
      {"run", "-m", path, "-p", "the", "--no-cnv", "-n", "1"},
      {"logits", "-m", path, "--tokens", "1", "--json"},
  };
  for (const auto& command : commands) {
    const Finished f = run_tern(command);
    EXPECT_EQ(f.code, 0) << f.err;
    for (const char hostile : {'\x1b', '\x07', '\x9b'})
      EXPECT_EQ((f.out + f.err).find(hostile), std::string::npos) << command[0] << command.back();
    EXPECT_EQ(f.out.find("\nfake line"), std::string::npos) << f.out;
  }
}

TEST(Run, AVocabularyLargerThanTheEmbeddingIsRefused) {
  const Tiny tiny;
  const std::string path = test::edit_metadata(tiny.path, tiny.folder / "big.gguf", [](gguf::Metadata& m) {
    std::vector<std::string> tokens = *m.get_strings("tokenizer.ggml.tokens");
    tokens.push_back("one too many");
    m.set_strings("tokenizer.ggml.tokens", tokens);
    m.erase("tokenizer.ggml.token_type");
    m.erase("tokenizer.ggml.scores");
  });
  const Finished f = run_tern({"run", "-m", path, "-p", "the", "--no-cnv", "-n", "1"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("the vocabulary has 513 tokens, but the embedding 512 rows"), std::string::npos) << f.err;
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
