// Llama: pre-norm decoder, rotary attention (interleaved pairs), SiLU-gated FFN. Optional biases, frequency divisors
// (`rope_freqs.weight`, Llama 3.1) and a tied head are properties of the file.
#include "models/blocks.h"

namespace tern {
Plan build_llama(const gguf::File& file) {
  Builder b(file);
  Hparams h = read_hparams(b, /*neox=*/false);
  b.refuse_unless("expert_count", 0);
  const auto divisors = b.read_floats("rope_freqs.weight");
  h.rope = make_rope(b, h.head_dim, /*neox=*/false, divisors ? &*divisors : nullptr);
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
