// Rotary frequencies after scaling, against values worked out by hand for heads of 8 (pairs of 1, 0.1, 0.01, 0.001).
#include <gtest/gtest.h>

#include <cstring>

#include "models/blocks.h"
#include "plan/plan_file.h"

namespace tern {
namespace {

using namespace test;

class RopeTest : public testing::Test {
 protected:
  RopeTable table(const std::vector<float>* divisors = nullptr) const {
    const gguf::File opened = file.open();
    return make_rope(Builder(opened), 8, true, divisors);
  }
  static void expect_freq(const RopeTable& t, const std::vector<double>& wanted) {
    ASSERT_EQ(t.freq.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(t.freq[i], wanted[i], 1e-12 + wanted[i] * 1e-9) << i;
  }
  static synth::Shape shape() {
    synth::Shape s = small("llama");
    s.head_dim = 8;
    s.heads = 8;
    return s;
  }
  PlanFile file{shape()};
};

TEST_F(RopeTest, PlainPowersOfTheBase) {
  const RopeTable t = table();
  expect_freq(t, {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(t.magnitude, 1.0f);
}

TEST_F(RopeTest, FewerDimsThanTheHead) {
  file.keys.set_u32("llama.rope.dimension_count", 4);
  expect_freq(table(), {1, 0.01});
}

TEST_F(RopeTest, DimsThatDoNotFitTheHeadAreRefused) {
  for (const uint32_t dims : {0u, 5u, 10u}) {
    file.keys.set_u32("llama.rope.dimension_count", dims);
    expect_refused([&] { table(); }, ErrorCode::kBadFile,
                   "llama.rope.dimension_count is " + std::to_string(dims) + " for heads of 8");
  }
}

TEST_F(RopeTest, LinearDividesEveryFrequency) {
  file.keys.set_string("llama.rope.scaling.type", "linear");
  file.keys.set_f32("llama.rope.scaling.factor", 4);
  const RopeTable t = table();
  expect_freq(t, {0.25, 0.025, 0.0025, 0.00025});
  EXPECT_EQ(t.magnitude, 1.0f);
}

TEST_F(RopeTest, AFactorWithoutATypeIsLinear) {
  file.keys.set_f32("llama.rope.scale_linear", 2);
  expect_freq(table(), {0.5, 0.05, 0.005, 0.0005});
}

TEST_F(RopeTest, DivisorsDivideAPairEach) {
  const std::vector<float> divisors{1, 2, 4, 8};
  expect_freq(table(&divisors), {1, 0.05, 0.0025, 0.000125});
}

TEST_F(RopeTest, TheWrongNumberOfDivisorsIsRefused) {
  const std::vector<float> divisors{1, 2, 4};
  expect_refused([&] { table(&divisors); }, ErrorCode::kBadFile, "rope_freqs.weight has 3 values for 4 rotated pairs");
}

TEST_F(RopeTest, YarnMixesBothFrequenciesByPair) {
  // Context 128, base 1e4, 8 dims: a pair turns 32 times at index 8 ln(128 / (32 * 2 pi)) / (2 ln 1e4) = -0.2, floored
  // and clamped to 0, and once at 8 ln(128 / (2 pi)) / (2 ln 1e4) = 1.3, so 2. Shares kept of the plain frequency for
  // the four pairs: 1, 1/2, 0, 0; the rest is divided by 4.
  file.keys.set_string("llama.rope.scaling.type", "yarn");
  file.keys.set_f32("llama.rope.scaling.factor", 4);
  file.keys.set_u32("llama.rope.scaling.original_context_length", 128);
  const RopeTable t = table();
  expect_freq(t, {1, 0.1 * (0.5 + 0.5 / 4), 0.01 / 4, 0.001 / 4});
  EXPECT_FLOAT_EQ(t.magnitude, 1.1386294f);  // 1 + 0.1 ln 4
}

TEST_F(RopeTest, YarnTakesTheTrainingContextWhereNoOriginalIsGiven) {
  file.keys.set_u32("llama.context_length", 128);
  file.keys.set_string("llama.rope.scaling.type", "yarn");
  file.keys.set_f32("llama.rope.scaling.factor", 4);
  expect_freq(table(), {1, 0.0625, 0.0025, 0.00025});
}

TEST_F(RopeTest, YarnWithoutAFactorIsRefused) {
  file.keys.set_string("llama.rope.scaling.type", "yarn");
  expect_refused([&] { table(); }, ErrorCode::kBadFile,
                 "llama.rope.scaling.type is 'yarn' but rope.scaling.factor is 0");
}

TEST_F(RopeTest, OtherScalingsAreRefusedByName) {
  file.keys.set_string("llama.rope.scaling.type", "longrope");
  file.keys.set_f32("llama.rope.scaling.factor", 4);
  expect_refused([&] { table(); }, ErrorCode::kUnsupported,
                 "llama.rope.scaling.type is 'longrope'; none, linear and yarn are implemented");
}

TEST_F(RopeTest, EqualTablesAreKeptOnce) {
  EXPECT_EQ(file.plan().ropes.size(), 1u);
}

}  // namespace
}  // namespace tern
