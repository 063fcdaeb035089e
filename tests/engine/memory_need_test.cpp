#include "engine/memory_need.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/registry.h"
#include "tiny_model.h"

namespace tern {
namespace {

struct Planned {
  test::TinyFile source;
  Plan plan;
  explicit Planned(std::string_view shape) : source(shape), plan(build_plan(gguf::File::open(source.path))) {}
};

TEST(MemoryNeed, GrowsWithTheContextByItsPages) {
  const Planned tiny("tiny-llama");
  const MemoryNeed small = memory_need(tiny.plan, {.context = 64}), large = memory_need(tiny.plan, {.context = 256});
  EXPECT_EQ(small.weights, large.weights);
  EXPECT_EQ(large.kv, small.kv * 4);
  EXPECT_EQ(small.states, 0u);
}

TEST(MemoryNeed, AHybridHasStateThatDoesNotGrow) {
  const Planned tiny("tiny-qwen35");
  const MemoryNeed small = memory_need(tiny.plan, {.context = 64}), large = memory_need(tiny.plan, {.context = 512});
  EXPECT_GT(small.states, 0u);
  EXPECT_EQ(small.states, large.states);
}

TEST(MemoryNeed, CountsTheActivationsOfAnswersAndOfEmbeddings) {
  const Planned tiny("tiny-llama");
  uint64_t row = 0;  // of a layer
  for (const ValInfo& v : tiny.plan.vals)
    if (!v.outputs_only) row += static_cast<uint64_t>(v.cols) * sizeof(float);
  row /= static_cast<uint64_t>(tiny.plan.n_layers);
  const uint64_t hidden = static_cast<uint64_t>(tiny.plan.n_embd) * sizeof(float);
  const auto of_a_row = [&](BackendKind backend) {
    const auto of = [&](int32_t rows) {
      return memory_need(tiny.plan, {.context = 256, .rows = rows}, backend).activations;
    };
    return static_cast<double>(of(64) - of(32)) / 32;
  };
  EXPECT_NEAR(of_a_row(BackendKind::kCpu), static_cast<double>(row + hidden), 8);
  EXPECT_NEAR(of_a_row(BackendKind::kCuda), static_cast<double>(2 * row + hidden), 8);
}

TEST(FittingContext, IsTheLargestThatFitsAndAtMostTheTrainedOne) {
  const Planned tiny("tiny-llama");
  EXPECT_EQ(fitting_context(tiny.plan, {}, uint64_t{1} << 40), tiny.plan.n_context_train);
  const uint64_t budget = memory_need(tiny.plan, {.context = 192}).total();
  EXPECT_EQ(fitting_context(tiny.plan, {}, budget), 192);
  EXPECT_EQ(fitting_context(tiny.plan, {}, budget - 1), 128);
  EXPECT_EQ(fitting_context(tiny.plan, {}, 1000), 0);
}

std::string refusal(const Plan& plan, const Runner::Limits& limits, uint64_t available) {
  try {
    require_fits(plan, limits, available);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    return error.what();
  }
  return "";
}

TEST(RequireFits, NamesTheNeedWhatThereIsAndAContextThatFits) {
  const Planned tiny("tiny-llama");
  const uint64_t available = memory_need(tiny.plan, {.context = 192}).total();
  EXPECT_EQ(refusal(tiny.plan, {.context = 192}, available), "");
  const std::string text = refusal(tiny.plan, {.context = 512}, available);
  EXPECT_NE(text.find(human_bytes(memory_need(tiny.plan, {.context = 512}).total())), std::string::npos) << text;
  EXPECT_NE(text.find(human_bytes(available) + " are available"), std::string::npos) << text;
  EXPECT_NE(text.find("-c 192 would fit"), std::string::npos) << text;
}

TEST(RequireFits, OffersSmallerKvWhereThatIsEnough) {
  const Planned tiny("tiny-llama");
  Runner::Limits q8{.context = 512};
  q8.k = q8.v = KvType::kQ8_0;
  const std::string text = refusal(tiny.plan, {.context = 512}, memory_need(tiny.plan, q8).total());
  EXPECT_NE(text.find("-ctk q8_0 -ctv q8_0"), std::string::npos) << text;
}

TEST(RequireFits, SaysWhenNoContextFits) {
  const Planned tiny("tiny-llama");
  EXPECT_NE(refusal(tiny.plan, {.context = 64}, 1000).find("no context fits"), std::string::npos);
}

TEST(HumanBytes, KeepsThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 KB");
  EXPECT_EQ(human_bytes(12'345), "12.3 KB");
  EXPECT_EQ(human_bytes(999'999), "1.00 MB");
  EXPECT_EQ(human_bytes(5'946'648'928), "5.95 GB");
}

}  // namespace
}  // namespace tern
