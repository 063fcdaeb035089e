#include "models/blocks.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace tern {

namespace {

/// The pair index at which a full turn count of `beta` over the original context is reached (YaRN's correction dims).
double yarn_pair(double dims, double context, double beta, double base) {
  return dims * std::log(context / (beta * 2 * std::numbers::pi)) / (2 * std::log(base));
}

void apply_yarn(const Builder& b, RopeTable& t, double base, double factor) {
  const auto dims = static_cast<double>(2 * t.freq.size());
  const auto original =
      static_cast<double>(b.get_int("rope.scaling.original_context_length", b.require_int("context_length")));
  const double low =
      std::max(0.0, std::floor(yarn_pair(dims, original, b.get_float("rope.scaling.yarn_beta_fast", 32), base)));
  const double high =
      std::min(dims - 1, std::ceil(yarn_pair(dims, original, b.get_float("rope.scaling.yarn_beta_slow", 1), base)));
  const double extrapolate = b.get_float("rope.scaling.yarn_ext_factor", 1);
  for (size_t i = 0; i < t.freq.size(); ++i) {
    const double y = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    const double mix = (1 - std::clamp(y, 0.0, 1.0)) * extrapolate;
    t.freq[i] = t.freq[i] / factor * (1 - mix) + t.freq[i] * mix;
  }
  t.magnitude = static_cast<float>(b.get_float("rope.scaling.attn_factor", 1) * (1 + 0.1 * std::log(factor)));
}

/// Keys that repeat what the shape of a tensor says. Nothing needs them, but a file in which the two differ was put
/// together from parts of two models, or its keys are lies.
struct StatedExtent {
  const char* key;
  const char* tensor;
  int axis;
  bool per_kv_head = false;
};
constexpr StatedExtent kStated[] = {
    {"vocab_size", "token_embd", 1},
    {"embedding_length", "token_embd", 0},
    {"attention.key_length", "attn_k", 1, true},
    {"attention.value_length", "attn_v", 1, true},
    {"feed_forward_length", "ffn_gate", 1},
    {"feed_forward_length", "ffn_up", 1},
    {"feed_forward_length", "ffn_down", 0},
    {"expert_feed_forward_length", "ffn_gate_exps", 1},
    {"expert_feed_forward_length", "ffn_up_exps", 1},
    {"expert_feed_forward_length", "ffn_down_exps", 0},
    {"expert_shared_feed_forward_length", "ffn_down_shexp", 0},
    {"expert_count", "ffn_gate_inp", 1},
    {"expert_count", "ffn_down_exps", 2},
};
constexpr int64_t kMostContext = int64_t{1} << 30;

/// The row's key against its tensor at the builder's place (outside the blocks, or in one), where the file has both.
void check_stated(const Builder& b, const StatedExtent& row, int64_t layer, int64_t kv_heads) {
  const gguf::TensorInfo* t = b.peek(row.tensor);
  if (t == nullptr || !b.metadata().has(b.architecture() + "." + row.key)) return;
  const int64_t stated = b.layer_int(row.key, layer), has = t->ne[static_cast<size_t>(row.axis)];
  const int64_t heads = row.per_kv_head ? kv_heads : 1;
  if (has % heads == 0 && has / heads == stated) return;
  fail(ErrorCode::kBadFile, "{}.{} is {}, but '{}' has {}{}: the file contradicts itself", b.architecture(), row.key,
       stated, t->name, has, row.per_kv_head ? fmt::format(" rows for {} KV heads", heads) : "");
}

void check_stated_extents(Builder& b, const Hparams& h) {
  for (int64_t i = -1; i < h.layers; ++i) {  // -1: what is outside the blocks
    if (i >= 0) b.begin_layer(i);
    for (const StatedExtent& row : kStated) check_stated(b, row, i, h.kv_heads);
  }
  b.end_layers();
}

}  // namespace

RopeTable make_rope(const Builder& b, int64_t head_dim, bool neox, const std::vector<float>* divisors) {
  const int64_t dims = b.get_int("rope.dimension_count", head_dim);
  if (dims <= 0 || dims % 2 != 0 || dims > head_dim) {
    fail(ErrorCode::kBadFile, "{}.rope.dimension_count is {} for heads of {}", b.architecture(), dims, head_dim);
  }
  const double base = b.get_float("rope.freq_base", 10000.0);
  if (!(base > 0 && std::isfinite(base))) fail(ErrorCode::kBadFile, "{}.rope.freq_base is {}", b.architecture(), base);
  RopeTable t;
  t.neox = neox;
  for (int64_t i = 0; i < dims / 2; ++i)
    t.freq.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  if (divisors) {
    if (divisors->size() != t.freq.size()) {
      fail(ErrorCode::kBadFile, "rope_freqs.weight has {} values for {} rotated pairs", divisors->size(),
           t.freq.size());
    }
    for (size_t i = 0; i < t.freq.size(); ++i) t.freq[i] /= (*divisors)[i];
  }
  const std::string key = b.architecture() + ".rope.scaling.type";
  const std::string_view type = b.metadata().get_string(key).value_or("none");
  const double factor = b.get_float("rope.scaling.factor", b.get_float("rope.scale_linear", 0));
  const bool implied_linear = !b.metadata().has(key) && factor != 0;  // old files: a factor without a type
  if (type == "none" && !implied_linear) return t;
  if (!(factor > 0 && std::isfinite(factor))) {
    if (type == "linear" && factor == 0) return t;  // llama.cpp reads an absent factor as no scaling
    fail(ErrorCode::kBadFile, "{} is '{}' but rope.scaling.factor is {}", key, type, factor);
  }
  if (type == "linear" || implied_linear) {
    for (double& f : t.freq) f /= factor;
  } else if (type == "yarn") {
    apply_yarn(b, t, base, factor);
  } else {
    fail(ErrorCode::kUnsupported, "{} is '{}'; none, linear and yarn are implemented", key, type);
  }
  return t;
}

