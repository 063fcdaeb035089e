// Every op of the plan on the CUDA backend against ref: fused and op by op, ragged batches of three sequences over
// several steps.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/op_cases.h"
#include "backend/ref/ref_backend.h"
#include "cuda/gpu.h"
#include "quant/format.h"

namespace tern {
namespace {

using namespace test;

/// Over an f16 or q8_0 cache tensor cores attend with queries and weights in f16.
constexpr double kF16Attention = 1e-3;

void expect_as_ref(const OpCase& c, const Steps& steps, KvType kv = KvType::kF32) {
  OpPlan p;
  const Val out = c.build(p);
  const gguf::File file = p.open(out);
  const auto ref = make_ref_backend();
  ref->load(p.plan, file, {.activations = c.activations});
  const auto wanted = run_steps(*ref, p.plan, steps, kv);
  for (const bool traced : {false, true}) {
    const auto backend = make_cuda_backend();
    backend->load(p.plan, file, {.activations = c.activations});
    if (traced) backend->set_trace([](const OpTrace&) {});
    const auto got = run_steps(*backend, p.plan, steps, kv);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(distance(got[i], wanted[i]), c.tolerance)
          << c.name << (traced ? ", op by op" : "") << ", " << kv_type_name(kv) << ", step " << i;
    }
  }
}

class CudaOps : public OnGpu {};

TEST_F(CudaOps, EveryOpAgreesWithRef) {
  for (const OpCase& c : op_cases()) {
    SCOPED_TRACE(c.name);
    expect_as_ref(c, kShort);
  }
}

TEST_F(CudaOps, LinearOfEveryFormatAgreesWithRef) {
  for (const quant::Format& f : quant::formats()) {
    expect_as_ref(linear_case(f.type, ActivationMode::kNative, 512, 80), kShort);
    expect_as_ref(linear_case(f.type, ActivationMode::kF32, 256, 48), kShort);
  }
}

TEST_F(CudaOps, EmbedDecodesEveryFormat) {
  for (const quant::Format& f : quant::formats()) expect_as_ref(embed_case(f.type), kShort);
}

TEST_F(CudaOps, AttentionAgreesForEveryCacheTypeInShortAndLongContexts) {
  for (const OpCase& c : op_cases()) {
    if (!c.uses_kv) continue;
    for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
      OpCase rounded = c;
      if (kv != KvType::kF32) rounded.tolerance = kF16Attention;
      expect_as_ref(rounded, kShort, kv);
      expect_as_ref(rounded, kLong, kv);
    }
  }
}

TEST_F(CudaOps, RecurrencesAgreeOverLongPrompts) {
  expect_as_ref(delta_case(2, 4, 64), {{{0, 200}, {2, 3}}, {{0, 1}, {1, 90}, {2, 5}}, {{0, 3}}});
  // Chunks of tokens, whole and cut short, beside a sequence of one and of a few; then the states token by token.
  const Steps ragged = {{{0, 333}, {1, 65}, {2, 7}}, {{0, 1}, {2, 64}}, {{0, 32}, {1, 31}, {2, 97}}, {{0, 1}, {2, 2}}};
  for (const OpCase& c : {delta_case(2, 6, 128), delta_case(3, 3, 20), delta_case(4, 4, 84)}) {
    SCOPED_TRACE(c.name);
    expect_as_ref(c, ragged);
  }
  expect_as_ref(conv_case(1100, 4), {{{0, 2}}, {{0, 2}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 40}, {0, 1}}});
}

/// The readers of one activation share launches; a rotation is done where they round it.
TEST_F(CudaOps, ProductsOfOneActivationAgreeWhenTheyShareALaunch) {
  expect_as_ref({.name = "rotated products",
                 .build =
                     [](OpPlan& p) {
                       std::vector<float> signs(512);
                       for (size_t i = 0; i < signs.size(); ++i) signs[i] = i % 3 == 0 ? -1.0f : 1.0f;
                       p.plan.signs.push_back(signs);
                       const Val x = p.op(RotateArgs{0, 128, 512, false}, {p.input(512)}, 512);
                       const Val a = p.op(LinearArgs{p.matrix(TensorType::PQ2_0, 512, 96)}, {x}, 96);
                       const Val b = p.op(LinearArgs{p.matrix(TensorType::PTQ1_0, 512, 96)}, {x}, 96);
                       const Val c = p.op(LinearArgs{p.matrix(TensorType::Q8_0, 512, 96)}, {x}, 96);
                       return p.op(GluArgs{Gate::kSilu}, {p.op(AddArgs{}, {a, b}, 96), c}, 96);
                     },
                 .tolerance = 1e-5},
                kShort);
}

}  // namespace
}  // namespace tern
