// What more than two families share: attention geometry, rotary tables, the gated FFN, embedding and head. No flags: a
// family that needs something else writes it itself.
#pragma once
#include "plan/builder.h"

namespace tern {

struct Hparams {
  int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  double norm_eps = 0;
  RopeTable rope;
};

/// Reads the keys that every decoder has; `neox` is the pairing of the family's rotary embedding. kBadFile for values
/// that make no model.
Hparams read_hparams(const Builder& b, bool neox);
/// The frequencies after `rope.scaling.*` (none, linear, YaRN) and optional per-pair divisors (`rope_freqs.weight`).
/// Source of the rules: llama.cpp's ggml_rope_ext and llama-context.cpp; YaRN, arXiv 2309.00071.
RopeTable make_rope(const Builder& b, int64_t head_dim, bool neox, const std::vector<float>* divisors);
/// llama.cpp keys that change the arithmetic of some family and that none of ours implements: refused unless neutral.
void refuse_unimplemented(const Builder& b);

/// Causal attention with rotary q and k, then the output projection.
Val rotary_attention(Builder& b, const Hparams& h, Val x);
/// W_down(silu(W_gate x) * W_up x).
Val gated_ffn(Builder& b, Val x);
/// Softmax router over `expert_count` experts, each a gated FFN, summed.
Val expert_ffn(Builder& b, Val x);
/// Output norm, then output.weight or the tied embedding, for the rows whose logits are wanted. kBadFile when a
/// key states another extent than its tensor has (vocab_size, feed_forward_length, ...).
Plan finish_with_head(Builder& b, Val x, Weight embedding, const Hparams& h);

}  // namespace tern
