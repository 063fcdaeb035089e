// What the walk leaves to the readers of a result: no GPU needed.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "backend/cuda/readings.h"
#include "models/registry.h"
#include "support/synth_model.h"

namespace tern {
namespace {

using cuda::Readings;

struct Hybrid : testing::Test {
  test::SynthFile model{synth::find_shape("tiny-bonsai"), {.type = TensorType::PTQ1_0}};
  gguf::File file = gguf::File::open(model.path);
  Plan plan = build_plan(file);
};

/// Names of the ops of layers that nobody else does, and how often each.
std::map<std::string, int> left_over(const Plan& plan, const Readings& readings) {
  std::map<std::string, int> names;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].site.layer >= 0 && !readings.absorbed(i)) ++names[std::string(op_name(plan.ops[i]))];
  }
  return names;
}

TEST_F(Hybrid, OnlyProductsAttentionAndRecurrencesRemainOfALayer) {
  const Readings readings(
      plan, [](Weight) { return true; }, true);
  const auto names = left_over(plan, readings);
  std::set<std::string> kinds;
  for (const auto& [name, count] : names) kinds.insert(name);
  EXPECT_EQ(kinds, (std::set<std::string>{"linear", "conv_silu", "delta_rule", "attend"}));
}

TEST_F(Hybrid, NothingIsLeftToReadersWithoutFusion) {
  const Readings readings(
      plan, [](Weight) { return true; }, false);
  for (size_t i = 0; i < plan.ops.size(); ++i) EXPECT_FALSE(readings.absorbed(i)) << op_name(plan.ops[i]);
}

TEST_F(Hybrid, AResultOfAnAbsorbedOpIsReadOnlyThroughItsReading) {
  const Readings readings(
      plan, [](Weight) { return true; }, true);
  std::map<int32_t, size_t> maker;
  for (size_t i = 0; i < plan.ops.size(); ++i) maker[plan.ops[i].out.id] = i;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (!std::holds_alternative<LinearArgs>(op.args)) continue;
    const cuda::ProductReading r = readings.product(op.inputs[0]);
    // What is read instead exists: an op of its own, a residual sum, or a norm that its first reader also writes down.
    const size_t source = maker.at(r.x.id);
    const bool sum = std::holds_alternative<AddArgs>(plan.ops[source].args);
    const bool norm = std::holds_alternative<RmsNormArgs>(plan.ops[source].args);
    EXPECT_TRUE(!readings.absorbed(source) || sum || norm) << op_name(plan.ops[source]);
  }
}

}  // namespace
}  // namespace tern
