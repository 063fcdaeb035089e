#include "plan/builder.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace tern {
namespace {

std::string shape_text(const gguf::TensorInfo& t) {
  std::string s = "[" + std::to_string(t.ne[0]);
  for (uint32_t i = 1; i < t.n_dims; ++i) s += ", " + std::to_string(t.ne[i]);
  return s + "]";
}

}  // namespace

// ---- metadata ----

Builder::Builder(const gguf::File& file) : file_(file), fold_(HadamardFold::from_file(file)) {
  plan_.architecture = std::string(file.metadata().require_string("general.architecture"));
}

int64_t Builder::require_int(std::string_view key) const {
  return metadata().require_int(architecture() + "." + std::string(key));
}
int64_t Builder::get_int(std::string_view key, int64_t otherwise) const {
  return metadata().get_int(architecture() + "." + std::string(key)).value_or(otherwise);
}
double Builder::require_float(std::string_view key) const {
  return metadata().require_float(architecture() + "." + std::string(key));
}
double Builder::get_float(std::string_view key, double otherwise) const {
  return metadata().get_float(architecture() + "." + std::string(key)).value_or(otherwise);
}

int64_t Builder::layer_int(std::string_view key, int64_t layer, std::optional<int64_t> otherwise) const {
  const std::string full = architecture() + "." + std::string(key);
  const gguf::Value* v = metadata().find(full);
  if (!v && otherwise) return *otherwise;
  if (!v || v->type != gguf::ValueType::ARRAY) return metadata().require_int(full);
  const auto list = metadata().get_ints(full);
  if (layer < 0 || static_cast<size_t>(layer) >= list->size()) {
    fail(ErrorCode::kBadFile, "{} has {} entries, none for layer {}", full, list->size(), layer);
  }
  return (*list)[static_cast<size_t>(layer)];
}

void Builder::refuse_unless(std::string_view key, double neutral) const {
  const std::string full = architecture() + "." + std::string(key);
  const gguf::Value* v = metadata().find(full);
  if (!v) return;
  double got = 0;
  if (v->type == gguf::ValueType::F32 || v->type == gguf::ValueType::F64) {
    got = *metadata().get_float(full);
  } else if (v->type == gguf::ValueType::BOOL) {
    got = *metadata().get_bool(full) ? 1 : 0;
  } else {
    got = static_cast<double>(*metadata().get_int(full));
  }
  if (got != neutral) fail(ErrorCode::kUnsupported, "{} = {} is not implemented for this architecture", full, got);
}

// ---- weights ----

std::string Builder::full_name(std::string_view name) const {
  std::string n = layer_ >= 0 ? "blk." + std::to_string(layer_) + "." + std::string(name) : std::string(name);
  // "attn_q" means attn_q.weight; a trailing dot means that the name in files has no suffix ("ssm_a.").
  if (name.ends_with('.')) return n.substr(0, n.size() - 1);
  return name.ends_with(".bias") ? n : n + ".weight";
}

const gguf::TensorInfo* Builder::peek(std::string_view name) const {
  return file_.find(full_name(name));
}

bool Builder::has(std::string_view name) const {
  return peek(name) != nullptr;
}

Weight Builder::add_weight(const gguf::TensorInfo& info) {
  if (const auto it = by_name_.find(info.name); it != by_name_.end()) return it->second;
  const Weight w{static_cast<int32_t>(plan_.weights.size())};
  plan_.weights.push_back({.name = info.name, .info = info});
  by_name_.emplace(info.name, w);
  claimed_.insert(info.name);
  return w;
}

Weight Builder::weight(std::string_view name, Loc loc) {
  const std::string full = full_name(name);
  const gguf::TensorInfo* t = file_.find(full);
  if (!t) {
    fail(ErrorCode::kBadFile, "architecture '{}' needs tensor '{}', which is not in the file ({}:{})", architecture(),
         full, loc.file_name(), loc.line());
  }
  return add_weight(*t);
}

Weight Builder::find_weight(std::string_view name) {
  const gguf::TensorInfo* t = file_.find(full_name(name));
  return t ? add_weight(*t) : Weight{};
}

