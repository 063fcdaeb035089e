// A model's answer does not depend on how its tokens were cut into Steps: in one batch, in chunks of 7, one by one, or
// interleaved with another sequence.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/ref/ref_backend.h"
#include "models/variants.h"
#include "support/stepper.h"
#include "support/synth_model.h"

namespace tern {
namespace {

using namespace test;

constexpr size_t kTokens = 75;      // more than a page
constexpr size_t kManyPages = 170;  // the rows of a prompt read pages between the first and their own in bytes

class Cutter {
 public:
  Cutter(const LoadedModel& m, KvType kv, size_t tokens)
      : plan_(m.plan),
        tokens_(random_tokens(tokens, plan_.n_vocab, 1)),
        stepper_(*m.backend, plan_, {.seqs = 2, .context = 256, .max_rows = 256, .kv = kv}) {}

  std::vector<float> in_chunks_of(size_t n) {
    stepper_.reset(0);
    std::vector<float> all;
    for (size_t at = 0; at < tokens_.size(); at += n) append(all, stepper_.run_one(slice(tokens_, at, n)));
    return all;
  }
  /// Chunks of 7 of this sequence, each in one Step with a chunk of another one, in front or behind by turns.
  std::vector<float> interleaved() {
    stepper_.reset(0);
    stepper_.reset(1);
    const std::vector<int32_t> others = random_tokens(kTokens, plan_.n_vocab, 2);
    std::vector<float> all;
    size_t step = 0, other_at = 0;
    for (size_t at = 0; at < tokens_.size(); at += 7, ++step) {
      const std::vector<int32_t> mine = slice(tokens_, at, 7), other = slice(others, other_at, 1 + step % 5);
      other_at += other.size();
      const bool first = step % 2 == 0;
      const std::vector<float> both = first ? stepper_.run({{.seq = 0, .tokens = mine}, {.seq = 1, .tokens = other}})
                                            : stepper_.run({{.seq = 1, .tokens = other}, {.seq = 0, .tokens = mine}});
      const auto width = static_cast<size_t>(plan_.n_vocab);
      const std::span<const float> rows(both);
      append(all, first ? rows.first(mine.size() * width) : rows.last(mine.size() * width));
    }
    return all;
  }

 private:
  static std::vector<int32_t> slice(const std::vector<int32_t>& v, size_t at, size_t n) {
    const auto begin = v.begin() + static_cast<std::ptrdiff_t>(at);
    return {begin, begin + static_cast<std::ptrdiff_t>(std::min(n, v.size() - at))};
  }
  static void append(std::vector<float>& to, std::span<const float> rows) {
    to.insert(to.end(), rows.begin(), rows.end());
  }

