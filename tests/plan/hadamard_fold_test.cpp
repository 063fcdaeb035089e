// Every reason to refuse `prism.hadamard.*` metadata, one test each, and what must be accepted.
#include "plan/hadamard_fold.h"

#include <gtest/gtest.h>

#include "plan/plan_file.h"

namespace tern {
namespace {

using namespace test;

constexpr const char* kNames = "prism.hadamard.weight_names";
constexpr const char* kInverse = "prism.hadamard.inverse_weight_names";
constexpr const char* kWidths = "prism.hadamard.sign_widths";
constexpr const char* kValues = "prism.hadamard.sign_values";

/// A valid folded file; each test spoils one thing.
class HadamardFoldTest : public testing::Test {
 protected:
  void expect_fold_refused(std::string_view text, ErrorCode code = ErrorCode::kBadFile) const {
    const gguf::File opened = file.open();
    expect_refused([&] { HadamardFold::from_file(opened); }, code, text);
  }
  HadamardFold fold() const { return HadamardFold::from_file(file.open()).value(); }
  void add_name(const char* key, const std::string& name) {
    std::vector<std::string> names = *file.keys.get_strings(key);
    names.push_back(name);
    file.keys.set_strings(key, names);
  }
  void edit_values(const char* key, const std::function<void(std::vector<int64_t>&)>& edit) {
    std::vector<int64_t> v = *file.keys.get_ints(key);
    edit(v);
    file.keys.set_i32s(key, v);
  }
  void make_tied() {
    file.remove("output.weight");
    std::vector<std::string> names = *file.keys.get_strings(kNames);
    std::erase(names, "output.weight");
    file.keys.set_strings(kNames, names);
    file.keys.set_u32("prism.hadamard.version", 2);
    file.keys.set_bool("prism.hadamard.tied_output", true);
  }
  PlanFile file{small_bonsai()};
};

TEST_F(HadamardFoldTest, ReadsAValidFile) {
  const HadamardFold f = fold();
  EXPECT_EQ(f.block_size(), 32);
  EXPECT_TRUE(f.gdn_v_grouped());
  EXPECT_FALSE(f.tied_output());
  EXPECT_TRUE(f.folded("blk.0.ssm_out.weight"));
  EXPECT_TRUE(f.folded("output.weight"));
  EXPECT_FALSE(f.folded("blk.0.ssm_alpha.weight"));
  EXPECT_FALSE(f.folded("token_embd.weight"));
  EXPECT_TRUE(f.inverse("token_embd.weight"));
  EXPECT_EQ(f.signs(64).size(), 64u);
  EXPECT_EQ(f.signs(128).size(), 128u);
  EXPECT_TRUE(f.signs(32).empty());
}

TEST_F(HadamardFoldTest, IsAbsentWithoutKeys) {
  synth::Shape plain = small_bonsai();
  plain.hadamard_block = 0;
  EXPECT_FALSE(HadamardFold::from_file(PlanFile(plain).open()).has_value());
}

TEST_F(HadamardFoldTest, AcceptsEveryIntegerWidth) {
  using gguf::ValueType;
  for (const ValueType type : {ValueType::I8, ValueType::I16, ValueType::I64}) {
    file.keys.set(kValues, {ValueType::ARRAY, gguf::Array{type, *file.keys.get_ints(kValues)}});
    file.keys.set("prism.hadamard.block_size", {ValueType::I64, int64_t{32}});
    EXPECT_EQ(fold().signs(64).size(), 64u);
  }
}

TEST_F(HadamardFoldTest, IdentityHasNoSigns) {
  file.keys.set_string("prism.hadamard.sign_mode", "identity");
  file.keys.erase(kWidths);
  file.keys.erase(kValues);
  EXPECT_FALSE(fold().explicit_signs());
}

TEST_F(HadamardFoldTest, Version2TiesTheHead) {
  make_tied();
  const HadamardFold f = fold();
  EXPECT_TRUE(f.tied_output());
  EXPECT_TRUE(f.folded("token_embd.weight"));
  EXPECT_TRUE(f.inverse("token_embd.weight"));
}

TEST_F(HadamardFoldTest, RefusesUnknownKeys) {
  file.keys.set_u32("prism.hadamard.permutation", 1);
  expect_fold_refused("unknown key prism.hadamard.permutation", ErrorCode::kUnsupported);
}

TEST_F(HadamardFoldTest, RefusesKeysWithoutVersion) {
  file.keys.erase("prism.hadamard.version");
  expect_fold_refused("the file has prism.hadamard.* keys but no prism.hadamard.version");
}

TEST_F(HadamardFoldTest, RefusesOtherVersions) {
  for (const uint32_t version : {0u, 3u}) {
    file.keys.set_u32("prism.hadamard.version", version);
    expect_fold_refused("prism.hadamard.version is " + std::to_string(version), ErrorCode::kUnsupported);
  }
}

TEST_F(HadamardFoldTest, RefusesOtherArchitectures) {
  file.keys.set_string("general.architecture", "qwen2");
  expect_fold_refused("a Hadamard fold is not defined for architecture 'qwen2'", ErrorCode::kUnsupported);
}

TEST_F(HadamardFoldTest, RefusesBlocksThatAreNoPowerOfTwo) {
  for (const uint32_t block : {0u, 48u}) {
    file.keys.set_u32("prism.hadamard.block_size", block);
    expect_fold_refused("block_size is " + std::to_string(block) + "; it must be a power of two");
  }
}

TEST_F(HadamardFoldTest, RefusesOtherTransforms) {
  file.keys.set_string("prism.hadamard.transform", "hartley");
  expect_fold_refused("transform is 'hartley'; only 'normalized-sylvester-walsh-hadamard' is implemented",
                      ErrorCode::kUnsupported);
}

TEST_F(HadamardFoldTest, RefusesOtherAxes) {
  file.keys.set_string("prism.hadamard.axis", "output");
  expect_fold_refused("axis is 'output'; only 'input-last-dimension' is implemented", ErrorCode::kUnsupported);
}

TEST_F(HadamardFoldTest, RefusesOtherSignModes) {
  file.keys.set_string("prism.hadamard.sign_mode", "random");
  expect_fold_refused("sign_mode is 'random'; 'identity' and 'explicit' are implemented", ErrorCode::kUnsupported);
}

TEST_F(HadamardFoldTest, RefusesMissingKeysByName) {
  for (const char* key : {"block_size", "transform", "axis", "sign_mode"}) {
    PlanFile f(small_bonsai());
    f.keys.erase("prism.hadamard." + std::string(key));
    const gguf::File opened = f.open();
    expect_refused([&] { HadamardFold::from_file(opened); }, ErrorCode::kBadFile, key);
  }
}

TEST_F(HadamardFoldTest, RefusesExplicitSignsWithoutWidths) {
  file.keys.set_i32s(kWidths, {});
  expect_fold_refused("sign_mode is 'explicit' but prism.hadamard.sign_widths is absent or empty");
  file.keys.erase(kWidths);
  expect_fold_refused("sign_mode is 'explicit' but prism.hadamard.sign_widths is absent or empty");
}

TEST_F(HadamardFoldTest, RefusesWidthsThatAreNoMultipleOfTheBlock) {
  for (const int64_t width : {int64_t{0}, int64_t{-64}, int64_t{48}}) {
    edit_values(kWidths, [&](auto& w) { w[0] = width; });
    expect_fold_refused("sign_widths has " + std::to_string(width) + "; a width must be a positive multiple of");
  }
}

TEST_F(HadamardFoldTest, RefusesTooFewSigns) {
  edit_values(kValues, [](auto& v) { v.pop_back(); });
  expect_fold_refused("sign_values has 191 values, too few for width 128 at value 64");
  file.keys.erase(kValues);
  expect_fold_refused("sign_values has 0 values, too few for width 64 at value 0");
}

TEST_F(HadamardFoldTest, RefusesLeftoverSigns) {
  edit_values(kValues, [](auto& v) { v.push_back(1); });
  expect_fold_refused("sign_values has 193 values, but the widths account for 192");
}

TEST_F(HadamardFoldTest, RefusesSignsOtherThanOne) {
  edit_values(kValues, [](auto& v) { v[70] = 0; });
  expect_fold_refused("sign_values[70] is 0; a sign is +1 or -1");
}

TEST_F(HadamardFoldTest, RefusesAWidthListedTwice) {
  edit_values(kWidths, [](auto& w) { w.push_back(64); });
  edit_values(kValues, [](auto& v) { v.insert(v.end(), 64, 1); });
  expect_fold_refused("sign_widths lists width 64 twice");
}

TEST_F(HadamardFoldTest, RefusesEmptyWeightNames) {
  file.keys.set_strings(kNames, {});
  expect_fold_refused("weight_names is absent or empty");
  file.keys.erase(kNames);
  expect_fold_refused("weight_names is absent or empty");
}

TEST_F(HadamardFoldTest, RefusesANameListedTwice) {
  add_name(kNames, "output.weight");
  expect_fold_refused("weight_names lists 'output.weight' twice");
}

TEST_F(HadamardFoldTest, RefusesAnInverseNameListedTwice) {
  add_name(kInverse, "token_embd.weight");
  expect_fold_refused("inverse_weight_names lists 'token_embd.weight' twice");
}

TEST_F(HadamardFoldTest, RefusesANameInBothLists) {
  add_name(kNames, "token_embd.weight");
  expect_fold_refused("'token_embd.weight' is in both weight_names and inverse_weight_names");
}

TEST_F(HadamardFoldTest, RefusesOtherInverseNames) {
  add_name(kInverse, "blk.0.ffn_up.weight");
  expect_fold_refused("inverse_weight_names lists 'blk.0.ffn_up.weight'; only token_embd.weight is read by row",
                      ErrorCode::kUnsupported);
}

TEST_F(HadamardFoldTest, RefusesKindsThatCannotBeFolded) {
  for (const char* name : {"blk.0.ssm_alpha.weight", "blk.0.attn_norm.weight", "blk.x.ffn_up.weight",
                           "blk..ffn_up.weight", "blk.0.ffn_up.bias", "ffn_up.weight", "output_norm.weight"}) {
    PlanFile f(small_bonsai());
    std::vector<std::string> names = *f.keys.get_strings(kNames);
    names.emplace_back(name);
    f.keys.set_strings(kNames, names);
    const gguf::File opened = f.open();
    expect_refused([&] { HadamardFold::from_file(opened); }, ErrorCode::kUnsupported,
                   "weight_names lists '" + std::string(name) + "', a kind of weight that cannot be folded");
  }
}

TEST_F(HadamardFoldTest, RefusesANameThatIsNotInTheFile) {
  add_name(kNames, "blk.7.ffn_up.weight");
  expect_fold_refused("the Hadamard fold lists 'blk.7.ffn_up.weight', which is not in the file");
}

TEST_F(HadamardFoldTest, RefusesColumnsThatAreNoMultipleOfTheBlock) {
  file.tensor("blk.0.ffn_down.weight").ne = {48, 64};
  expect_fold_refused("blk.0.ffn_down.weight: 48 columns are not a multiple of the Hadamard block 32");
}

TEST_F(HadamardFoldTest, RefusesAWidthWithoutSigns) {
  file.tensor("blk.0.ffn_down.weight").ne = {96, 64};
  expect_fold_refused("blk.0.ffn_down.weight: no sign vector for its width 96 in prism.hadamard.sign_widths");
}

TEST_F(HadamardFoldTest, RefusesABadHeadGeometry) {
  const auto expect_geometry = [&](uint32_t k_heads, uint32_t v_heads) {
    file.keys.set_u32("qwen35.ssm.group_count", k_heads);
    file.keys.set_u32("qwen35.ssm.time_step_rank", v_heads);
    expect_fold_refused("blk.0.ssm_out.weight: " + std::to_string(k_heads) + " key heads and " +
                        std::to_string(v_heads) + " value heads do not divide its 128 columns");
  };
  expect_geometry(0, 8);
  expect_geometry(3, 8);
  expect_geometry(3, 9);
}

TEST_F(HadamardFoldTest, RefusesVersion1WithATiedOutput) {
  file.keys.set_bool("prism.hadamard.tied_output", true);
  expect_fold_refused("version 1 with prism.hadamard.tied_output true");
}

TEST_F(HadamardFoldTest, RefusesVersion2WithoutATiedOutput) {
  file.keys.set_u32("prism.hadamard.version", 2);
  expect_fold_refused("version 2 with prism.hadamard.tied_output false");
}

TEST_F(HadamardFoldTest, RefusesATiedOutputBesideAHead) {
  file.keys.set_u32("prism.hadamard.version", 2);
  file.keys.set_bool("prism.hadamard.tied_output", true);
  expect_fold_refused("tied_output is true, but the file has output.weight");
}

TEST_F(HadamardFoldTest, RefusesATiedOutputWithoutAnInverseTable) {
  make_tied();
  file.keys.erase(kInverse);
  expect_fold_refused("tied_output is true, but prism.hadamard.inverse_weight_names does not list token_embd.weight");
}

TEST_F(HadamardFoldTest, RefusesARotatedTableWithoutAHeadInVersion1) {
  make_tied();
  file.keys.set_u32("prism.hadamard.version", 1);
  file.keys.erase("prism.hadamard.tied_output");
  expect_fold_refused("token_embd.weight is rotated but the file has no output.weight");
}

}  // namespace
}  // namespace tern
