#include "synth/tensors.h"

#include <set>

#include "synth/random.h"

namespace tern::synth {
namespace {

/// Adds the tensors of one block; names are relative to it.
class Block {
 public:
  Block(const Shape& shape, int64_t layer, std::vector<Tensor>& out)
      : s_(shape), prefix_("blk." + std::to_string(layer) + "."), out_(out) {}

  void add(std::string_view name, std::vector<int64_t> ne, Role role) {
    out_.push_back({prefix_ + std::string(name), std::move(ne), role});
  }
  void norm(std::string_view name, int64_t n) { add(std::string(name) + ".weight", {n}, Role::kNorm); }
  void matrix(const std::string& name, int64_t in, int64_t out) {
    add(name + ".weight", {in, out}, Role::kMatrix);
    const bool qkv = name == "attn_q" || name == "attn_k" || name == "attn_v";
    if (s_.biases == Biases::kAll || (qkv && s_.biases == Biases::kQkv)) add(name + ".bias", {out}, Role::kBias);
    if (s_.tensor_scales) add(name + ".scale", {1}, Role::kScale);
  }

 private:
  const Shape& s_;
  std::string prefix_;
  std::vector<Tensor>& out_;
};

bool is_bitnet(const Shape& s) {
  return s.architecture.starts_with("bitnet");
}

void add_attention(Block& b, const Shape& s) {
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const bool gated = s.v_heads > 0;  // the query projection of a hybrid also yields an output gate
  b.matrix("attn_q", s.embd, gated ? 2 * q : q);
  b.matrix("attn_k", s.embd, kv);
  b.matrix("attn_v", s.embd, kv);
  if (s.architecture.starts_with("qwen3")) {
    b.norm("attn_q_norm", s.head_dim);
    b.norm("attn_k_norm", s.head_dim);
  }
  if (is_bitnet(s)) b.norm("attn_sub_norm", q);
  b.matrix("attn_output", q, s.embd);
}

void add_delta_net(Block& b, const Shape& s) {
  const int64_t inner = s.v_heads * s.state_dim, channels = 2 * s.k_heads * s.state_dim + inner;
  b.matrix("attn_qkv", s.embd, channels);
  b.matrix("attn_gate", s.embd, inner);
  b.add("ssm_conv1d.weight", {s.taps, channels}, Role::kConv);
  b.add("ssm_dt.bias", {s.v_heads}, Role::kStepBias);
  b.add("ssm_a", {s.v_heads}, Role::kDecay);
  b.add("ssm_beta.weight", {s.embd, s.v_heads}, Role::kGate);
  b.add("ssm_alpha.weight", {s.embd, s.v_heads}, Role::kGate);
  b.norm("ssm_norm", s.state_dim);
  b.matrix("ssm_out", inner, s.embd);
}

void add_experts(Block& b, const Shape& s) {
  b.add("ffn_gate_inp.weight", {s.embd, s.experts}, Role::kRouter);
  if (s.merged_experts) {
    b.add("ffn_gate_up_exps.weight", {s.embd, 2 * s.expert_ffn, s.experts}, Role::kMatrix);
  } else {
    b.add("ffn_gate_exps.weight", {s.embd, s.expert_ffn, s.experts}, Role::kMatrix);
    b.add("ffn_up_exps.weight", {s.embd, s.expert_ffn, s.experts}, Role::kMatrix);
  }
  b.add("ffn_down_exps.weight", {s.expert_ffn, s.embd, s.experts}, Role::kMatrix);
  if (s.shared_ffn == 0) return;
  b.add("ffn_gate_inp_shexp.weight", {s.embd}, Role::kRouter);
  b.matrix("ffn_gate_shexp", s.embd, s.shared_ffn);
  b.matrix("ffn_up_shexp", s.embd, s.shared_ffn);
  b.matrix("ffn_down_shexp", s.shared_ffn, s.embd);
}

void add_ffn(Block& b, const Shape& s) {
  b.matrix("ffn_gate", s.embd, s.ffn);
  b.matrix("ffn_up", s.embd, s.ffn);
  if (is_bitnet(s)) b.norm("ffn_sub_norm", s.ffn);
  b.matrix("ffn_down", s.ffn, s.embd);
}

void set_u32(gguf::Metadata& m, const std::string& key, int64_t value) {
  m.set_u32(key, static_cast<uint32_t>(value));
}

void set_rope_keys(gguf::Metadata& m, const Shape& s, const std::string& p) {
  set_u32(m, p + "rope.dimension_count", s.rope_dims != 0 ? s.rope_dims : s.head_dim);
  m.set_f32(p + "rope.freq_base", static_cast<float>(s.rope_base));
  if (s.rope_scaling.empty()) return;
  m.set_string(p + "rope.scaling.type", std::string(s.rope_scaling));
  m.set_f32(p + "rope.scaling.factor", static_cast<float>(s.rope_factor));
  if (s.original_context != 0) set_u32(m, p + "rope.scaling.original_context_length", s.original_context);
}

void set_expert_keys(gguf::Metadata& m, const Shape& s, const std::string& p) {
  if (s.experts == 0) return;
  set_u32(m, p + "expert_count", s.experts);
  set_u32(m, p + "expert_used_count", s.experts_used);
  set_u32(m, p + "expert_feed_forward_length", s.expert_ffn);
  if (s.expert_scale != 0) m.set_f32(p + "expert_weights_scale", static_cast<float>(s.expert_scale));
  if (s.shared_ffn != 0) set_u32(m, p + "expert_shared_feed_forward_length", s.shared_ffn);
}

void set_delta_net_keys(gguf::Metadata& m, const Shape& s, const std::string& p) {
  if (s.v_heads == 0) return;
  // Quarters of the rotated pairs a position axis; text has the same position on each, so any cut will do.
  const int64_t pairs = s.rope_dims / 2;
  m.set_i32s(p + "rope.dimension_sections", {pairs - 2 * (pairs / 3), pairs / 3, pairs / 3, 0});
  set_u32(m, p + "full_attention_interval", s.full_interval);
  set_u32(m, p + "ssm.conv_kernel", s.taps);
  set_u32(m, p + "ssm.state_size", s.state_dim);
  set_u32(m, p + "ssm.group_count", s.k_heads);
  set_u32(m, p + "ssm.time_step_rank", s.v_heads);
  set_u32(m, p + "ssm.inner_size", s.v_heads * s.state_dim);
}

void set_hadamard_keys(gguf::Metadata& m, const Shape& s, const std::vector<Tensor>& tensors, uint64_t seed) {
  if (s.hadamard_block == 0) return;
  const std::string p = "prism.hadamard.";
  std::vector<std::string> folded, inverse;
  std::set<int64_t> widths;
  for (const Tensor& t : tensors) {
    const bool table = t.role == Role::kTable;
    if (!table && t.role != Role::kHead && t.role != Role::kMatrix) continue;
    (table ? inverse : folded).push_back(t.name);
    widths.insert(t.ne[0]);
  }
  std::vector<int64_t> values;
  for (const int64_t width : widths) {
    const Random random(seed, "signs of " + std::to_string(width));
    for (int64_t i = 0; i < width; ++i) values.push_back((random.bits(static_cast<uint64_t>(i)) & 1) != 0 ? 1 : -1);
  }
  set_u32(m, p + "version", s.tied ? 2 : 1);
  set_u32(m, p + "block_size", s.hadamard_block);
  m.set_string(p + "transform", "normalized-sylvester-walsh-hadamard");
  m.set_string(p + "axis", "input-last-dimension");
  m.set_string(p + "sign_mode", s.hadamard_signs ? "explicit" : "identity");
  m.set_strings(p + "weight_names", folded);
  m.set_strings(p + "inverse_weight_names", inverse);
  if (s.hadamard_signs) {
    m.set_i32s(p + "sign_widths", {widths.begin(), widths.end()});
    m.set_i32s(p + "sign_values", values);
  }
  if (s.v_heads != 0) m.set_bool(p + "gdn_v_grouped", true);
  if (s.tied) m.set_bool(p + "tied_output", true);
}

}  // namespace

std::vector<Tensor> tensors_of(const Shape& s) {
  std::vector<Tensor> out;
  out.push_back({"token_embd.weight", {s.embd, s.vocab}, Role::kTable});
  if (s.rope_divisors)
    out.push_back({"rope_freqs.weight", {(s.rope_dims != 0 ? s.rope_dims : s.head_dim) / 2}, Role::kDivisors});
  for (int64_t i = 0; i < s.layers; ++i) {
    Block b(s, i, out);
    b.norm("attn_norm", s.embd);
    s.recurrent_layer(i) ? add_delta_net(b, s) : add_attention(b, s);
    b.norm(s.v_heads > 0 ? "post_attention_norm" : "ffn_norm", s.embd);
    s.experts > 0 ? add_experts(b, s) : add_ffn(b, s);
  }
  out.push_back({"output_norm.weight", {s.embd}, Role::kNorm});
  if (!s.tied) out.push_back({"output.weight", {s.embd, s.vocab}, Role::kHead});
  return out;
}

void set_keys(gguf::Metadata& m, const Shape& s, const std::vector<Tensor>& tensors, uint64_t seed) {
  const std::string p = std::string(s.architecture) + ".";
  m.set_string("general.architecture", std::string(s.architecture));
  m.set_string("general.type", "model");
  m.set_string("general.name", "random weights of shape " + std::string(s.name));
  m.set_u32("general.quantization_version", 2);
  set_u32(m, p + "vocab_size", s.vocab);
  set_u32(m, p + "context_length", s.context);
  set_u32(m, p + "embedding_length", s.embd);
  set_u32(m, p + "block_count", s.layers);
  set_u32(m, p + "feed_forward_length", s.ffn);
  set_u32(m, p + "attention.head_count", s.heads);
  set_u32(m, p + "attention.head_count_kv", s.kv_heads);
  set_u32(m, p + "attention.key_length", s.head_dim);
  set_u32(m, p + "attention.value_length", s.head_dim);
  m.set_f32(p + "attention.layer_norm_rms_epsilon", static_cast<float>(s.norm_eps));
  if (!s.hidden_act.empty()) m.set_string(p + "hidden_act", std::string(s.hidden_act));
  set_rope_keys(m, s, p);
  set_expert_keys(m, s, p);
  set_delta_net_keys(m, s, p);
  set_hadamard_keys(m, s, tensors, seed);
}

}  // namespace tern::synth
