#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "cli/subprocess.h"
#include "cli/verbs.h"
#include "gguf/temp_folder.h"

namespace tern {
namespace {

using test::Finished;
using test::run_tern;

void expect_usage_error(const Finished& f, std::string_view text) {
  EXPECT_EQ(f.code, 2);
  EXPECT_EQ(f.out, "");
  EXPECT_NE(f.err.find(text), std::string::npos) << f.err;
  EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << f.err;
}

TEST(Usage, HelpListsEveryVerbAndFitsOneScreen) {
  const Finished f = run_tern({"help"});
  EXPECT_EQ(f.code, 0);
  for (const cli::Verb& verb : cli::verbs()) EXPECT_NE(f.out.find(verb.name), std::string::npos) << verb.name;
  EXPECT_LE(std::count(f.out.begin(), f.out.end(), '\n'), 24);
}

TEST(Usage, EveryVerbHasHelp) {
  for (const cli::Verb& verb : cli::verbs()) {
    const Finished f = run_tern({"help", std::string(verb.name)});
    EXPECT_EQ(f.code, 0) << verb.name;
    EXPECT_NE(f.out.find("--"), std::string::npos) << verb.name;
    EXPECT_EQ(run_tern({std::string(verb.name), "--help"}).out, f.out) << verb.name;
  }
}

TEST(Usage, AnUnknownVerbNamesTheNearest) {
  expect_usage_error(run_tern({"tokenise"}), "no verb 'tokenise'; did you mean 'tokenize'?");
  expect_usage_error(run_tern({"help", "nonsense"}), "no verb 'nonsense'");
}

TEST(Usage, AnUnknownFlagNamesTheNearest) {
  expect_usage_error(run_tern({"run", "--repeat-penalti", "1.1", "-p", "x"}),
                     "unknown flag --repeat-penalti; did you mean --repeat-penalty?");
  expect_usage_error(run_tern({"-p", "x", "-nlg", "3"}), "unknown flag -nlg; did you mean -ngl?");
}

TEST(Usage, AFlagOfLlamaCppThatIsMissingIsSaidToBe) {
  expect_usage_error(run_tern({"run", "--mmproj", "x.gguf", "-p", "x"}),
                     "--mmproj is a flag of llama.cpp that `tern run` does not support");
  expect_usage_error(run_tern({"-m", "x.gguf", "-fa", "on", "-p", "x"}), "-fa is a flag of llama.cpp");
}

TEST(Usage, LayersOnTheGpuAreANumberOrAutoOrAll) {
  for (const char* wrong : {"some", "-3", "1.5", ""})
    expect_usage_error(run_tern({"run", "-m", "/nonexistent", "-p", "x", "-ngl", wrong}),
                       "is neither a number of layers nor auto nor all");
  for (const char* right : {"0", "20", "auto", "all"})
    EXPECT_EQ(run_tern({"run", "-m", "/nonexistent", "-p", "x", "-dev", "cpu", "-ngl", right}).code, 1) << right;
}

TEST(Usage, AValueThatIsNoNumberIsNamed) {
  expect_usage_error(run_tern({"run", "-c", "many", "-p", "x"}), "many");
}

TEST(Usage, ASamplingValueOutOfRangeIsRefusedWithTheRangeBeforeAnythingIsLoaded) {
  const auto refused = [](std::string flag, std::string value, std::string_view text) {
    expect_usage_error(run_tern({"run", "-m", "/nonexistent", "-p", "x", std::move(flag), std::move(value)}), text);
  };
  refused("--temp", "-1", "--temp: '-1' is not a number within 0..100");
  refused("--temp", "nan", "'nan' is not a number");
  refused("--top-p", "7", "within 0..1");
  refused("--min-p", "inf", "within 0..1");
  refused("--top-k", "-5", "'-5' is not a whole number within -1..");
  refused("--repeat-penalty", "0", "within 0.01..100");
  refused("-n", "-5", "'-5' is not a whole number, -1 or more");
  refused("-n", "0x10", "'0x10' is not a whole number");
  refused("-c", "-1", "'-1' is not a whole number within 0..");
  refused("-ctk", "q3_0", "'q3_0' is not one of f32, f16, q8_0, q4_0, kivi, kivi4");
}

TEST(Usage, ABadValueInTheEnvironmentNamesTheVariableAndAFlagBeatsIt) {
  const std::vector<std::string> environment{"LLAMA_ARG_N_PREDICT=ten"};
  expect_usage_error(run_tern({"run", "-m", "/nonexistent", "-p", "x"}, "", environment),
                     "LLAMA_ARG_N_PREDICT: 'ten' is not a whole number");
  EXPECT_EQ(run_tern({"run", "-m", "/nonexistent", "-p", "x", "-n", "4"}, "", environment).code, 1);
}

TEST(Usage, RunWithoutPromptOrTerminalAsksForOne) {
  expect_usage_error(run_tern({"run"}), "no prompt");
}

TEST(Usage, LogitsWantsTextOrTokens) {
  expect_usage_error(run_tern({"logits", "--json"}), "either --text or --tokens");
  expect_usage_error(run_tern({"logits", "--tokens", "1,x,3"}), "'x' is not one");
}

TEST(Usage, AMissingModelFileIsAFailureThatNamesIt) {
  for (const Finished& f :
       {run_tern({"run", "-m", "/nonexistent/model.gguf", "-p", "x"}),
        run_tern({"serve", "-m", "/nonexistent/model.gguf", "--port", "0"}),
        run_tern({"serve", "--models-dir", "/", "--port", "0"}, "", {"LLAMA_ARG_MODEL=/nonexistent/model.gguf"})}) {
    EXPECT_EQ(f.code, 1);
    EXPECT_EQ(f.out, "");
    EXPECT_NE(f.err.find("/nonexistent/model.gguf"), std::string::npos) << f.err;
  }
}

TEST(Usage, ATextWithoutEndIsRefused) {
  const Finished f = run_tern({"run", "-m", "/nonexistent", "-f", "/dev/zero"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("/dev/zero holds more than the 256 MiB"), std::string::npos) << f.err;
}

TEST(Usage, AnOutputThatIsNoFileIsLeftAlone) {
  const gguf::testing::TempFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Finished f = run_tern({"transcode", "-t", "PQ2_0", "-o", pipe, "--force"});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("is not a regular file"), std::string::npos) << f.err;
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  const Finished g = run_tern({"show", pipe});  // must not wait for a writer
  EXPECT_EQ(g.code, 1);
  EXPECT_NE(g.err.find("is not a regular file"), std::string::npos) << g.err;
}

TEST(Usage, VersionAsJsonListsFamiliesAndFormats) {
  const Finished f = run_tern({"version", "--json"});
  EXPECT_EQ(f.code, 0);
  const auto j = nlohmann::json::parse(f.out);
  EXPECT_EQ(j.at("version"), cli::version());
  EXPECT_FALSE(j.at("families").empty());
  EXPECT_FALSE(j.at("formats").empty());
}

}  // namespace
}  // namespace tern
