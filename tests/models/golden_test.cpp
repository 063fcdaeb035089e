// Whole models against answers of independent engines, at every position and over the greedy continuation.
#include <gtest/gtest.h>

#include "backend/ref/ref_backend.h"
#include "models/registry.h"
#include "support/golden.h"
#include "support/stepper.h"

namespace tern {
namespace {

using test::GoldenCase;
using test::Stepper;

struct Loaded {
  gguf::File file;
  Plan plan;
  std::unique_ptr<Backend> backend;
};

std::unique_ptr<Loaded> load(const std::string& path, std::unique_ptr<Backend> backend, ActivationMode mode) {
  auto m = std::make_unique<Loaded>(Loaded{.file = gguf::File::open(path), .plan = {}, .backend = std::move(backend)});
  m->plan = build_plan(m->file);
  m->backend->load(m->plan, m->file, {.activations = mode});
  return m;
}

struct Tolerance {
  double argmax_tie = 1e-3;  // logits this close may swap
  double top20 = 0;          // 0: not compared
  double logsumexp = 0;
};

std::span<const float> row(const std::vector<float>& logits, size_t r, const Plan& plan) {
  const auto n = static_cast<size_t>(plan.n_vocab);
  return {logits.data() + r * n, n};
}

/// `got` chose `id` where the reference chose `wanted`: the same, or a tie within the tolerance.
void expect_choice(std::span<const float> got, int32_t wanted, double tie, const std::string& where) {
  const int32_t id = test::argmax(got);
  if (id == wanted) return;
  EXPECT_LE(got[static_cast<size_t>(id)] - got[static_cast<size_t>(wanted)], tie)
      << where << ": chose " << id << ", reference " << wanted;
}

void expect_golden(Loaded& m, const std::string& golden, const Tolerance& t, bool greedy) {
  Stepper s(*m.backend, m.plan, {});
  for (const GoldenCase& c : test::read_golden(golden)) {
    s.reset();
    std::vector<float> logits = s.run_one(c.tokens);
    double worst_lse = 0, worst_top = 0;
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      expect_choice(row(logits, i, m.plan), c.argmax[i], t.argmax_tie,
                    "'" + c.text + "' position " + std::to_string(i));
      worst_lse = std::max(worst_lse, std::abs(test::logsumexp(row(logits, i, m.plan)) - c.logsumexp[i]));
    }
    for (const auto& [id, value] : c.last_top20) {
      worst_top =
          std::max(worst_top, std::abs(row(logits, c.tokens.size() - 1, m.plan)[static_cast<size_t>(id)] - value));
    }
    std::printf("%-28s %2zu tokens: max |logsumexp diff| %.2e, max |top-20 logit diff| %.2e\n", golden.c_str(),
                c.tokens.size(), worst_lse, worst_top);
    if (t.logsumexp > 0) {
      EXPECT_LE(worst_lse, t.logsumexp) << c.text;
    }
    if (t.top20 > 0) {
      EXPECT_LE(worst_top, t.top20) << c.text;
    }
    if (!greedy) continue;
    logits.erase(logits.begin(), logits.end() - m.plan.n_vocab);
    for (size_t i = 0; i < c.greedy.size(); ++i) {
      expect_choice(logits, c.greedy[i], t.argmax_tie, "'" + c.text + "' greedy " + std::to_string(i));
      logits = s.run_one({c.greedy[i]});
    }
  }
}

TEST(Golden, HybridOnRefWithFloatActivationsMatchesLlamaCpp) {
  const auto path = test::model_path("ternlet-hybrid-108m-PTQ1_0.gguf");
  ASSERT_TRUE(path) << "the shipped model is missing";
  const auto m = load(*path, make_ref_backend(), ActivationMode::kF32);
  expect_golden(*m, "ternlet-hybrid-108m-F32.json", {.top20 = 5e-3}, false);
}

TEST(Golden, BitnetOnRefMatchesFloat64WithInt8Activations) {
  const auto path = test::model_path("ternlet-bitnet-72m-I2_S.gguf");
  if (!path) GTEST_SKIP();
  const auto m = load(*path, make_ref_backend(Precision::kF64), ActivationMode::kNative);
  expect_golden(*m, "ternlet-bitnet-72m.json", {.logsumexp = 2e-3}, true);
}

TEST(Golden, MixtureOfExpertsOnRefMatchesLlamaCpp) {
  const auto path = test::model_path("ternlet-moe-29m-Q8_0.gguf");
  if (!path) GTEST_SKIP();
  const auto m = load(*path, make_ref_backend(), ActivationMode::kNative);
  expect_golden(*m, "ternlet-moe-29m-Q8_0.json", {}, true);
}

}  // namespace
}  // namespace tern
