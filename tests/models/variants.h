// The tiny models that the tests of families run: every family, and every variant that a file of it may have.
#pragma once
#include <string>
#include <vector>

#include "synth/shape.h"

namespace tern::test {

struct Variant {
  std::string name;
  synth::Shape shape;
};

/// `family` changed by `edit`.
template <typename Edit>
Variant variant(std::string_view name, std::string_view family, Edit edit) {
  synth::Shape s = synth::find_shape(family);
  edit(s);
  return {std::string(name), s};
}

inline std::vector<Variant> families_as_they_are() {
  std::vector<Variant> out;
  for (const synth::Shape& s : synth::shapes()) {
    if (!s.name.starts_with("tiny-")) continue;
    std::string name(s.name.substr(5));
    for (char& c : name) c = c == '-' || c == '.' ? '_' : c;  // what GoogleTest allows in a name
    out.push_back({name, s});
  }
  return out;
}

inline std::vector<Variant> family_variants() {
  using synth::Shape;
  return {
      variant("llama_biases", "tiny-llama", [](Shape& s) { s.biases = synth::Biases::kAll; }),
      variant("llama_tied", "tiny-llama", [](Shape& s) { s.tied = true; }),
      variant("llama_rope_divisors", "tiny-llama", [](Shape& s) { s.rope_divisors = true; }),
      variant("llama_rope_linear", "tiny-llama",
              [](Shape& s) {
                s.rope_scaling = "linear";
                s.rope_factor = 4;
              }),
      variant("llama_rope_yarn", "tiny-llama",
              [](Shape& s) {
                s.rope_scaling = "yarn";
                s.rope_factor = 4;
                s.original_context = 128;
              }),
      variant("llama_without_gqa", "tiny-llama", [](Shape& s) { s.kv_heads = s.heads; }),
      variant("qwen2_tied", "tiny-qwen2", [](Shape& s) { s.tied = true; }),
      variant("qwen3_wide_heads", "tiny-qwen3", [](Shape& s) { s.head_dim = 128; }),
      variant("qwen3_yarn", "tiny-qwen3",
              [](Shape& s) {
                s.rope_scaling = "yarn";
                s.rope_factor = 2;
                s.original_context = 256;
              }),
      variant("qwen35_tied", "tiny-qwen35", [](Shape& s) { s.tied = true; }),
      variant("qwen35_as_many_k_as_v_heads", "tiny-qwen35", [](Shape& s) { s.k_heads = s.v_heads; }),
      variant("qwen35moe_merged_experts", "tiny-qwen35moe", [](Shape& s) { s.merged_experts = true; }),
      variant("qwen35moe_scaled_experts", "tiny-qwen35moe", [](Shape& s) { s.expert_scale = 2.5; }),
      variant("bitnet_tensor_scales", "tiny-bitnet", [](Shape& s) { s.tensor_scales = true; }),
  };
}

}  // namespace tern::test
