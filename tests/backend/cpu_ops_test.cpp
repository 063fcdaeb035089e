// Every op of the plan on the CPU backend against ref: each instruction set of this machine, one thread and two, fused
// and eager, ragged batches of three sequences over several steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/matrix.h"
#include "backend/op_cases.h"
#include "backend/ref/ref_backend.h"
#include "quant/format.h"

namespace tern {
namespace {

using namespace test;

std::vector<CpuOptions> machines() {
  const char* only = std::getenv("TERN_BEST_ISA");  // what neon/run.sh is there for: emulation is slow
  std::vector<CpuOptions> all;
  for (const cpu::Isa isa : {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvxVnni, cpu::Isa::kAvx512Vnni,
                             cpu::Isa::kAvx512Amx, cpu::Isa::kNeonDot, cpu::Isa::kNeonI8mm}) {
    if (!cpu::isa_available(isa)) continue;
    const std::string name(cpu::isa_name(isa));
    if (only != nullptr && name != only) continue;
    all.push_back({.threads = 1, .isa = name});
    all.push_back({.threads = 2, .isa = name});
    all.push_back({.threads = 2, .isa = name, .eager = true});
  }
  return all;
}

/// `bytes`: the tolerance where attention of prompts takes byte products.
void expect_as_ref(const OpCase& c, const Steps& steps, KvType kv = KvType::kF32, double bytes = 0) {
  OpPlan p;
  const Val out = c.build(p);
  const gguf::File file = p.open(out);
  const auto ref = make_ref_backend();
  ref->load(p.plan, file, {.activations = c.activations});
  const auto wanted = run_steps(*ref, p.plan, steps, kv);
  for (const CpuOptions& options : machines()) {
    const auto backend = make_cpu_backend(options);
    backend->load(p.plan, file, {.activations = c.activations});
    const auto got = run_steps(*backend, p.plan, steps, kv);
    const double tolerance = bytes > 0 && options.isa.starts_with("avx512") ? bytes : c.tolerance;
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(distance(got[i], wanted[i]), tolerance)
          << c.name << ", " << options.isa << ", " << options.threads << " threads" << (options.eager ? ", eager" : "")
          << ", " << kv_type_name(kv) << ", step " << i;
    }
  }
}

TEST(CpuOps, EveryOpAgreesWithRef) {
  for (const OpCase& c : op_cases()) {
    SCOPED_TRACE(c.name);
    expect_as_ref(c, kShort);
  }
}

TEST(CpuOps, LinearOfEveryFormatAgreesWithRef) {
  for (const quant::Format& f : quant::formats()) {
    expect_as_ref(linear_case(f.type, ActivationMode::kNative, 512, 80), kShort);
    expect_as_ref(linear_case(f.type, ActivationMode::kF32, 256, 48), kShort);
  }
}

TEST(CpuOps, EmbedDecodesEveryFormat) {
  for (const quant::Format& f : quant::formats()) expect_as_ref(embed_case(f.type), kShort);
}

TEST(CpuOps, AttentionAgreesForEveryCacheTypeInShortAndLongContexts) {
  for (const KvType kv : kKvTypes) {
    for (const OpCase& c : op_cases()) {
      if (c.uses_kv) expect_as_ref(c, kShort, kv);
    }
    expect_as_ref(attend_case(12, 4, 32, 96), kLong, kv);
  }
}

// Errors of scores of 0.01 and of values of 0.007, over many keys; nothing where a cache is exact or the rows are few.
TEST(CpuOps, PromptsBehindSeveralPagesAreOffByTheRoundingOfBytesAtMost) {
  constexpr double kBytes = 0.02;
  const Steps prompts = {{{0, 300}, {1, 70}}, {{0, 90}, {1, 1}}, {{1, 150}, {0, 16}}};
  const Steps few_rows(14, {{0, 15}});
  const OpCase c = attend_case(4, 2, 64, 64);
  for (const KvType kv : kKvTypes) expect_as_ref(c, prompts, kv, kv == KvType::kF32 ? 0 : kBytes);
  expect_as_ref(attend_case(6, 1, 128, 192), prompts, KvType::kF16, kBytes);
  expect_as_ref(attend_case(3, 3, 192, 64), prompts, KvType::kF16, kBytes);
  expect_as_ref(c, few_rows, KvType::kF16);
}

TEST(CpuOps, KiviPacksAPageWhenTheNextOneBegins) {
  const Steps around_pages = {{{0, 63}}, {{0, 1}}, {{0, 1}}, {{0, 200}, {1, 5}}, {{0, 1}, {1, 60}}, {{1, 1}, {0, 60}}};
  for (const KvType kv : {KvType::kKivi, KvType::kKivi4}) expect_as_ref(attend_case(6, 2, 64, 32), around_pages, kv);
}

TEST(CpuOps, RecurrencesAgreeOverLongPrompts) {
  expect_as_ref(delta_case(2, 4, 64), {{{0, 200}, {2, 3}}, {{0, 1}, {1, 90}, {2, 5}}, {{0, 3}}});
  expect_as_ref(conv_case(1100, 4), {{{0, 2}}, {{0, 2}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 40}, {0, 1}}});
}

TEST(CpuOps, AProgramRunsAsBeforeOnceALargerOneHasReplacedTheirWorkspace) {
  OpPlan p;
  const Val x = rms_norm(p, p.input(64), 64);
  const gguf::File file = p.open(p.op(LinearArgs{p.matrix(TensorType::F32, 64, 96)}, {x}, 96));
  const auto backend = make_cpu_backend({.threads = 2});
  backend->load(p.plan, file, {});
  Stepper small(*backend, p.plan, {.max_rows = 2});
  const std::vector<float> before = small.run_one({3, 5});
  Stepper large(*backend, p.plan, {.max_rows = 900});
  large.run_one(std::vector<int32_t>(900, 7));
  small.reset();
  EXPECT_EQ(small.run_one({3, 5}), before);
}

TEST(CpuOps, ATiedEmbeddingIsTableAndMatrix) {
  expect_as_ref({.name = "tied",
                 .build =
                     [](OpPlan& p) {
                       const Weight w = p.weight(TensorType::Q8_0, {256, OpPlan::kTokens}, WeightUse::kMatrix);
                       p.plan.weights[static_cast<size_t>(w.id)].also_table = true;
                       return p.op(LinearArgs{w}, {p.op(EmbedArgs{w}, {}, 256)}, OpPlan::kTokens);
                     },
                 .tolerance = 1e-5},
                kShort);
}

}  // namespace
}  // namespace tern
