// The reference executor against the goldens, at every position and over the greedy continuation.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "backend/ref/ref_backend.h"
#include "engine/rewrite.h"
#include "goldens/golden_model.h"

namespace tern {
namespace {

using test::GoldenCase;
using test::GoldenModel;
using test::Stepper;

struct Bound {
  double top20 = 0, logsumexp = 0;  // 0: not compared
  bool greedy = false;
};

void expect_golden(GoldenModel& m, const std::string& golden, const Bound& bound) {
  Stepper s(*m.backend, m.plan, {});
  for (const GoldenCase& c : test::read_golden(golden)) {
    s.reset();
    std::vector<float> logits = s.run_one(c.tokens);
    double lse = 0, top = 0;
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      EXPECT_TRUE(test::same_choice(m.row(logits, i), c.argmax[i])) << "'" << c.text << "' position " << i;
      lse = std::max(lse, std::abs(test::logsumexp(m.row(logits, i)) - c.logsumexp[i]));
    }
    for (const auto& [id, value] : c.last_top20) {
      top = std::max(top, std::abs(m.row(logits, c.tokens.size() - 1)[static_cast<size_t>(id)] - value));
    }
    std::printf("%-28s %2zu tokens: max |logsumexp diff| %.2e, max |top-20 logit diff| %.2e\n", golden.c_str(),
                c.tokens.size(), lse, top);
    if (bound.logsumexp > 0) {
      EXPECT_LE(lse, bound.logsumexp) << c.text;
    }
    if (bound.top20 > 0) {
      EXPECT_LE(top, bound.top20) << c.text;
    }
    if (!bound.greedy) continue;
    logits.erase(logits.begin(), logits.end() - m.plan.n_vocab);
    for (size_t i = 0; i < c.greedy.size(); ++i) {
      EXPECT_TRUE(test::same_choice(logits, c.greedy[i])) << "'" << c.text << "' greedy token " << i;
      logits = s.run_one({c.greedy[i]});
    }
  }
}

/// The model with its ternary tensors in another format, in a file that goes with the test.
struct Transcoded {
  explicit Transcoded(const std::string& source, TensorType type)
      : path((std::filesystem::temp_directory_path() /
              ("tern-golden-" + std::to_string(::getpid()) + "-" + std::string(type_info(type).name) + ".gguf"))
                 .string()) {
    transcode_file(gguf::File::open(source), type, path, {});
  }
  ~Transcoded() { std::filesystem::remove(path); }
  std::string path;
};

TEST(RefGolden, HybridWithFloatActivationsMatchesLlamaCpp) {
  const auto path = test::model_path("ternlet-hybrid-108m-PTQ1_0.gguf");
  ASSERT_TRUE(path) << "the shipped model is missing";
  const auto m = test::load(*path, make_ref_backend(), ActivationMode::kF32);
  expect_golden(*m, "ternlet-hybrid-108m-F32.json", {.top20 = 5e-3});
}

TEST(RefGolden, HybridTranscodedToPQ2_0IsBitEqual) {
  const auto path = test::model_path("ternlet-hybrid-108m-PTQ1_0.gguf");
  ASSERT_TRUE(path) << "the shipped model is missing";
  const Transcoded other(*path, TensorType::PQ2_0);
  const auto a = test::load(*path, make_ref_backend()), b = test::load(other.path, make_ref_backend());
  const GoldenCase c = test::read_golden("ternlet-hybrid-108m-F32.json")[1];
  const std::vector<float> la = Stepper(*a->backend, a->plan, {}).run_one(c.tokens);
  const std::vector<float> lb = Stepper(*b->backend, b->plan, {}).run_one(c.tokens);
  EXPECT_EQ(la, lb);
}

TEST(RefGolden, BitnetMatchesFloat64WithInt8Activations) {
  const auto path = test::model_path("ternlet-bitnet-72m-I2_S.gguf");
  if (!path) GTEST_SKIP();
  const auto m = test::load(*path, make_ref_backend(Precision::kF64));
  expect_golden(*m, "ternlet-bitnet-72m.json", {.logsumexp = 2e-3, .greedy = true});
}

// ref adds up in the order of the engine that the golden is from, so that the same activations round to the same
// integers: without that one of 157 choices differs (docs/decisions/0001-ref-precision.md).
TEST(RefGolden, MixtureOfExpertsMakesLlamaCppsChoices) {
  const auto path = test::model_path("ternlet-moe-29m-Q8_0.gguf");
  if (!path) GTEST_SKIP();
  const auto m = test::load(*path, make_ref_backend());
  expect_golden(*m, "ternlet-moe-29m-Q8_0.json", {.greedy = true});
}

class BitnetTranscodes : public testing::TestWithParam<TensorType> {};

// The family's rule (int8, one scale a token) goes with the model, not with the format, so the bounds are the same.
TEST_P(BitnetTranscodes, MatchTheSameGolden) {
  const auto path = test::model_path("ternlet-bitnet-72m-I2_S.gguf");
  if (!path) GTEST_SKIP();
  const Transcoded other(*path, GetParam());
  const auto m = test::load(other.path, make_ref_backend(Precision::kF64));
  expect_golden(*m, "ternlet-bitnet-72m.json", {.logsumexp = 2e-3});
}
INSTANTIATE_TEST_SUITE_P(Formats, BitnetTranscodes, testing::Values(TensorType::TQ1_0, TensorType::TQ2_0),
                         [](const auto& p) { return std::string(type_info(p.param).name); });

}  // namespace
}  // namespace tern
