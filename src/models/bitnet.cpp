// BitNet b1.58: a Llama-shaped decoder with a sub-norm before each output projection and a squared-ReLU gate, trained
// with int8 activations, one scale a token. Three spellings: `bitnet-b1.58` and `bitnet-25` (squared ReLU), `bitnet`
// (the 2024 models: SiLU, unless the file's hidden_act says "relu2"). Ternary weights are a property of the file.
#include "base/error.h"
#include "models/blocks.h"

namespace tern {
namespace {

Gate activation(const Builder& b) {
  if (b.architecture() != "bitnet") return Gate::kRelu2;
  const std::string_view act = b.metadata().get_string("bitnet.hidden_act").value_or("silu");
  if (act == "relu2") return Gate::kRelu2;
  if (act == "silu") return Gate::kSilu;
  fail(ErrorCode::kUnsupported, "bitnet.hidden_act is '{}'; silu and relu2 are implemented", act);
}

Val attention(Builder& b, const Hparams& h, Val x) {
  const Val q = b.rope(b.linear(x, b.weight("attn_q")), h.rope, h.head_dim);
  const Val k = b.rope(b.linear(x, b.weight("attn_k")), h.rope, h.head_dim);
  const Val v = b.linear(x, b.weight("attn_v"));
  const Val a = b.attend(q, k, v, {.heads = h.heads, .kv_heads = h.kv_heads});
  return b.linear(b.rms_norm(a, b.weight("attn_sub_norm"), h.norm_eps), b.weight("attn_output"));
}

Val ffn(Builder& b, const Hparams& h, Gate gate_kind, Val x) {
  const Val gate = b.linear(x, b.weight("ffn_gate"));
  const Val m = b.glu(gate, b.linear(x, b.weight("ffn_up")), gate_kind);
  return b.linear(b.rms_norm(m, b.weight("ffn_sub_norm"), h.norm_eps), b.weight("ffn_down"));
}

}  // namespace

Plan build_bitnet(const gguf::File& file) {
  Builder b(file);
  Hparams h = read_hparams(b, /*neox=*/true);
  const auto divisors = b.read_floats("rope_freqs.weight");
  h.rope = make_rope(b, h.head_dim, /*neox=*/true, divisors ? &*divisors : nullptr);
  const Gate gate = activation(b);
  b.set_ternary_row_activations();
  const Weight embedding = b.weight("token_embd");
  Val x = b.embed(embedding);
  for (int64_t i = 0; i < h.layers; ++i) {
    b.begin_layer(i);
    x = b.add(x, attention(b, h, b.rms_norm(x, b.weight("attn_norm"), h.norm_eps)));
    x = b.add(x, ffn(b, h, gate, b.rms_norm(x, b.weight("ffn_norm"), h.norm_eps)));
  }
  return finish_with_head(b, x, embedding, h);
}

}  // namespace tern
