// Qwen3.5 (dense and mixture of experts): most layers mix tokens with a gated delta net (a recurrent matrix state per
// head), every `full_attention_interval`-th with gated full attention. Definition and sources: docs/formats.md.
#include "base/error.h"
#include "models/blocks.h"

namespace tern {
namespace {

/// Rotary attention whose query projection also yields a sigmoid output gate, interleaved a head: [query | gate].
Val full_attention(Builder& b, const Hparams& h, Val x) {
  const Val both = b.linear(x, b.weight("attn_q"));
  const Val q =
      b.head_norm(b.take(both, 0, h.head_dim, 2 * h.head_dim), h.head_dim, b.weight("attn_q_norm"), h.norm_eps);
  const Val gate = b.take(both, h.head_dim, h.head_dim, 2 * h.head_dim);
  const Val k = b.head_norm(b.linear(x, b.weight("attn_k")), h.head_dim, b.weight("attn_k_norm"), h.norm_eps);
  const Val v = b.linear(x, b.weight("attn_v"));
  const Val a = b.attend(b.rope(q, h.rope, h.head_dim), b.rope(k, h.rope, h.head_dim), v,
                         {.heads = h.heads, .kv_heads = h.kv_heads});
  return b.linear(b.glu(gate, a, Gate::kSigmoid), b.weight("attn_output"));
}

Builder::Recurrent recurrent_shape(const Builder& b) {
  const Builder::Recurrent r{.k_heads = b.require_int("ssm.group_count"),
                             .v_heads = b.require_int("ssm.time_step_rank"),
                             .head_dim = b.require_int("ssm.state_size"),
                             .taps = b.require_int("ssm.conv_kernel")};
  const int64_t inner = b.require_int("ssm.inner_size");
  if (r.k_heads <= 0 || r.v_heads <= 0 || r.v_heads % r.k_heads != 0 || r.taps < 2 || inner != r.v_heads * r.head_dim) {
    fail(ErrorCode::kBadFile, "{}: {} key heads and {} value heads of {} with {} taps do not make an inner size of {}",
         b.architecture(), r.k_heads, r.v_heads, r.head_dim, r.taps, inner);
  }
  return r;
}

Val delta_net(Builder& b, const Hparams& h, const Builder::Recurrent& r, Val x) {
  const Val u = b.linear(x, b.weight("attn_qkv"));
  const Val z = b.linear(x, b.weight("attn_gate"));
  const Val beta = b.linear(x, b.weight("ssm_beta"));
  const Val alpha = b.linear(x, b.weight("ssm_alpha"));
  const int32_t state = b.recurrent_state(r);
  const Val c = b.conv_silu(u, b.weight("ssm_conv1d"), state);
  const int64_t k_cols = r.k_heads * r.head_dim, v_cols = r.v_heads * r.head_dim;
  const Val q = b.l2_norm(b.take(c, 0, k_cols, b.cols(c)), r.head_dim, h.norm_eps);
  const Val k = b.l2_norm(b.take(c, k_cols, k_cols, b.cols(c)), r.head_dim, h.norm_eps);
  const Val v = b.take(c, 2 * k_cols, v_cols, b.cols(c));
  const Val o = b.delta_rule(
      {.q = q, .k = k, .v = v, .alpha = alpha, .beta = beta, .a = b.weight("ssm_a."), .dt = b.weight("ssm_dt.bias")},
      state, r);
  return b.linear(b.glu(z, b.head_norm(o, r.head_dim, b.weight("ssm_norm"), h.norm_eps), Gate::kSilu),
                  b.weight("ssm_out"));
}

/// Routed experts plus one that every token takes, behind a sigmoid of its own.
Val ffn_with_shared_expert(Builder& b, Val x) {
  const Val routed = expert_ffn(b, x);
  const Val m = b.glu(b.linear(x, b.weight("ffn_gate_shexp")), b.linear(x, b.weight("ffn_up_shexp")), Gate::kSilu);
  const Val shared = b.linear(m, b.weight("ffn_down_shexp"));
  return b.add(routed, b.glu(b.linear(x, b.weight("ffn_gate_inp_shexp")), shared, Gate::kSigmoid));
}

bool is_recurrent(const Builder& b, int64_t layer) {
  if (const auto list = b.metadata().get_ints(b.architecture() + ".attention.recurrent_layers")) {
    if (static_cast<size_t>(layer) >= list->size()) {
      fail(ErrorCode::kBadFile, "{}.attention.recurrent_layers has {} entries, none for layer {}", b.architecture(),
           list->size(), layer);
    }
    return (*list)[static_cast<size_t>(layer)] != 0;
  }
  const int64_t interval = b.get_int("full_attention_interval", 4);
  if (interval <= 0) fail(ErrorCode::kBadFile, "{}.full_attention_interval is {}", b.architecture(), interval);
  return (layer + 1) % interval != 0;
}

Plan build(const gguf::File& file, Val (*ffn)(Builder&, Val)) {
  Builder b(file);
  Hparams h = read_hparams(b, /*neox=*/true);
  const int64_t drafts = b.get_int("nextn_predict_layers", 0);
  if (drafts < 0 || drafts >= h.layers) fail(ErrorCode::kBadFile, "{} draft layers of {}", drafts, h.layers);
  h.layers -= drafts;
  for (int64_t i = h.layers; i < h.layers + drafts; ++i) b.leave_unused("blk." + std::to_string(i) + ".");
  const Builder::Recurrent r = recurrent_shape(b);
  const Weight embedding = b.weight("token_embd");
  Val x = b.embed(embedding);
  for (int64_t i = 0; i < h.layers; ++i) {
    b.begin_layer(i);
    const Val n = b.rms_norm(x, b.weight("attn_norm"), h.norm_eps);
    x = b.add(x, is_recurrent(b, i) ? delta_net(b, h, r, n) : full_attention(b, h, n));
    x = b.add(x, ffn(b, b.rms_norm(x, b.weight("post_attention_norm"), h.norm_eps)));
  }
  return finish_with_head(b, x, embedding, h);
}

}  // namespace

Plan build_qwen35(const gguf::File& file) {
  return build(file, gated_ffn);
}
Plan build_qwen35moe(const gguf::File& file) {
  return build(file, ffn_with_shared_expert);
}

}  // namespace tern