void Builder::leave_unused(std::string_view prefix) {
  for (const gguf::TensorInfo& t : file_.tensors()) {
    if (t.name.starts_with(prefix) && claimed_.insert(t.name).second) plan_.unused_tensors.push_back(t.name);
  }
}

std::optional<std::vector<float>> Builder::read_floats(std::string_view full_name) {
  const gguf::TensorInfo* t = file_.find(full_name);
  if (!t) return std::nullopt;
  if (t->type != TensorType::F32)
    fail(ErrorCode::kUnsupported, "{} is {}; F32 is expected", t->name, type_info(t->type).name);
  claimed_.insert(t->name);
  const std::span<const std::byte> bytes = file_.bytes(*t);
  std::vector<float> v(bytes.size() / sizeof(float));
  std::memcpy(v.data(), bytes.data(), v.size() * sizeof(float));
  return v;
}

void Builder::use_as(Weight w, WeightUse use) {
  PlanWeight& pw = plan_.weights[static_cast<size_t>(w.id)];
  if (used_weights_.insert(w.id).second) {
    pw.use = use;
  } else if (pw.use == WeightUse::kTable && use == WeightUse::kMatrix) {
    pw.use = use;
    pw.also_table = true;
  } else {
    CHECK(pw.use == use, "{} used in two ways", pw.name);
  }
}

float Builder::scale_of(const std::string& weight_name) {
  const std::string name = weight_name.substr(0, weight_name.size() - std::strlen("weight")) + "scale";
  const auto values = read_floats(name);
  if (!values) return 1.0f;
  if (values->size() != 1)
    fail(ErrorCode::kUnsupported, "{} has {} values; one scale for the tensor is implemented", name, values->size());
  return (*values)[0];
}

// ---- ops ----

void Builder::expect(bool ok, Loc loc, const std::string& what) const {
  if (!ok) {
    const std::string where = layer_ >= 0 ? " (block " + std::to_string(layer_) + ")" : "";
    fail(ErrorCode::kBadFile, "architecture '{}'{}: {} [{}:{}]", architecture(), where, what, loc.file_name(),
         loc.line());
  }
}

Val Builder::push(OpArgs args, std::vector<Val> inputs, int64_t out_cols, Loc loc) {
  const bool outputs_only = !inputs.empty() && plan_.info(inputs[0]).outputs_only;
  const Val out{static_cast<int32_t>(plan_.vals.size())};
  plan_.vals.push_back({.cols = out_cols, .outputs_only = outputs_only});
  plan_.ops.push_back(
      {.args = args, .inputs = std::move(inputs), .out = out, .site = {layer_, loc.file_name(), loc.line()}});
  return out;
}

int32_t Builder::sign_index(int64_t width) {
  const std::vector<float>& s = fold_->signs(width);
  if (s.empty()) return -1;
  for (size_t i = 0; i < plan_.signs.size(); ++i) {
    if (plan_.signs[i] == s) return static_cast<int32_t>(i);
  }
  plan_.signs.push_back(s);
  return static_cast<int32_t>(plan_.signs.size() - 1);
}

Val Builder::rotated(Val x, Weight w, Loc loc) {
  const PlanWeight& pw = plan_.info(w);
  if (!fold_ || !fold_->folded(pw.name)) return x;
  const int64_t width = pw.info.ne[0];
  int64_t n_k = 1, n_v = 1;
  if (fold_->gdn_v_grouped() && pw.name.ends_with(".ssm_out.weight")) {
    n_k = require_int("ssm.group_count");
    n_v = require_int("ssm.time_step_rank");
  }
  const bool permuted = n_v > n_k;
  const auto key = std::make_tuple(x.id, width, permuted);
  if (const auto it = rotations_.find(key); it != rotations_.end()) return it->second;
  Val v = x;
  if (permuted)
    v = push(PermuteHeadsArgs{.k_heads = n_k, .rep = n_v / n_k, .head_dim = width / n_v}, {v}, cols(v), loc);
  v = push(RotateArgs{.signs = sign_index(width), .block = fold_->block_size(), .width = width}, {v}, cols(v), loc);
  rotations_.emplace(key, v);
  return v;
}

