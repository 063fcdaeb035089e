// Plans of a few ops with random weights, written by hand: what op tests run on two backends.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "backend/matrix_weights.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "plan/plan.h"

namespace tern::test {

/// Collects weights and ops; open() writes the weights to a file and fills in their TensorInfos.
class OpPlan {
 public:
  static constexpr int64_t kTokens = 50;  // rows of every table
  explicit OpPlan(uint32_t seed = 1) : random_(seed) {}

  Weight weight(TensorType type, std::vector<int64_t> ne, WeightUse use, float centre = 0.0f) {
    int64_t rows = 1;
    for (size_t i = 1; i < ne.size(); ++i) rows *= ne[i];
    std::vector<std::byte> bytes;
    if (type == TensorType::F32) {
      std::normal_distribution<float> normal(centre, 1.0f);
      std::vector<float> x(static_cast<size_t>(ne[0] * rows));
      for (float& f : x) f = normal(random_);
      bytes.resize(x.size() * sizeof(float));
      std::memcpy(bytes.data(), x.data(), bytes.size());
    } else {
      bytes = random_tensor(type, rows, ne[0], Codes::kAny, random_);
    }
    const std::string name = "w" + std::to_string(tensors_.size());
    tensors_.push_back({name, type, ne, std::move(bytes)});
    plan.weights.push_back({.name = name, .info = {}, .use = use, .also_table = false});
    return {static_cast<int32_t>(plan.weights.size()) - 1};
  }
  Weight vector(int64_t n, float centre = 0.0f) { return weight(TensorType::F32, {n}, WeightUse::kVector, centre); }
  Weight matrix(TensorType type, int64_t cols, int64_t rows) { return weight(type, {cols, rows}, WeightUse::kMatrix); }

  Val val(ValInfo info) {
    plan.vals.push_back(info);
    return {static_cast<int32_t>(plan.vals.size()) - 1};
  }
  Val op(OpArgs args, std::vector<Val> inputs, int64_t cols) {
    const bool outputs =
        std::holds_alternative<PickRowsArgs>(args) || (!inputs.empty() && plan.info(inputs[0]).outputs_only);
    const Val out = val({.cols = cols, .outputs_only = outputs});
    plan.ops.push_back({.args = std::move(args), .inputs = std::move(inputs), .out = out, .out2 = {}, .site = {}});
    return out;
  }
  /// Random activations: the look-up of a table of its own.
  Val input(int64_t cols, float centre = 0.0f) {
    return op(EmbedArgs{weight(TensorType::F32, {cols, kTokens}, WeightUse::kTable, centre)}, {}, cols);
  }

  /// The file of the weights; `plan` is complete afterwards. `x` becomes the logits.
  gguf::File open(Val x) {
    namespace fs = std::filesystem;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "." + test->name() + ".gguf";
    std::replace(name.begin(), name.end(), '/', '_');
    const fs::path path = fs::path(::testing::TempDir()) / name;
    gguf::Metadata metadata;
    metadata.set_string("general.architecture", "test");
    {
      gguf::Writer writer(path.string(), metadata);
      for (const Tensor& t : tensors_) writer.add_tensor(t.name, t.type, t.ne);
      for (const Tensor& t : tensors_) writer.write_data(t.bytes);
      writer.finish();
    }
    gguf::File file = gguf::File::open(path.string());
    fs::remove(path);  // stays mapped
    for (PlanWeight& w : plan.weights) w.info = *file.find(w.name);
    plan.architecture = "test";
    plan.logits = plan.info(x).outputs_only ? x : op(PickRowsArgs{}, {x}, plan.info(x).cols);
    plan.n_vocab = plan.n_tokens = plan.info(x).cols;
    plan.n_layers = 1;
    return file;
  }

  Plan plan;

 private:
  struct Tensor {
    std::string name;
    TensorType type;
    std::vector<int64_t> ne;
    std::vector<std::byte> bytes;
  };
  std::mt19937 random_;
  std::vector<Tensor> tensors_;
};

}  // namespace tern::test
