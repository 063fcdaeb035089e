// Synthetic models: the same bytes from any number of threads, weights distributed as promised, real tokenizers.
#include "synth/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gguf/file.h"
#include "gguf/refusal.h"
#include "gguf/temp_folder.h"
#include "quant/format.h"
#include "synth/tensors.h"
#include "synth/vocabulary.h"
#include "text/tokenizer.h"

namespace tern::synth {
namespace {

using gguf::testing::expect_refused;
using gguf::testing::read_all;

class Synth : public testing::Test {
 protected:
  gguf::File make(std::string_view shape, TensorType type) const {
    const std::string path = folder / "model.gguf";
    write_model(path, find_shape(shape), {.type = type, .threads = 1});
    return gguf::File::open(path);
  }
  static std::vector<float> values(const gguf::File& file, std::string_view name) {
    const gguf::TensorInfo& t = *file.find(name);
    std::vector<float> out(static_cast<size_t>(t.elements()));
    quant::find_format(t.type)->decode(file.bytes(t).data(), out.data(), t.elements(),
                                       quant::tensor_scale(t.type, file.bytes(t)));
    return out;
  }
  gguf::testing::TempFolder folder;
};

TEST_F(Synth, BytesDoNotDependOnThreads) {
  const std::string one = folder / "1.gguf", three = folder / "3.gguf";
  write_model(one, find_shape("tiny-qwen35moe"), {.type = TensorType::Q4_0, .threads = 1});
  write_model(three, find_shape("tiny-qwen35moe"), {.type = TensorType::Q4_0, .threads = 3});
  EXPECT_EQ(read_all(one), read_all(three));
}

TEST_F(Synth, SeedsGiveOtherWeights) {
  const std::string one = folder / "1.gguf", two = folder / "2.gguf";
  write_model(one, find_shape("tiny-llama"), {.type = TensorType::Q8_0, .seed = 1, .threads = 1});
  write_model(two, find_shape("tiny-llama"), {.type = TensorType::Q8_0, .seed = 2, .threads = 1});
  EXPECT_NE(values(gguf::File::open(one), "output.weight"), values(gguf::File::open(two), "output.weight"));
}

TEST_F(Synth, ReportsWhatItWroteAndItsProgress) {
  uint64_t last = 0, total = 0;
  const Options options{.type = TensorType::I2_S, .threads = 1, .progress = [&](uint64_t done, uint64_t of) {
                          EXPECT_GT(done, last);
                          last = done;
                          total = of;
                        }};
  const Report report = write_model(folder / "model.gguf", find_shape("tiny-bitnet-25"), options);
  const gguf::File file = gguf::File::open(folder / "model.gguf");
  uint64_t bytes = 0, weights = 0;
  for (const gguf::TensorInfo& t : file.tensors()) {
    bytes += t.nbytes;
    weights += static_cast<uint64_t>(t.elements());
  }
  EXPECT_EQ(report.tensors, file.tensors().size());
  EXPECT_EQ(report.weights, weights);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(last, bytes);
  EXPECT_EQ(total, bytes);
}

TEST_F(Synth, FormatsOfOneSeedHoldTheSameModel) {
  const std::vector<float> exact = values(make("tiny-llama", TensorType::F32), "blk.1.ffn_down.weight");
  const std::vector<float> rounded = values(make("tiny-llama", TensorType::Q8_0), "blk.1.ffn_down.weight");
  ASSERT_EQ(exact.size(), rounded.size());
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(exact[i], rounded[i], 1e-3) << i;
}

TEST_F(Synth, RealWeightsAreCentredWithTheDeviationOfTheirInputs) {
  const std::vector<float> w = values(make("tiny-llama", TensorType::F32), "blk.0.ffn_down.weight");
  double sum = 0, squares = 0;
  for (const float v : w) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto n = static_cast<double>(w.size());
  EXPECT_NEAR(sum / n, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / n), 1 / std::sqrt(512.0), 2e-4);
}

TEST_F(Synth, TernaryWeightsAre30_40_30UnderOneScale) {
  for (const TensorType type :
       {TensorType::TQ1_0, TensorType::TQ2_0, TensorType::I2_S, TensorType::PQ2_0, TensorType::PTQ1_0}) {
    const std::vector<float> w = values(make("tiny-bitnet", type), "blk.0.ffn_down.weight");
    const float scale = std::abs(*std::max_element(w.begin(), w.end()));
    size_t plus = 0, minus = 0;
    for (const float v : w) {
      ASSERT_TRUE(v == 0 || std::abs(v) == scale) << v;
      plus += v > 0 ? 1 : 0;
      minus += v < 0 ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(plus) / static_cast<double>(w.size()), 0.3, 0.01);
    EXPECT_NEAR(static_cast<double>(minus) / static_cast<double>(w.size()), 0.3, 0.01);
    EXPECT_NEAR(scale * std::sqrt(0.6), 1 / std::sqrt(512.0), 1e-4);
  }
}

TEST_F(Synth, LargeTernaryTensorsHoldTheSameModelInEveryFormat) {
  Shape shape = find_shape("tiny-bitnet");
  shape.layers = 1;
  shape.ffn = 4352;  // 1.1 M weights a matrix: put together from patterns
  std::vector<float> first;
  for (const TensorType type : {TensorType::PTQ1_0, TensorType::TQ2_0, TensorType::I2_S}) {
    const std::string path = folder / "model.gguf";
    write_model(path, shape, {.type = type, .threads = 2});
    std::vector<float> w = values(gguf::File::open(path), "blk.0.ffn_up.weight");
    const auto zeros = static_cast<double>(std::count(w.begin(), w.end(), 0.0f));
    EXPECT_NEAR(zeros / static_cast<double>(w.size()), 0.4, 0.01);
    const std::set<std::vector<float>> rows = [&] {
      std::set<std::vector<float>> out;
      for (auto at = w.begin(); at != w.end(); at += 256) out.emplace(at, at + 256);
      return out;
    }();
    EXPECT_GT(rows.size(), 2500u) << "rows repeat too often";
    if (first.empty()) first = w;
    EXPECT_EQ(w, first);
  }
}

TEST_F(Synth, EmbeddingTypeCanDiffer) {
  const std::string path = folder / "model.gguf";
  write_model(path, find_shape("tiny-llama"), {.type = TensorType::TQ2_0, .embd_type = TensorType::Q6_K, .threads = 1});
  const gguf::File file = gguf::File::open(path);
  EXPECT_EQ(file.find("token_embd.weight")->type, TensorType::Q6_K);
  EXPECT_EQ(file.find("output.weight")->type, TensorType::Q6_K);
  EXPECT_EQ(file.find("blk.0.attn_q.weight")->type, TensorType::TQ2_0);
}

TEST_F(Synth, TokenizersAreRealOnes) {
  for (const char* shape : {"tiny-llama", "tiny-qwen2", "tiny-qwen35"}) {
    const auto tokenizer = text::Tokenizer::from_metadata(make(shape, TensorType::Q8_0).metadata());
    const std::string text = "You may reproduce and distribute copies of the Work: \xE6\xBC\xA2\xE5\xAD\x97.";
    const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = false});
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_LT(ids.size(), text.size() * 2 / 3) << "no merges were applied";
    EXPECT_EQ(tokenizer.n_vocab(), 512);
    EXPECT_TRUE(tokenizer.is_end_of_generation(tokenizer.eos().value()));
    EXPECT_TRUE(tokenizer.is_end_of_generation(tokenizer.find("<|im_end|>").value()));
  }
}

