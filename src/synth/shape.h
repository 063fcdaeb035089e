// The shapes of synthetic models: sizes and variants of the families, real ones for benchmarks and tiny ones for tests.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gguf/types.h"

namespace tern::synth {

/// Which linears of a block carry a bias.
enum class Biases : uint8_t { kNone, kQkv, kAll };

/// Everything that decides which tensors and keys a file has. Plain data: a test takes a row of the table and changes
/// what it wants to vary.
struct Shape {
  std::string_view name{};
  std::string_view architecture{};
  std::string_view pre = "llama-bpe";  // pre-tokenizer
  int64_t embd = 0, layers = 0, ffn = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0, context = 4096;
  double rope_base = 10000, norm_eps = 1e-6;
  bool tied = false;  // no output.weight

  // Mixture of experts, where experts > 0.
  int64_t experts = 0, experts_used = 0, expert_ffn = 0, shared_ffn = 0;
  bool merged_experts = false;  // ffn_gate_up_exps instead of gate and up
  double expert_scale = 0;      // of the sum of experts; 0: no key
  // Gated delta net, where v_heads > 0: all layers but every full_interval-th.
  int64_t full_interval = 4, k_heads = 0, v_heads = 0, state_dim = 0, taps = 4;
  int64_t rope_dims = 0;  // rotated dims of a head; 0: all
  // Walsh-Hadamard fold of all matrices, where > 0 (docs/formats.md).
  int64_t hadamard_block = 0;
  bool hadamard_signs = true;

  // Variants that a file of the family may have.
  Biases biases = Biases::kNone;
  bool rope_divisors = false;             // rope_freqs.weight
  std::string_view rope_scaling{};        // "linear", "yarn"
  double rope_factor = 1;                 // of rope_scaling
  int64_t original_context = 0;           // of yarn
  bool tensor_scales = false;             // <matrix>.scale beside every matrix of a block
  std::string_view hidden_act{};          // key <architecture>.hidden_act
  std::optional<TensorType> embd_type{};  // of embedding and head when the caller names none; absent: the matrices'

  bool recurrent_layer(int64_t layer) const { return v_heads > 0 && (layer + 1) % full_interval != 0; }
};

std::span<const Shape> shapes() noexcept;
/// kInvalidArgument listing the names when there is none such.
const Shape& find_shape(std::string_view name);

}  // namespace tern::synth
