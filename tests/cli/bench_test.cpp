// tern bench on tiny models: which rows there are, what a receipt holds, when none is written. No time is judged.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/subprocess.h"
#include "gguf/temp_folder.h"
#include "synth/synth.h"

namespace tern {
namespace {

using nlohmann::json;
using test::Finished;
using test::run_tern;

const std::string kLibllama =
    std::string(TERN_SOURCE_DIR) + "/tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";

struct Bench : testing::Test {
  gguf::testing::TempFolder folder;
  std::string path = model("tiny-llama");
  std::string receipt = folder / "receipt.json";

  std::string model(std::string_view shape) const {
    std::string file = folder / (std::string(shape) + ".gguf");
    synth::write_model(file, synth::find_shape(shape), {.type = TensorType::Q8_0, .threads = 1});
    return file;
  }
  /// A flag of `more` replaces the one here: none may be given twice.
  static std::vector<std::string> words(const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> all{"bench", "-m", file, "-q"};
    for (const auto& [flag, value] : {std::pair{"-p", "16"}, {"-n", "4"}, {"-r", "2"}, {"-t", "1"}})
      if (std::find(more.begin(), more.end(), flag) == more.end()) all.insert(all.end(), {flag, value});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static json measured(const std::string& file, std::vector<std::string> more) {
    more.emplace_back("--json");
    const Finished f = run_tern(words(file, more));
    EXPECT_EQ(f.code, 0) << f.err;
    return json::parse(f.out, nullptr, false);
  }
  static json column(const json& result, const char* key) {
    json out = json::array();
    for (const json& row : result.at("rows")) out.push_back(row.at(key));
    return out;
  }
};

TEST_F(Bench, MeasuresPromptsAndGenerationsByDepth) {
  const json j = measured(path, {"-d", "64,0"});
  EXPECT_EQ(column(j, "test"), (json{"pp16", "tg4", "pp16 @ d64", "tg4 @ d64"}));
  for (const json& row : j.at("rows")) EXPECT_EQ(row.at("samples_ts").size(), 2u);
  EXPECT_FALSE(j.at("rows")[0].contains("bytes_per_token"));
  EXPECT_GT(j.at("rows")[3].at("bytes_per_token"), j.at("rows")[1].at("bytes_per_token"));  // more keys and values
}

TEST_F(Bench, MeasuresEveryNumberOfThreads) {
  const json j = measured(path, {"-p", "0", "-t", "1,2"});
  EXPECT_EQ(column(j, "n_threads"), (json{1, 2}));
  EXPECT_EQ(j.at("loads").size(), 2u);
}

TEST_F(Bench, ARecurrentModelGoesBackToItsDepth) {
  const json j = measured(model("tiny-qwen35"), {"-d", "0,32"});
  EXPECT_EQ(column(j, "test"), (json{"pp16", "tg4", "pp16 @ d32", "tg4 @ d32"}));
}

TEST_F(Bench, ABusyNeighbourIsARowOfItsOwn) {
  const json j = measured(path, {"-p", "0", "--busy", "0,1"});
  EXPECT_EQ(column(j, "test"), (json{"tg4", "tg4 beside 1 busy"}));
}

TEST_F(Bench, AReceiptHoldsMachineBuildFileMemoryAndLoad) {
  const Finished f = run_tern(words(path, {"--receipt", receipt, "--max-load", "1000"}));
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.out.find("TOKENS/S"), std::string::npos) << f.out;
  const json j = json::parse(std::ifstream(receipt));
  EXPECT_FALSE(j.at("host").at("cpu").get<std::string>().empty());
  EXPECT_FALSE(j.at("commit").get<std::string>().empty());
  EXPECT_EQ(j.at("model").at("file"), "tiny-llama.gguf");  // no folder of this machine
  EXPECT_EQ(j.at("model").at("model_size"), std::filesystem::file_size(path));
  EXPECT_GT(j.at("model").at("format_bytes").at("Q8_0"), 0);
  EXPECT_GT(j.at("memory").at("peak_resident"), 0);
  EXPECT_GT(j.at("memory").at("kv"), 0);
  EXPECT_TRUE(j.at("load").at("before").contains("busy_cores"));
  EXPECT_TRUE(j.at("load").at("after").contains("busy_cores"));
}

TEST_F(Bench, ABusyMachineGetsNoReceipt) {
  // Below what any machine does.
  const Finished f = run_tern(words(path, {"--receipt", receipt, "--max-load", "-1"}));
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("--max-load"), std::string::npos) << f.err;
  EXPECT_FALSE(std::filesystem::exists(receipt));
}

TEST_F(Bench, AReceiptWithoutAFolderFailsBeforeAnythingIsMeasured) {
  const Finished f = run_tern(words(path, {"--receipt", folder / "none/receipt.json", "--max-load", "1000"}));
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(f.out, "");
  EXPECT_NE(f.err.find("there is no folder"), std::string::npos) << f.err;
}

TEST_F(Bench, AModelToCompareNeedsALibrary) {
  EXPECT_EQ(run_tern(words(path, {"--compare-model", path})).code, 2);
  const Finished f = run_tern(words(path, {"--compare", folder / "nothing"}));
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("nothing"), std::string::npos) << f.err;
}

TEST_F(Bench, TakesTurnsWithLibllamaOnTheSameFileAndOnAnother) {
  if (!std::filesystem::exists(kLibllama)) GTEST_SKIP() << "libllama is not installed: run `make deps`";
  const json j = measured(path, {"-d", "0,32", "--compare", kLibllama});
  EXPECT_EQ(column(j, "test"), (json{"pp16", "tg4", "pp16 @ d32", "tg4 @ d32"}));
  for (const json& row : j.at("rows")) {
    EXPECT_EQ(row.at("compared").at("samples_ts").size(), 2u);
    EXPECT_GT(row.at("ratio"), 0);
  }
  EXPECT_NE(j.at("compared").at("library").get<std::string>().find("llama.cpp"), std::string::npos);
  EXPECT_EQ(j.at("compared").at("file"), "tiny-llama.gguf");
  const json other = measured(model("tiny-bitnet"), {"-p", "0", "--compare", kLibllama, "--compare-model", path});
  EXPECT_EQ(other.at("model").at("file"), "tiny-bitnet.gguf");
  EXPECT_EQ(other.at("compared").at("file"), "tiny-llama.gguf");
}

TEST_F(Bench, LibllamaRefillsTheCacheOfARecurrentModel) {
  if (!std::filesystem::exists(kLibllama)) GTEST_SKIP() << "libllama is not installed: run `make deps`";
  const json j = measured(model("tiny-qwen35"), {"-p", "0", "-d", "32", "--compare", kLibllama});
  EXPECT_EQ(j.at("rows").at(0).at("compared").at("samples_ts").size(), 2u);
}

}  // namespace
}  // namespace tern