void refuse_unimplemented(const Builder& b) {
  for (const char* key :
       {"attention.sliding_window", "attention.max_alibi_bias", "attention.clamp_kqv", "attention.scale",
        "attn_logit_softcapping", "final_logit_softcapping", "use_parallel_residual"}) {
    b.refuse_unless(key, 0);
  }
  for (const char* key : {"logit_scale", "residual_scale", "embedding_scale"}) b.refuse_unless(key, 1);
  if (b.has("rope_factors_long") || b.has("rope_factors_short")) {
    fail(ErrorCode::kUnsupported, "the file has LongRoPE factors (rope_factors_long/short), which are not implemented");
  }
}

Hparams read_hparams(const Builder& b, bool neox) {
  Hparams h;
  h.layers = b.require_int("block_count");
  const int64_t width = b.require_int("embedding_length");
  h.heads = b.layer_int("attention.head_count", 0);
  h.kv_heads = b.layer_int("attention.head_count_kv", 0, h.heads);
  h.norm_eps = b.require_float("attention.layer_norm_rms_epsilon");
  if (h.layers <= 0 || h.heads <= 0 || h.kv_heads <= 0 || h.heads % h.kv_heads != 0) {
    fail(ErrorCode::kBadFile, "{}: {} layers, {} heads and {} KV heads make no model", b.architecture(), h.layers,
         h.heads, h.kv_heads);
  }
  if (h.layers > b.tensor_count()) {
    fail(ErrorCode::kBadFile, "{}.block_count is {}, but the file has {} tensors", b.architecture(), h.layers,
         b.tensor_count());
  }
  if (!(h.norm_eps >= 0 && h.norm_eps < 1))
    fail(ErrorCode::kBadFile, "{}.attention.layer_norm_rms_epsilon is {}", b.architecture(), h.norm_eps);
  h.head_dim = b.get_int("attention.key_length", width / h.heads);
  for (int64_t i = 1; i < h.layers; ++i) {
    if (b.layer_int("attention.head_count", i) != h.heads ||
        b.layer_int("attention.head_count_kv", i, h.heads) != h.kv_heads) {
      fail(ErrorCode::kUnsupported, "{}: head counts that differ between layers are not implemented (layer {})",
           b.architecture(), i);
    }
  }
  const int64_t context = b.get_int("context_length", 1);
  if (context < 1 || context > kMostContext)
    fail(ErrorCode::kBadFile, "{}.context_length is {}, which no model was trained for", b.architecture(), context);
  h.rope = make_rope(b, h.head_dim, neox, nullptr);
  refuse_unimplemented(b);
  return h;
}

Val rotary_attention(Builder& b, const Hparams& h, Val x) {
  const Val q = b.rope(b.linear(x, b.weight("attn_q")), h.rope, h.head_dim);
  const Val k = b.rope(b.linear(x, b.weight("attn_k")), h.rope, h.head_dim);
  const Val v = b.linear(x, b.weight("attn_v"));
  return b.linear(b.attend(q, k, v, {.heads = h.heads, .kv_heads = h.kv_heads}), b.weight("attn_output"));
}

Val gated_ffn(Builder& b, Val x) {
  const Val gate = b.linear(x, b.weight("ffn_gate"));
  const Val up = b.linear(x, b.weight("ffn_up"));
  return b.linear(b.glu(gate, up, Gate::kSilu), b.weight("ffn_down"));
}

Val expert_ffn(Builder& b, Val x) {
  const int64_t used = b.require_int("expert_used_count");
  const double scale = b.get_float("expert_weights_scale", 0);
  const Val logits = b.linear(x, b.weight("ffn_gate_inp"));
  const auto routes = b.router(logits, used, /*normalise=*/true, scale == 0 ? 1.0 : scale);
  Val gate, up;
  if (b.has("ffn_gate_up_exps")) {
    const Val both = b.expert_linear(x, b.weight("ffn_gate_up_exps"), routes.ids);
    const int64_t width = b.cols(both) / used / 2;
    gate = b.take(both, 0, width, 2 * width);
    up = b.take(both, width, width, 2 * width);
  } else {
    gate = b.expert_linear(x, b.weight("ffn_gate_exps"), routes.ids);
    up = b.expert_linear(x, b.weight("ffn_up_exps"), routes.ids);
  }
  const Val down = b.expert_linear(b.glu(gate, up, Gate::kSilu), b.weight("ffn_down_exps"), routes.ids);
  return b.expert_sum(down, routes.weights);
}

Plan finish_with_head(Builder& b, Val x, Weight embedding, const Hparams& h) {
  b.end_layers();
  check_stated_extents(b, h);
  const Val n = b.rms_norm(b.pick_rows(x), b.weight("output_norm"), h.norm_eps);
  const Weight head = b.find_weight("output");
  return b.finish(b.linear(n, head ? head : embedding), n, h.layers);
}

}  // namespace tern
