// Qwen3 (dense and mixture of experts): RMSNorm on every query and key head before the rotary embedding, no biases.
#include "models/blocks.h"

namespace tern {
namespace {

Val attention(Builder& b, const Hparams& h, Val x) {
  const Val q = b.head_norm(b.linear(x, b.weight("attn_q")), h.head_dim, b.weight("attn_q_norm"), h.norm_eps);
  const Val k = b.head_norm(b.linear(x, b.weight("attn_k")), h.head_dim, b.weight("attn_k_norm"), h.norm_eps);
  const Val v = b.linear(x, b.weight("attn_v"));
  const Val a = b.attend(b.rope(q, h.rope, h.head_dim), b.rope(k, h.rope, h.head_dim), v,
                         {.heads = h.heads, .kv_heads = h.kv_heads});
  return b.linear(a, b.weight("attn_output"));
}

Plan build(const gguf::File& file, Val (*ffn)(Builder&, Val)) {
  Builder b(file);
  const Hparams h = read_hparams(b, /*neox=*/true);
  const Weight embedding = b.weight("token_embd");
  Val x = b.embed(embedding);
  for (int64_t i = 0; i < h.layers; ++i) {
    b.begin_layer(i);
    x = b.add(x, attention(b, h, b.rms_norm(x, b.weight("attn_norm"), h.norm_eps)));
    x = b.add(x, ffn(b, b.rms_norm(x, b.weight("ffn_norm"), h.norm_eps)));
  }
  return finish_with_head(b, x, embedding, h);
}

}  // namespace

Plan build_qwen3(const gguf::File& file) {
  return build(file, gated_ffn);
}
Plan build_qwen3moe(const gguf::File& file) {
  return build(file, expert_ffn);
}

}  // namespace tern