TEST(SynthVocabulary, IsPaddedToItsSize) {
  gguf::Metadata keys;
  set_vocabulary(keys, "qwen2", 5000);
  const std::vector<std::string>& tokens = *keys.get_strings("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.size(), 5000u);
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 5000u);
  EXPECT_GT(keys.get_strings("tokenizer.ggml.merges")->size(), 400u);
  EXPECT_EQ(text::Tokenizer::from_metadata(keys).n_vocab(), 5000);
}

TEST(SynthVocabulary, TooSmallIsRefused) {
  gguf::Metadata keys;
  expect_refused([&] { set_vocabulary(keys, "qwen2", 259); }, ErrorCode::kInvalidArgument,
                 "a vocabulary of 259 has no room for 256 bytes and 4 control tokens");
}

TEST_F(Synth, FormatsWithoutAnEncoderAreRefusedByName) {
  const std::string path = folder / "model.gguf";
  expect_refused([&] { write_model(path, find_shape("tiny-llama"), {.type = TensorType::IQ4_XS, .threads = 1}); },
                 ErrorCode::kUnsupported, "there is no encoder for IQ4_XS; there is one for F32, F16");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SynthShapes, UnknownOnesAreRefusedWithTheKnown) {
  expect_refused([] { find_shape("gpt-5"); }, ErrorCode::kInvalidArgument,
                 "there is no shape 'gpt-5'; known are llama-1b,");
}

TEST(SynthShapes, BitnetHasTheTensorsOfThePublishedFile) {
  EXPECT_EQ(tensors_of(find_shape("bitnet-2b")).size(), 332u);  // docs/formats.md
}

TEST(SynthShapes, BonsaiHasTheTensorsOfThePublishedFiles) {
  const std::vector<Tensor> tensors = tensors_of(find_shape("bonsai-27b"));
  EXPECT_EQ(tensors.size(), 851u);
  // The published PQ2_0 and PTQ1_0 files differ by 7206168928 - 5946648928 bytes, 6 a 128 weights.
  int64_t weights = 0;
  for (const Tensor& t : tensors) {
    if (t.role == Role::kMatrix || t.role == Role::kTable || t.role == Role::kHead) weights += t.ne[0] * t.ne[1];
  }
  EXPECT_EQ(weights / 128 * 6, 7206168928 - 5946648928);

  gguf::Metadata keys;
  set_keys(keys, find_shape("bonsai-27b"), tensors, 1);
  EXPECT_EQ(keys.get_strings("prism.hadamard.weight_names")->size(), 401u);
  EXPECT_EQ(keys.get_ints("prism.hadamard.sign_widths"), (std::vector<int64_t>{5120, 6144, 17408}));
  EXPECT_EQ(keys.get_ints("prism.hadamard.sign_values")->size(), 28672u);
}

}  // namespace
}  // namespace tern::synth
