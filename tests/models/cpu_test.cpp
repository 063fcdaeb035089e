// The cpu backend against ref over whole models of every family, and with every type of KV cache.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/ref/ref_backend.h"
#include "models/variants.h"
#include "support/stepper.h"
#include "support/synth_model.h"

namespace tern {
namespace {

using namespace test;

struct Case {
  Variant variant;
  TensorType type;
  KvType kv;
};

/// A prompt in one batch, then tokens one by one.
std::vector<float> logits_of(const std::string& path, std::unique_ptr<Backend> backend, ActivationMode mode,
                             KvType kv) {
  const LoadedModel m(path, std::move(backend), mode);
  Stepper s(*m.backend, m.plan, {.context = 128, .kv = kv});
  std::vector<float> all = s.run_one(random_tokens(70, m.plan.n_vocab, 1));  // more than a page
  for (const int32_t token : random_tokens(6, m.plan.n_vocab, 2)) {
    const std::vector<float> row = s.run_one({token});
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

class CpuAgainstRef : public testing::TestWithParam<Case> {};

TEST_P(CpuAgainstRef, AgreesOverAWholeModel) {
  const auto& [variant, type, kv] = GetParam();
  const SynthFile file(variant.shape, {.type = type});
  const bool exact = type == TensorType::F32;
  const ActivationMode mode = exact ? ActivationMode::kF32 : ActivationMode::kNative;
  Distance d;
  d.add(logits_of(file.path, make_ref_backend(), mode, kv),
        logits_of(file.path, make_cpu_backend({.threads = 2}), mode, kv), variant.shape.vocab);
  d.print(variant.name + " " + std::string(type_info(type).name) + " kv " + std::string(kv_type_name(kv)));
  if (exact && kv == KvType::kF32) {
    EXPECT_LE(d.max_diff, 1e-4);
    return;
  }
  // Rows agree to the last bits until a sum falls on the other side of a rounding boundary (of an int8 activation or a
  // KV entry); with experts that may choose another one.
  EXPECT_LE(variant.shape.experts > 0 ? d.median_kl() : d.mean_kl(), 1e-3);
}

std::vector<Case> cases() {
  using enum TensorType;
  std::vector<Case> out;
  for (const Variant& v : families_as_they_are()) {
    for (const TensorType type : {F32, Q8_0, TQ2_0, PTQ1_0}) out.push_back({v, type, KvType::kF32});
    for (const KvType kv : {KvType::kF16, KvType::kQ8_0}) out.push_back({v, F32, kv});
    // The other formats on one dense model and one with everything.
    if (v.name != "llama" && v.name != "qwen35moe") continue;
    for (const TensorType type : {F16, BF16, Q4_0, Q4_K, Q6_K, TQ1_0, PQ2_0}) out.push_back({v, type, KvType::kF32});
  }
  for (const Variant& v : family_variants()) out.push_back({v, F32, KvType::kF32});
  for (const Variant& v : families_as_they_are()) {
    if (v.shape.architecture.starts_with("bitnet")) out.push_back({v, I2_S, KvType::kF16});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, CpuAgainstRef, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.variant.name + "_" + std::string(type_info(test.param.type).name) + "_kv_" +
         std::string(kv_type_name(test.param.kv));
});

}  // namespace
}  // namespace tern
