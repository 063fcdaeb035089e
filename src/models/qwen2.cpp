// Qwen2 / Qwen2.5: Llama's block with NEOX rotary pairs and biases on q, k, v (read where the file has them).
#include "models/blocks.h"

namespace tern {
Plan build_qwen2(const gguf::File& file) {
  Builder b(file);
  const Hparams h = read_hparams(b, /*neox=*/true);
  const Weight embedding = b.weight("token_embd");
  Val x = b.embed(embedding);
  for (int64_t i = 0; i < h.layers; ++i) {
    b.begin_layer(i);
    x = b.add(x, rotary_attention(b, h, b.rms_norm(x, b.weight("attn_norm"), h.norm_eps)));
    x = b.add(x, gated_ffn(b, b.rms_norm(x, b.weight("ffn_norm"), h.norm_eps)));
  }
  return finish_with_head(b, x, embedding, h);
}

}  // namespace tern