  const Plan& plan_;
  std::vector<int32_t> tokens_;
  Stepper stepper_;
};

/// How far two cuts of the same tokens may be apart.
struct Tolerance {
  double max_diff = 0;  // of a logit, where no activation is rounded to integers
  double mean_kl = 0;   // where they are: one integer may fall the other way
};

void expect_invariant(const LoadedModel& m, KvType kv, const std::string& name, const Tolerance& t,
                      size_t tokens = kTokens) {
  Cutter cutter(m, kv, tokens);
  const std::vector<float> whole = cutter.in_chunks_of(tokens);
  const auto compare = [&](const char* how, const std::vector<float>& got) {
    Distance d;
    d.add(whole, got, m.plan.n_vocab);
    d.print(name + ", " + how);
    if (t.mean_kl > 0) {
      EXPECT_LE(d.mean_kl(), t.mean_kl) << how;
    } else {
      EXPECT_LE(d.max_diff, t.max_diff) << how;
    }
  };
  compare("chunks of 7", cutter.in_chunks_of(7));
  compare("one by one", cutter.in_chunks_of(1));
  compare("interleaved", cutter.interleaved());
  EXPECT_EQ(whole, cutter.in_chunks_of(tokens)) << "the same Step twice";
}

constexpr double kFloatTolerance = 1e-4;  // sums of another order; the kernels of x86 are bit-equal
// One row alone is multiplied by another kernel than several, whose sums differ in the last bit; the integers that
// flip for it move a random model by up to 4e-4.
constexpr double kFlipTolerance = 1e-3;
constexpr double kByteTolerance = 3e-5;  // chunks of 16 rows or more take bytes, smaller ones do not

class BatchInvariance : public testing::TestWithParam<std::pair<const char*, TensorType>> {
 protected:
  SynthFile file{synth::find_shape(GetParam().first), {.type = GetParam().second}};
  std::string name = GetParam().first + (" " + std::string(type_info(GetParam().second).name));
};

TEST_P(BatchInvariance, RefIsBitEqual) {
  const LoadedModel m(file.path, make_ref_backend(), ActivationMode::kNative);
  expect_invariant(m, KvType::kF16, "ref " + name, {.max_diff = 0});
}

TEST_P(BatchInvariance, CpuAgreesWithFloatActivations) {
  const LoadedModel m(file.path, make_cpu_backend({.threads = 2}), ActivationMode::kF32);
  expect_invariant(m, KvType::kF32, "cpu float " + name, {.max_diff = kFloatTolerance});
}

TEST_P(BatchInvariance, CpuAgreesUpToFlipsWithNativeActivations) {
  const LoadedModel m(file.path, make_cpu_backend({.threads = 2}), ActivationMode::kNative);
  expect_invariant(m, KvType::kF16, "cpu " + name, {.mean_kl = kFlipTolerance});
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, BatchInvariance,
    testing::Values(std::pair{"tiny-llama", TensorType::Q4_0}, std::pair{"tiny-llama", TensorType::F32},
                    std::pair{"tiny-qwen35", TensorType::Q8_0}, std::pair{"tiny-bonsai", TensorType::PTQ1_0},
                    std::pair{"tiny-qwen35moe", TensorType::Q6_K}, std::pair{"tiny-bitnet-b1.58", TensorType::I2_S}),
    [](const auto& test) {
      std::string name = test.param.first + ("_" + std::string(type_info(test.param.second).name));
      for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
      return name;
    });

TEST(BatchInvarianceOfTheShippedModel, OnRef) {
  const LoadedModel m(model_path("ternlet-hybrid-108m-PTQ1_0.gguf").value(), make_ref_backend(),
                      ActivationMode::kNative);
  Stepper s(*m.backend, m.plan, {.context = 64, .max_rows = 16});
  const std::vector<int32_t> tokens = random_tokens(8, m.plan.n_vocab, 1);
  const std::vector<float> whole = s.run_one(tokens);
  s.reset();
  std::vector<float> cut;
  for (const int32_t t : tokens) {
    const std::vector<float> row = s.run_one({t});
    cut.insert(cut.end(), row.begin(), row.end());
  }
  EXPECT_EQ(whole, cut);
}

TEST(BatchInvarianceOfTheShippedModel, OnCpu) {
  const std::string path = model_path("ternlet-hybrid-108m-PTQ1_0.gguf").value();
  const LoadedModel m(path, make_cpu_backend({.threads = 2}), ActivationMode::kNative);
  expect_invariant(m, KvType::kF16, "cpu, shipped model", {.mean_kl = kFlipTolerance});
}

TEST(BatchInvarianceOfTheShippedModel, OnCpuWithFloatActivations) {
  const std::string path = model_path("ternlet-hybrid-108m-PTQ1_0.gguf").value();
  const LoadedModel m(path, make_cpu_backend({.threads = 2}), ActivationMode::kF32);
  expect_invariant(m, KvType::kF16, "cpu float, shipped model", {.mean_kl = kByteTolerance}, kManyPages);
}

TEST(ThreadInvarianceOfTheShippedModel, APromptsLogitsAreTheSameBits) {
  const std::string path = model_path("ternlet-hybrid-108m-PTQ1_0.gguf").value();
  std::vector<float> wanted;
  for (const int threads : {1, 2, 3, 5}) {
    const LoadedModel m(path, make_cpu_backend({.threads = threads}), ActivationMode::kNative);
    Stepper s(*m.backend, m.plan, {.context = 320, .max_rows = 256, .kv = KvType::kF16});
    std::vector<float> got = s.run_one(random_tokens(90, m.plan.n_vocab, 1));
    const std::vector<float> behind = s.run_one(random_tokens(kManyPages, m.plan.n_vocab, 2));
    got.insert(got.end(), behind.begin(), behind.end());
    if (threads == 1) wanted = got;
    EXPECT_TRUE(got == wanted) << threads << " threads";  // too many numbers for a message
  }
}

}  // namespace
}  // namespace tern
