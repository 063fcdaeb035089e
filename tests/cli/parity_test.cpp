// The whole path from text to logits against llama.cpp: the shipped model (rotated basis, delta net, ternary) unfolded
// into a plain file that libllama reads, and the mixture of experts as it is.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/subprocess.h"
#include "gguf/temp_folder.h"
#include "support/golden.h"

namespace tern {
namespace {

using test::Finished;
using test::run_tern;

const std::string kLibllama =
    std::string(TERN_SOURCE_DIR) + "/tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";

Finished parity(const std::string& model, std::vector<std::string> more) {
  EXPECT_TRUE(std::filesystem::exists(kLibllama)) << "libllama is not installed: run `make deps`";
  std::vector<std::string> args{"parity", "-m", model, "--libllama", kLibllama, "-t", "1", "--json"};
  args.insert(args.end(), more.begin(), more.end());
  return run_tern(args);
}

void expect_agreement(const Finished& f) {
  ASSERT_EQ(f.code, 0) << f.out << f.err;
  const auto j = nlohmann::json::parse(f.out);
  EXPECT_EQ(j.at("tokenizer_different"), 0);
  EXPECT_TRUE(j.at("verdict") == "MATCH" || j.at("verdict") == "TIE-FLIP") << j.at("verdict");
  std::printf("%s", (j.dump().substr(0, 400) + "\n").c_str());
}

TEST(Parity, TheShippedModelUnfoldedComputesTheSameInLlamaCpp) {
  const auto path = test::model_path("ternlet-hybrid-108m-PTQ1_0.gguf");
  ASSERT_TRUE(path) << "the shipped model is missing";
  const gguf::testing::TempFolder folder;
  const std::string plain = folder / "plain.gguf";
  const Finished f = run_tern({"transcode", "-m", *path, "--unfold", "-t", "F32", "-o", plain});
  ASSERT_EQ(f.code, 0) << f.err;
  expect_agreement(parity(*path, {"--reference", plain}));
}

TEST(Parity, MixtureOfExpertsComputesTheSameInLlamaCpp) {
  const auto path = test::model_path("ternlet-moe-29m-Q8_0.gguf");
  if (!path) GTEST_SKIP();
  expect_agreement(parity(*path, {}));
}

TEST(Parity, AnotherModelIsWrongAndFails) {
  const auto path = test::model_path("ternlet-moe-29m-Q8_0.gguf");
  const auto shipped = test::model_path("ternlet-hybrid-108m-PTQ1_0.gguf");
  if (!path) GTEST_SKIP();
  const Finished f = parity(*shipped, {"--reference", *path, "--steps", "4"});
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(nlohmann::json::parse(f.out).at("verdict"), "WRONG");
}

}  // namespace
}  // namespace tern
