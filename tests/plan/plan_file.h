// A model file of zeros for tests of plans: right keys and shapes of a tiny model, to be spoilt one thing at a time.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/refusal.h"
#include "gguf/temp_folder.h"
#include "gguf/writer.h"
#include "models/registry.h"
#include "synth/tensors.h"

namespace tern::test {

using gguf::testing::expect_refused;

struct PlanFile {
  explicit PlanFile(const synth::Shape& shape) : tensors(synth::tensors_of(shape)) {
    synth::set_keys(keys, shape, tensors, 1);
  }

  synth::Tensor& tensor(std::string_view name) {
    const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
    EXPECT_NE(it, tensors.end()) << name;
    return *it;
  }
  void add(std::string name, std::vector<int64_t> ne) { tensors.push_back({std::move(name), std::move(ne)}); }
  void remove(std::string_view name) {
    tensor(name);
    std::erase_if(tensors, [&](const auto& t) { return t.name == name; });
  }

  gguf::File open() const {
    const std::string path = folder / "model.gguf";
    gguf::Writer writer(path, keys);
    int64_t weights = 0;
    for (const synth::Tensor& t : tensors) {
      writer.add_tensor(t.name, TensorType::F32, t.ne);
      int64_t n = 1;
      for (const int64_t e : t.ne) n *= e;
      EXPECT_EQ(n % 8, 0) << t.name << " would need padding";
      weights += n;
    }
    writer.write_data(std::vector<std::byte>(static_cast<size_t>(weights) * sizeof(float)));
    writer.finish();
    return gguf::File::open(path);
  }
  Plan plan() const { return build_plan(open()); }

  gguf::testing::TempFolder folder;
  gguf::Metadata keys;
  std::vector<synth::Tensor> tensors;
};

/// A dense model of two blocks.
inline synth::Shape small(std::string_view architecture) {
  return {.name = "small",
          .architecture = architecture,
          .embd = 64,
          .layers = 2,
          .ffn = 128,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .vocab = 32,
          .context = 256};
}

/// A folded hybrid: block 0 a delta net with two value heads a key head, block 1 full attention.
inline synth::Shape small_bonsai() {
  synth::Shape s = small("qwen35");
  s.full_interval = 2;
  s.k_heads = 4;
  s.v_heads = 8;
  s.state_dim = 16;
  s.rope_dims = 8;
  s.hadamard_block = 32;
  return s;
}

}  // namespace tern::test