Val Builder::embed(Weight table, Loc loc) {
  const gguf::TensorInfo& t = info(table);
  use_as(table, WeightUse::kTable);
  plan_.n_embd = t.ne[0];
  plan_.n_vocab = t.ne[1];
  const Val v = push(EmbedArgs{table}, {}, t.ne[0], loc);
  if (!fold_ || !fold_->inverse(plan_.info(table).name)) return v;
  return push(RotateArgs{.signs = sign_index(t.ne[0]), .block = fold_->block_size(), .width = t.ne[0], .inverse = true},
              {v}, t.ne[0], loc);
}

Val Builder::rms_norm(Val x, Weight w, double eps, Loc loc) {
  return head_norm(x, cols(x), w, eps, loc);
}

Val Builder::head_norm(Val x, int64_t head_dim, Weight w, double eps, Loc loc) {
  const int64_t size = info(w).elements();
  expect(size == head_dim && cols(x) % head_dim == 0, loc,
         fmt::format("rms_norm '{}' of {} values over {} columns in groups of {}", plan_.info(w).name, size, cols(x),
                     head_dim));
  use_as(w, WeightUse::kVector);
  return push(RmsNormArgs{.weight = w, .eps = static_cast<float>(eps), .group = head_dim}, {x}, cols(x), loc);
}

Val Builder::l2_norm(Val x, int64_t group, double eps, Loc loc) {
  expect(group > 0 && cols(x) % group == 0, loc, fmt::format("l2_norm groups of {} over {} columns", group, cols(x)));
  return push(L2NormArgs{.eps = static_cast<float>(eps), .group = group}, {x}, cols(x), loc);
}

Val Builder::linear(Val x, Weight w, Loc loc) {
  const PlanWeight pw = plan_.info(w);
  expect(pw.info.n_dims <= 2 && pw.info.ne[0] == cols(x), loc,
         fmt::format("linear '{}' {} over an activation of {} columns", pw.name, shape_text(pw.info), cols(x)));
  use_as(w, WeightUse::kMatrix);
  LinearArgs args{.weight = w, .scale = scale_of(pw.name)};
  const std::string bias = pw.name.substr(0, pw.name.size() - std::strlen("weight")) + "bias";
  if (const gguf::TensorInfo* t = file_.find(bias)) {
    expect(t->elements() == pw.info.ne[1], loc,
           fmt::format("'{}' has {} values for {} rows", bias, t->elements(), pw.info.ne[1]));
    args.bias = add_weight(*t);
    use_as(args.bias, WeightUse::kVector);
  }
  return push(args, {rotated(x, w, loc)}, pw.info.ne[1], loc);
}

Val Builder::add(Val a, Val b, Loc loc) {
  expect(cols(a) == cols(b), loc, fmt::format("add of {} and {} columns", cols(a), cols(b)));
  return push(AddArgs{}, {a, b}, cols(a), loc);
}

Val Builder::glu(Val gate, Val x, Gate kind, Loc loc) {
  expect(cols(gate) == cols(x) || cols(gate) == 1, loc,
         fmt::format("gate of {} columns on {} columns", cols(gate), cols(x)));
  return push(GluArgs{kind}, {gate, x}, cols(x), loc);
}

int32_t Builder::rope_index(const RopeTable& table) {
  for (size_t i = 0; i < plan_.ropes.size(); ++i) {
    if (plan_.ropes[i] == table) return static_cast<int32_t>(i);
  }
  plan_.ropes.push_back(table);
  return static_cast<int32_t>(plan_.ropes.size() - 1);
}

Val Builder::rope(Val x, const RopeTable& table, int64_t head_dim, Loc loc) {
  const auto dims = static_cast<int64_t>(2 * table.freq.size());
  expect(head_dim > 0 && cols(x) % head_dim == 0 && dims <= head_dim, loc,
         fmt::format("rope of {} dims in heads of {} over {} columns", dims, head_dim, cols(x)));
  return push(RopeArgs{.table = rope_index(table), .head_dim = head_dim}, {x}, cols(x), loc);
}

