// Where the Builder puts the rotations of a Hadamard fold: shared by the weights that read one activation, and nowhere
// else.
#include <gtest/gtest.h>

#include <map>

#include "plan/plan_file.h"

namespace tern {
namespace {

using namespace test;

/// The ops of a plan by what they make, and its linears by weight.
struct PlanView {
  explicit PlanView(Plan p) : plan(std::move(p)) {
    for (const Op& op : plan.ops) {
      maker[op.out.id] = &op;
      if (const auto* l = std::get_if<LinearArgs>(&op.args)) input[plan.info(l->weight).name] = op.inputs[0];
    }
  }
  Val input_of(const std::string& weight) const {
    EXPECT_TRUE(input.count(weight)) << weight;
    return input.at(weight);
  }
  /// The op that made the activation `weight` reads.
  const Op& before(const std::string& weight) const { return *maker.at(input_of(weight).id); }
  template <typename Args>
  size_t count() const {
    return static_cast<size_t>(std::count_if(plan.ops.begin(), plan.ops.end(),
                                             [](const Op& op) { return std::holds_alternative<Args>(op.args); }));
  }

  Plan plan;
  std::map<int32_t, const Op*> maker;
  std::map<std::string, Val> input;
};

TEST(Rotation, QkvShareOne) {
  const PlanView v(PlanFile(small_bonsai()).plan());
  EXPECT_TRUE(std::holds_alternative<RotateArgs>(v.before("blk.1.attn_q.weight").args));
  EXPECT_EQ(v.input_of("blk.1.attn_q.weight"), v.input_of("blk.1.attn_k.weight"));
  EXPECT_EQ(v.input_of("blk.1.attn_q.weight"), v.input_of("blk.1.attn_v.weight"));
}

TEST(Rotation, GateAndUpShareOne) {
  const PlanView v(PlanFile(small_bonsai()).plan());
  EXPECT_TRUE(std::holds_alternative<RotateArgs>(v.before("blk.0.ffn_gate.weight").args));
  EXPECT_EQ(v.input_of("blk.0.ffn_gate.weight"), v.input_of("blk.0.ffn_up.weight"));
  EXPECT_NE(v.input_of("blk.0.ffn_gate.weight"), v.input_of("blk.0.attn_qkv.weight"));
}

TEST(Rotation, DeltaNetProjectionsShareOneButAlphaAndBetaReadTheNormItself) {
  const PlanView v(PlanFile(small_bonsai()).plan());
  const Op& rotate = v.before("blk.0.attn_qkv.weight");
  ASSERT_TRUE(std::holds_alternative<RotateArgs>(rotate.args));
  EXPECT_EQ(v.input_of("blk.0.attn_qkv.weight"), v.input_of("blk.0.attn_gate.weight"));
  EXPECT_EQ(v.input_of("blk.0.ssm_alpha.weight"), rotate.inputs[0]);
  EXPECT_EQ(v.input_of("blk.0.ssm_beta.weight"), rotate.inputs[0]);
  EXPECT_TRUE(std::holds_alternative<RmsNormArgs>(v.before("blk.0.ssm_alpha.weight").args));
}

TEST(Rotation, FourABlockOneForTheHeadOneBackForTheEmbedding) {
  const PlanView v(PlanFile(small_bonsai()).plan());
  EXPECT_EQ(v.count<RotateArgs>(), 2u * 4 + 1 + 1);
  size_t inverse = 0;
  for (const Op& op : v.plan.ops) {
    const auto* r = std::get_if<RotateArgs>(&op.args);
    if (r == nullptr) continue;
    EXPECT_EQ(r->block, 32);
    ASSERT_GE(r->signs, 0);
    EXPECT_EQ(static_cast<int64_t>(v.plan.signs[static_cast<size_t>(r->signs)].size()), r->width);
    if (!r->inverse) continue;
    ++inverse;
    EXPECT_TRUE(std::holds_alternative<EmbedArgs>(v.maker.at(op.inputs[0].id)->args));
  }
  EXPECT_EQ(inverse, 1u);
}

TEST(Rotation, SignsAreKeptOnceAWidth) {
  EXPECT_EQ(PlanFile(small_bonsai()).plan().signs.size(), 2u);  // 64 and 128 columns
}

TEST(Rotation, IdentityModeRotatesWithoutSigns) {
  synth::Shape s = small_bonsai();
  s.hadamard_signs = false;
  const PlanView v(PlanFile(s).plan());
  EXPECT_EQ(v.count<RotateArgs>(), 10u);
  EXPECT_TRUE(v.plan.signs.empty());
}

TEST(Rotation, AnUnfoldedFileHasNone) {
  synth::Shape s = small_bonsai();
  s.hadamard_block = 0;
  const PlanView v(PlanFile(s).plan());
  EXPECT_EQ(v.count<RotateArgs>(), 0u);
  EXPECT_EQ(v.count<PermuteHeadsArgs>(), 0u);
}

TEST(Rotation, OnlyTheListedWeightsAreRotated) {
  PlanFile file(small_bonsai());
  file.keys.set_strings("prism.hadamard.weight_names", {"blk.0.ffn_down.weight"});
  file.keys.erase("prism.hadamard.inverse_weight_names");
  const PlanView v(file.plan());
  EXPECT_EQ(v.count<RotateArgs>(), 1u);
  EXPECT_TRUE(std::holds_alternative<RotateArgs>(v.before("blk.0.ffn_down.weight").args));
}

TEST(Rotation, TiedHeadRotatesItsInputAndTheTableBack) {
  synth::Shape s = small_bonsai();
  s.tied = true;
  const PlanView v(PlanFile(s).plan());
  EXPECT_EQ(v.count<RotateArgs>(), 10u);
  EXPECT_TRUE(std::holds_alternative<RotateArgs>(v.before("token_embd.weight").args));
}

TEST(Rotation, HeadsOfAFoldedSsmOutAreGroupedFirst) {
  const PlanView v(PlanFile(small_bonsai()).plan());
  ASSERT_EQ(v.count<PermuteHeadsArgs>(), 1u);
  const Op& rotate = v.before("blk.0.ssm_out.weight");
  ASSERT_TRUE(std::holds_alternative<RotateArgs>(rotate.args));
  const auto* permute = std::get_if<PermuteHeadsArgs>(&v.maker.at(rotate.inputs[0].id)->args);
  ASSERT_NE(permute, nullptr);
  EXPECT_EQ(permute->k_heads, 4);
  EXPECT_EQ(permute->rep, 2);
  EXPECT_EQ(permute->head_dim, 16);
}

TEST(Rotation, OneValueHeadAKeyHeadNeedsNoGrouping) {
  synth::Shape s = small_bonsai();
  s.k_heads = s.v_heads;
  EXPECT_EQ(PlanView(PlanFile(s).plan()).count<PermuteHeadsArgs>(), 0u);
}

TEST(Rotation, TiledColumnsNeedNoGrouping) {
  PlanFile file(small_bonsai());
  file.keys.set_bool("prism.hadamard.gdn_v_grouped", false);
  EXPECT_EQ(PlanView(file.plan()).count<PermuteHeadsArgs>(), 0u);
}

TEST(Rotation, AnUnfoldedSsmOutIsTiledAlready) {
  PlanFile file(small_bonsai());
  std::vector<std::string> names = *file.keys.get_strings("prism.hadamard.weight_names");
  std::erase(names, "blk.0.ssm_out.weight");
  file.keys.set_strings("prism.hadamard.weight_names", names);
  EXPECT_EQ(PlanView(file.plan()).count<PermuteHeadsArgs>(), 0u);
}

}  // namespace
}  // namespace tern
