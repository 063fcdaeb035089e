#include "synth/shape.h"

#include "base/error.h"

namespace tern::synth {
namespace {

/// Bonsai 2 27B: Qwen3.5 27B in the rotated basis (docs/formats.md).
constexpr Shape bonsai(std::string_view name, int64_t layers) {
  return {.name = name,
          .architecture = "qwen35",
          .pre = "qwen35",
          .embd = 5120,
          .layers = layers,
          .ffn = 17408,
          .heads = 24,
          .kv_heads = 4,
          .head_dim = 256,
          .vocab = 248320,
          .context = 262144,
          .rope_base = 1e7,
          .k_heads = 16,
          .v_heads = 48,
          .state_dim = 128,
          .rope_dims = 64,
          .hadamard_block = 1024};
}

// Tiny shapes: one a family, each matrix a multiple of 256 columns so that every format fits.
constexpr Shape tiny(std::string_view name, std::string_view architecture, std::string_view pre) {
  return {.name = name,
          .architecture = architecture,
          .pre = pre,
          .embd = 256,
          .layers = 2,
          .ffn = 512,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .vocab = 512,
          .context = 512};
}

constexpr Shape tiny_tied(Shape s) {
  s.tied = true;
  return s;
}

constexpr Shape tiny_moe(Shape s) {
  s.experts = 8;
  s.experts_used = 2;
  s.expert_ffn = 256;
  return s;
}

constexpr Shape tiny_hybrid(Shape s) {
  s.layers = 4;
  s.heads = 2;
  s.kv_heads = 1;
  s.head_dim = 128;
  s.rope_dims = 32;
  s.k_heads = 2;
  s.v_heads = 4;
  s.state_dim = 64;
  return s;
}

constexpr Shape tiny_shared_experts(Shape s) {
  s = tiny_moe(tiny_hybrid(s));
  s.shared_ffn = 256;
  return s;
}

constexpr Shape tiny_bonsai() {
  Shape s = tiny_hybrid(tiny("tiny-bonsai", "qwen35", "qwen35"));
  s.hadamard_block = 128;
  return s;
}

constexpr Shape tiny_qwen2() {
  Shape s = tiny("tiny-qwen2", "qwen2", "qwen2");
  s.biases = Biases::kQkv;
  return s;
}

constexpr Shape kShapes[] = {
    {.name = "llama-1b",
     .architecture = "llama",
     .embd = 2048,
     .layers = 16,
     .ffn = 8192,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 64,
     .vocab = 128256,
     .context = 131072,
     .rope_base = 500000,
     .norm_eps = 1e-5,
     .tied = true},
    {.name = "llama-8b",
     .architecture = "llama",
     .embd = 4096,
     .layers = 32,
     .ffn = 14336,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 128256,
     .context = 8192,
     .rope_base = 500000,
     .norm_eps = 1e-5},
    {.name = "qwen2-1.5b",
     .architecture = "qwen2",
     .pre = "qwen2",
     .embd = 1536,
     .layers = 28,
     .ffn = 8960,
     .heads = 12,
     .kv_heads = 2,
     .head_dim = 128,
     .vocab = 151936,
     .context = 32768,
     .rope_base = 1e6,
     .tied = true,
     .biases = Biases::kQkv},
    {.name = "qwen3-0.6b",
     .architecture = "qwen3",
     .pre = "qwen2",
     .embd = 1024,
     .layers = 28,
     .ffn = 3072,
     .heads = 16,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 151936,
     .context = 40960,
     .rope_base = 1e6,
     .tied = true},
    {.name = "qwen3-moe",
     .architecture = "qwen3moe",
     .pre = "qwen2",
     .embd = 2048,
     .layers = 48,
     .ffn = 6144,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 151936,
     .context = 40960,
     .rope_base = 1e6,
     .experts = 128,
     .experts_used = 8,
     .expert_ffn = 768},
    {.name = "qwen3-moe-small",  // the same widths; fewer layers, experts and words
     .architecture = "qwen3moe",
     .pre = "qwen2",
     .embd = 2048,
     .layers = 8,
     .ffn = 6144,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 32768,
     .context = 40960,
     .rope_base = 1e6,
     .experts = 32,
     .experts_used = 8,
     .expert_ffn = 768},
    {.name = "qwen35-0.8b",
     .architecture = "qwen35",
     .pre = "qwen35",
     .embd = 1024,
     .layers = 24,
     .ffn = 3584,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 256,
     .vocab = 248320,
     .context = 262144,
     .rope_base = 1e7,
     .tied = true,
     .k_heads = 16,
     .v_heads = 16,
     .state_dim = 128,
     .rope_dims = 64},
    {.name = "qwen35-moe",
     .architecture = "qwen35moe",
     .pre = "qwen35",
     .embd = 2048,
     .layers = 40,
     .ffn = 5632,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .vocab = 248320,
     .context = 262144,
     .rope_base = 1e7,
     .experts = 256,
     .experts_used = 8,
     .expert_ffn = 512,
     .shared_ffn = 512,
     .k_heads = 16,
     .v_heads = 32,
     .state_dim = 128,
     .rope_dims = 64},
    // The spelling that llama.cpp reads as well: same tensors, SiLU for the gate.
    {.name = "bitnet-2b",
     .architecture = "bitnet",
     .embd = 2560,
     .layers = 30,
     .ffn = 6912,
     .heads = 20,
     .kv_heads = 5,
     .head_dim = 128,
     .vocab = 128256,
     .rope_base = 500000,
     .norm_eps = 1e-5,
     .tied = true,
     .embd_type = TensorType::Q6_K},
    bonsai("bonsai-27b", 64),
    bonsai("bonsai-27b/8", 8),  // an eighth of the layers, the same widths
    tiny("tiny-llama", "llama", "llama-bpe"),
    tiny_qwen2(),
    tiny("tiny-qwen3", "qwen3", "qwen2"),
    tiny_moe(tiny("tiny-qwen3moe", "qwen3moe", "qwen2")),
    tiny_hybrid(tiny("tiny-qwen35", "qwen35", "qwen35")),
    tiny_shared_experts(tiny("tiny-qwen35moe", "qwen35moe", "qwen35")),
    tiny_bonsai(),
    tiny_tied(tiny("tiny-bitnet", "bitnet", "llama-bpe")),
    tiny_tied(tiny("tiny-bitnet-b1.58", "bitnet-b1.58", "llama-bpe")),
    tiny("tiny-bitnet-25", "bitnet-25", "llama-bpe"),
};

}  // namespace

std::span<const Shape> shapes() noexcept {
  return kShapes;
}

const Shape& find_shape(std::string_view name) {
  std::string known;
  for (const Shape& s : kShapes) {
    if (s.name == name) return s;
    known += (known.empty() ? "" : ", ") + std::string(s.name);
  }
  fail(ErrorCode::kInvalidArgument, "there is no shape '{}'; known are {}", name, known);
}

}  // namespace tern::synth
