// What the Builder and the families refuse, by name and with the numbers.
#include "plan/builder.h"

#include <gtest/gtest.h>

#include "plan/plan_file.h"

namespace tern {
namespace {

using namespace test;

void expect_plan_refused(const PlanFile& file, std::string_view text, ErrorCode code = ErrorCode::kBadFile) {
  const gguf::File opened = file.open();
  expect_refused([&] { build_plan(opened); }, code, text);
}

TEST(Builder, PlansEveryFamily) {
  for (const Family& f : families()) {
    synth::Shape s = f.architecture.starts_with("qwen35") ? small_bonsai() : small(f.architecture);
    s.architecture = f.architecture;
    s.hadamard_block = 0;
    if (f.architecture.ends_with("moe")) {
      s.experts = 4;
      s.experts_used = 2;
      s.expert_ffn = 32;
      s.shared_ffn = f.architecture == "qwen35moe" ? 32 : 0;
    }
    PlanFile file(s);
    const Plan plan = file.plan();
    EXPECT_EQ(plan.architecture, f.architecture);
    EXPECT_EQ(plan.n_layers, 2);
    EXPECT_EQ(plan.n_vocab, 32);
    EXPECT_EQ(plan.n_context_train, 256);
    EXPECT_EQ(plan.weights.size(), file.tensors.size()) << f.architecture;
  }
}

TEST(Builder, AnUnknownFamilyListsTheKnownOnes) {
  PlanFile file(small("llama"));
  file.keys.set_string("general.architecture", "mamba");
  expect_plan_refused(file, "is of architecture 'mamba', which this build does not know; it knows llama, qwen2, qwen3",
                      ErrorCode::kUnsupported);
}

TEST(Builder, AMissingTensorIsNamed) {
  PlanFile file(small("llama"));
  file.remove("blk.1.ffn_up.weight");
  expect_plan_refused(file, "architecture 'llama' needs tensor 'blk.1.ffn_up.weight', which is not in the file");
}

TEST(Builder, AnUnreadTensorIsNamed) {
  PlanFile file(small("llama"));
  file.add("blk.1.attn_q_norm.weight", {16});
  expect_plan_refused(file, "architecture 'llama' does not read 1 tensor of this file: 'blk.1.attn_q_norm.weight'.",
                      ErrorCode::kUnsupported);
}

TEST(Builder, ManyUnreadTensorsAreCountedAndTheFirstFiveNamed) {
  PlanFile file(small("llama"));
  for (int i = 0; i < 7; ++i) file.add("extra." + std::to_string(i), {8});
  expect_plan_refused(
      file, "does not read 7 tensors of this file: 'extra.0', 'extra.1', 'extra.2', 'extra.3', 'extra.4', ...",
      ErrorCode::kUnsupported);
}

TEST(Builder, InputNormsOfEmbeddingModelsAreRefused) {
  for (const char* kind : {"attn_q", "attn_output", "ffn_down"}) {
    PlanFile file(small("qwen3"));
    const std::string name = "blk.0." + std::string(kind) + "_norm_in.weight";
    file.add(name, {64});
    expect_plan_refused(file, "does not read 1 tensor of this file: '" + name + "'", ErrorCode::kUnsupported);
  }
}

TEST(Builder, AScaleThatNothingAppliesIsRefused) {
  PlanFile file(small("bitnet"));
  file.add("blk.0.attn_norm.scale", {8});
  expect_plan_refused(file, "does not read 1 tensor of this file: 'blk.0.attn_norm.scale'", ErrorCode::kUnsupported);
}

TEST(Builder, AScaleOfManyValuesIsRefused) {
  PlanFile file(small("bitnet"));
  file.add("blk.0.attn_q.scale", {64});
  expect_plan_refused(file, "blk.0.attn_q.scale has 64 values; one scale for the tensor is implemented",
                      ErrorCode::kUnsupported);
}

TEST(Builder, AMatrixOfTheWrongWidthIsRefusedWithBothSizes) {
  PlanFile file(small("llama"));
  file.tensor("blk.1.ffn_gate.weight").ne = {96, 128};
  expect_plan_refused(file, "(block 1): linear 'blk.1.ffn_gate.weight' [96, 128] over an activation of 64 columns");
}

TEST(Builder, AMatrixOfTheWrongHeightIsRefusedWithBothSizes) {
  PlanFile file(small("llama"));
  file.tensor("blk.0.ffn_up.weight").ne = {64, 96};
  expect_plan_refused(file, "(block 0): gate of 128 columns on 96 columns");
}

TEST(Builder, ANormOfTheWrongLengthIsRefusedWithBothSizes) {
  PlanFile file(small("llama"));
  file.tensor("blk.0.ffn_norm.weight").ne = {48};
  expect_plan_refused(file, "rms_norm 'blk.0.ffn_norm.weight' of 48 values over 64 columns in groups of 64");
}

TEST(Builder, ANormOfAHeadsLengthIsNoNormOfTheRow) {
  PlanFile file(small("llama"));
  file.tensor("output_norm.weight").ne = {32};
  expect_plan_refused(file, "rms_norm 'output_norm.weight' of 32 values over 64 columns in groups of 64");
}

TEST(Builder, ABiasOfTheWrongLengthIsRefusedWithBothSizes) {
  synth::Shape s = small("qwen2");
  s.biases = synth::Biases::kQkv;
  PlanFile file(s);
  file.tensor("blk.0.attn_q.bias").ne = {32};
  expect_plan_refused(file, "'blk.0.attn_q.bias' has 32 values for 64 rows");
}

TEST(Builder, AHeadOfAnotherVocabularyIsRefusedWithBothSizes) {
  PlanFile file(small("llama"));
  file.tensor("output.weight").ne = {64, 40};
  expect_plan_refused(file, "the head has 40 rows for a vocabulary of 32");
}

TEST(Builder, AResidualOfTheWrongWidthIsRefusedWithBothSizes) {
  PlanFile file(small("llama"));
  file.tensor("blk.0.ffn_down.weight").ne = {128, 72};
  expect_plan_refused(file, "add of 64 and 72 columns");
}

TEST(Builder, KeysThatContradictTheTensorsAreRefusedThoughNothingReadsThem) {
  const auto refused = [](std::string_view architecture, const char* key, uint32_t value, std::string_view text) {
    PlanFile file(small(architecture));
    file.keys.set_u32(std::string(architecture) + "." + key, value);
    expect_plan_refused(file, text);
  };
  refused("llama", "vocab_size", 33,
          "llama.vocab_size is 33, but 'token_embd.weight' has 32: the file contradicts itself");
  refused("llama", "embedding_length", 128, "llama.embedding_length is 128, but 'token_embd.weight' has 64");
  refused("llama", "feed_forward_length", 100, "llama.feed_forward_length is 100, but 'blk.0.ffn_gate.weight' has 128");
  refused("llama", "attention.value_length", 8, "llama.attention.value_length is 8, but 'blk.0.attn_v.weight' has");
  refused("qwen3", "context_length", 0, "qwen3.context_length is 0, which no model was trained for");
}

TEST(Builder, AStatedExtentMayDifferBetweenLayers) {
  PlanFile file(small("llama"));
  file.keys.set_i32s("llama.feed_forward_length", {128, 128});
  EXPECT_NO_THROW(file.plan());
  file.keys.set_i32s("llama.feed_forward_length", {128, 96});
  expect_plan_refused(file, "llama.feed_forward_length is 96, but 'blk.1.ffn_gate.weight' has 128");
}

TEST(Builder, HeadsThatDoNotDivideAreRefused) {
  PlanFile file(small("llama"));
  file.keys.set_u32("llama.attention.head_count_kv", 3);
  expect_plan_refused(file, "llama: 2 layers, 4 heads and 3 KV heads make no model");
}

TEST(Builder, HeadCountsThatDifferBetweenLayersAreRefused) {
  PlanFile file(small("llama"));
  file.keys.set_i32s("llama.attention.head_count_kv", {2, 4});
  expect_plan_refused(file, "head counts that differ between layers are not implemented (layer 1)",
                      ErrorCode::kUnsupported);
}

TEST(Builder, AMissingKeyIsNamed) {
  PlanFile file(small("llama"));
  file.keys.erase("llama.attention.layer_norm_rms_epsilon");
  expect_plan_refused(file, "llama.attention.layer_norm_rms_epsilon");
}

TEST(Builder, KeysThatChangeTheArithmeticAreRefusedUnlessNeutral) {
  PlanFile file(small("llama"));
  file.keys.set_f32("llama.logit_scale", 1);
  file.keys.set_u32("llama.expert_count", 0);
  EXPECT_EQ(file.plan().n_layers, 2);
  file.keys.set_f32("llama.logit_scale", 0.5f);
  expect_plan_refused(file, "llama.logit_scale = 0.5 is not implemented for this architecture",
                      ErrorCode::kUnsupported);
  file.keys.set_f32("llama.logit_scale", 1);
  file.keys.set_u32("llama.attention.sliding_window", 4096);
  expect_plan_refused(file, "llama.attention.sliding_window = 4096", ErrorCode::kUnsupported);
  file.keys.erase("llama.attention.sliding_window");
  file.keys.set_u32("llama.expert_count", 8);
  expect_plan_refused(file, "llama.expert_count = 8", ErrorCode::kUnsupported);
}

TEST(Builder, AnUnknownActivationOfBitnetIsRefused) {
  PlanFile file(small("bitnet"));
  file.keys.set_string("bitnet.hidden_act", "gelu");
  expect_plan_refused(file, "bitnet.hidden_act is 'gelu'; silu and relu2 are implemented", ErrorCode::kUnsupported);
}

TEST(Builder, BitnetSquaresItsReluExceptIn2024) {
  const auto gate = [](const PlanFile& file) {
    for (const Op& op : file.plan().ops) {
      if (const auto* g = std::get_if<GluArgs>(&op.args)) return g->gate;
    }
    throw std::runtime_error("no gate");
  };
  EXPECT_EQ(gate(PlanFile(small("bitnet-b1.58"))), Gate::kRelu2);
  EXPECT_EQ(gate(PlanFile(small("bitnet-25"))), Gate::kRelu2);
  EXPECT_EQ(gate(PlanFile(small("bitnet"))), Gate::kSilu);
  synth::Shape s = small("bitnet");
  s.hidden_act = "relu2";
  EXPECT_EQ(gate(PlanFile(s)), Gate::kRelu2);
}

TEST(Builder, DraftLayersAreListedNotRun) {
  synth::Shape s = small_bonsai();
  s.hadamard_block = 0;
  PlanFile file(s);
  file.keys.set_u32("qwen35.block_count", 3);
  file.keys.set_u32("qwen35.nextn_predict_layers", 1);
  file.add("blk.2.nextn.enorm.weight", {64});
  const Plan plan = file.plan();
  EXPECT_EQ(plan.n_layers, 2);
  EXPECT_EQ(plan.unused_tensors, std::vector<std::string>{"blk.2.nextn.enorm.weight"});
}

TEST(Builder, ADeltaNetThatDoesNotAddUpIsRefusedWithItsNumbers) {
  PlanFile file(small_bonsai());
  file.keys.set_u32("qwen35.ssm.inner_size", 96);
  expect_plan_refused(file, "4 key heads and 8 value heads of 16 with 4 taps do not make an inner size of 96");
}

TEST(Builder, AListOfRecurrentLayersOverridesTheInterval) {
  synth::Shape s = small_bonsai();
  s.hadamard_block = 0;
  PlanFile file(s);
  file.keys.set_i32s("qwen35.attention.recurrent_layers", {1, 0});
  EXPECT_EQ(file.plan().state_layers.size(), 1u);
  file.keys.set_i32s("qwen35.attention.recurrent_layers", {1});
  expect_plan_refused(file, "qwen35.attention.recurrent_layers has 1 entries, none for layer 1");
}

TEST(Builder, EveryOpSaysWhereItComesFrom) {
  for (const Op& op : PlanFile(small("qwen3")).plan().ops) {
    const std::string file = op.site.file;
    EXPECT_TRUE(file.ends_with("qwen3.cpp") || file.ends_with("blocks.cpp")) << file;
    EXPECT_GT(op.site.line, 0u);
  }
}

}  // namespace
}  // namespace tern