Val Builder::attend(Val q, Val k, Val v, const Attend& a, Loc loc) {
  expect(a.kv_heads > 0 && a.heads % a.kv_heads == 0 && cols(q) % a.heads == 0 && cols(k) % a.kv_heads == 0 &&
             cols(v) % a.kv_heads == 0 && cols(q) / a.heads == cols(k) / a.kv_heads,
         loc,
         fmt::format("attention of {} heads over {} KV heads with {} / {} / {} columns of q, k, v", a.heads, a.kv_heads,
                     cols(q), cols(k), cols(v)));
  const int64_t dk = cols(k) / a.kv_heads, dv = cols(v) / a.kv_heads;
  const auto cache = static_cast<int32_t>(plan_.kv_layers.size());
  plan_.kv_layers.push_back({.kv_heads = static_cast<int32_t>(a.kv_heads), .head_dim_k = dk, .head_dim_v = dv});
  return push(AttendArgs{.cache = cache,
                         .heads = static_cast<int32_t>(a.heads),
                         .kv_heads = static_cast<int32_t>(a.kv_heads),
                         .head_dim_k = dk,
                         .head_dim_v = dv,
                         .scale = static_cast<float>(a.scale.value_or(1.0 / std::sqrt(static_cast<double>(dk))))},
              {q, k, v}, a.heads * dv, loc);
}

Val Builder::take(Val x, int64_t offset, int64_t width, int64_t stride, Loc loc) {
  expect(stride > 0 && width > 0 && offset >= 0 && offset + width <= stride && cols(x) % stride == 0, loc,
         fmt::format("columns {}..{} of chunks of {} in {} columns", offset, offset + width, stride, cols(x)));
  return push(TakeArgs{offset, width, stride}, {x}, cols(x) / stride * width, loc);
}

int32_t Builder::recurrent_state(const Recurrent& r) {
  plan_.state_layers.push_back({.channels = (2 * r.k_heads + r.v_heads) * r.head_dim,
                                .taps = r.taps,
                                .v_heads = r.v_heads,
                                .head_dim = r.head_dim});
  return static_cast<int32_t>(plan_.state_layers.size() - 1);
}

Val Builder::conv_silu(Val x, Weight kernel, int32_t state, Loc loc) {
  const gguf::TensorInfo& t = info(kernel);
  const StateLayer& s = plan_.state_layers[static_cast<size_t>(state)];
  expect(t.ne[0] == s.taps && t.elements() / t.ne[0] == cols(x) && s.channels == cols(x), loc,
         fmt::format("convolution '{}' {} with {} taps over {} columns", plan_.info(kernel).name, shape_text(t), s.taps,
                     cols(x)));
  use_as(kernel, WeightUse::kVector);
  return push(ConvArgs{.kernel = kernel, .state = state, .taps = s.taps}, {x}, cols(x), loc);
}

Val Builder::delta_rule(const DeltaInputs& in, int32_t state, const Recurrent& r, Loc loc) {
  const int64_t k = r.k_heads * r.head_dim, v = r.v_heads * r.head_dim;
  expect(cols(in.q) == k && cols(in.k) == k && cols(in.v) == v && cols(in.alpha) == r.v_heads &&
             cols(in.beta) == r.v_heads && info(in.a).elements() == r.v_heads && info(in.dt).elements() == r.v_heads &&
             r.k_heads > 0 && r.v_heads % r.k_heads == 0,
         loc,
         fmt::format("delta rule of {} k heads and {} v heads of {} with {} / {} / {} columns of q, k, v", r.k_heads,
                     r.v_heads, r.head_dim, cols(in.q), cols(in.k), cols(in.v)));
  use_as(in.a, WeightUse::kVector);
  use_as(in.dt, WeightUse::kVector);
  return push(DeltaRuleArgs{.a = in.a,
                            .dt = in.dt,
                            .state = state,
                            .k_heads = static_cast<int32_t>(r.k_heads),
                            .v_heads = static_cast<int32_t>(r.v_heads),
                            .head_dim = r.head_dim},
              {in.q, in.k, in.v, in.alpha, in.beta}, v, loc);
}

