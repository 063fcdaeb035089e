#include "engine/rewrite.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tiny_model.h"

namespace tern {
namespace {

using test::some_tokens;
using test::TinyFile;

/// Logits of a few tokens on ref, activations not rounded.
std::vector<float> logits_of(const std::string& path) {
  Model model({.path = path,
               .backend = BackendKind::kRef,
               .activations = ActivationMode::kF32,
               .limits = {.context = 64, .k = KvType::kF32, .v = KvType::kF32}});
  Sequence sequence = model.runner().start();
  const auto last = model.runner().prefill(sequence, some_tokens(12));
  return {last.begin(), last.end()};
}

double greatest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

TEST(Transcode, ToPq20AndBackComputesTheSameBits) {
  const TinyFile source("tiny-llama", TensorType::PTQ1_0);
  const std::string packed = source.folder / "pq2.gguf", back = source.folder / "back.gguf";
  const RewriteReport report = transcode_file(gguf::File::open(source.path), TensorType::PQ2_0, packed, {});
  EXPECT_GT(report.changed, 0);
  transcode_file(gguf::File::open(packed), TensorType::PTQ1_0, back, {});
  EXPECT_EQ(logits_of(source.path), logits_of(packed));
  const gguf::File a = gguf::File::open(source.path), b = gguf::File::open(back);
  for (const gguf::TensorInfo& t : a.tensors()) {
    const gguf::TensorInfo* u = b.find(t.name);
    ASSERT_NE(u, nullptr);
    ASSERT_TRUE(std::ranges::equal(a.bytes(t), b.bytes(*u))) << t.name;
  }
}

TEST(Transcode, RefusesAFormatThatIsNotTernaryAndAFileWithoutTernaryWeights) {
  const TinyFile ternary("tiny-llama", TensorType::TQ2_0), plain("tiny-llama", TensorType::F16);
  const std::string out = ternary.folder / "out.gguf";
  EXPECT_THROW(transcode_file(gguf::File::open(ternary.path), TensorType::Q8_0, out, {}), Error);
  EXPECT_THROW(transcode_file(gguf::File::open(plain.path), TensorType::TQ1_0, out, {}), Error);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Unfold, AFoldedHybridComputesTheSameAsAPlainFile) {
  const TinyFile folded("tiny-bonsai", TensorType::PTQ1_0);
  const std::string out = folded.folder / "plain.gguf";
  unfold_file(gguf::File::open(folded.path), TensorType::F32, out, {});
  const gguf::File plain = gguf::File::open(out);
  for (const auto& [key, value] : plain.metadata().items()) EXPECT_FALSE(key.starts_with("prism.")) << key;
  for (const gguf::TensorInfo& t : plain.tensors()) {
    // Stock llama.cpp reads BF16, in which ssm_alpha and ssm_beta of real files come: those are copied.
    const bool copied = t.name.find("ssm_alpha") != std::string::npos || t.name.find("ssm_beta") != std::string::npos;
    EXPECT_EQ(t.type, copied ? TensorType::BF16 : TensorType::F32) << t.name;
  }
  // f32 rounding of the rotation is all that differs.
  EXPECT_LT(greatest_difference(logits_of(folded.path), logits_of(out)), 1e-3);
}

TEST(Unfold, RefusesAFileThatIsNotFoldedAndOtherTargets) {
  const TinyFile plain("tiny-llama"), folded("tiny-bonsai", TensorType::PTQ1_0);
  const std::string out = plain.folder / "out.gguf";
  EXPECT_THROW(unfold_file(gguf::File::open(plain.path), TensorType::F32, out, {}), Error);
  EXPECT_THROW(unfold_file(gguf::File::open(folded.path), TensorType::Q4_0, out, {}), Error);
}

}  // namespace
}  // namespace tern