Builder::Routes Builder::router(Val logits, int64_t used, bool normalise, double scale, Loc loc) {
  expect(used > 0 && used <= cols(logits), loc, fmt::format("{} of {} experts used", used, cols(logits)));
  const Val ids = push(RouterArgs{.experts = static_cast<int32_t>(cols(logits)),
                                  .used = static_cast<int32_t>(used),
                                  .normalise = normalise,
                                  .scale = static_cast<float>(scale)},
                       {logits}, used, loc);
  plan_.vals[static_cast<size_t>(ids.id)].is_ids = true;
  const Val weights{static_cast<int32_t>(plan_.vals.size())};
  plan_.vals.push_back({.cols = used, .outputs_only = plan_.info(logits).outputs_only});
  plan_.ops.back().out2 = weights;
  return {ids, weights};
}

Val Builder::expert_linear(Val x, Weight w, Val ids, Loc loc) {
  const PlanWeight pw = plan_.info(w);
  const int64_t used = cols(ids);
  expect(pw.info.n_dims == 3 && (cols(x) == pw.info.ne[0] || cols(x) == used * pw.info.ne[0]), loc,
         fmt::format("experts '{}' {} over an activation of {} columns with {} used", pw.name, shape_text(pw.info),
                     cols(x), used));
  use_as(w, WeightUse::kExperts);
  return push(ExpertLinearArgs{.weight = w, .scale = scale_of(pw.name)}, {rotated(x, w, loc), ids},
              used * pw.info.ne[1], loc);
}

Val Builder::expert_sum(Val x, Val weights, Loc loc) {
  expect(cols(x) % cols(weights) == 0, loc, fmt::format("{} columns for {} experts", cols(x), cols(weights)));
  return push(ExpertSumArgs{}, {x, weights}, cols(x) / cols(weights), loc);
}

Val Builder::pick_rows(Val x, Loc loc) {
  const Val v = push(PickRowsArgs{}, {x}, cols(x), loc);
  plan_.vals[static_cast<size_t>(v.id)].outputs_only = true;
  return v;
}

Plan Builder::finish(Val logits, Val hidden, int64_t n_layers) {
  CHECK(plan_.info(logits).outputs_only, "logits must come from picked rows");
  if (cols(logits) != plan_.n_vocab) {
    fail(ErrorCode::kBadFile, "the head has {} rows for a vocabulary of {}", cols(logits), plan_.n_vocab);
  }
  std::string left;
  size_t n_left = 0;
  for (const gguf::TensorInfo& t : file_.tensors()) {
    if (claimed_.count(t.name)) continue;
    if (++n_left <= 5) left += (left.empty() ? "'" : ", '") + t.name + "'";
  }
  if (n_left != 0) {
    fail(ErrorCode::kUnsupported,
         "architecture '{}' does not read {} tensor{} of this file: {}{}. Running without {} would give wrong answers",
         architecture(), n_left, n_left == 1 ? "" : "s", left, n_left > 5 ? ", ..." : "", n_left == 1 ? "it" : "them");
  }
  for (size_t i = 0; i < plan_.weights.size(); ++i) {
    const PlanWeight& w = plan_.weights[i];
    CHECK(used_weights_.count(static_cast<int32_t>(i)), "{} was resolved but never used", w.name);
    if (fold_ && fold_->folded(w.name) && w.use != WeightUse::kMatrix && w.use != WeightUse::kExperts) {
      fail(ErrorCode::kUnsupported, "'{}' is stored in a rotated basis but is read without the transform", w.name);
    }
  }
  plan_.logits = logits;
  plan_.n_tokens = plan_.n_vocab;
  plan_.hidden = hidden;
  plan_.n_layers = n_layers;
  plan_.n_context_train = get_int("context_length", 0);
  return std::move(plan_);
}

}  // namespace tern
