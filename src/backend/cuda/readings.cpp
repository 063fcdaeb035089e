#include "backend/cuda/readings.h"

#include <algorithm>
#include <bit>

namespace tern::cuda {
namespace {

constexpr int64_t kMostNormGroup = 128;  // of a norm that a product does on heads: a warp's columns

bool is_product(const Op& op) {
  return std::holds_alternative<LinearArgs>(op.args) || std::holds_alternative<ExpertLinearArgs>(op.args);
}

}  // namespace

Readings::Readings(const Plan& plan, const std::function<bool(Weight)>& rounds, bool fuse)
    : plan_(plan),
      rounds_(rounds),
      done_by_(plan.ops.size()),
      producer_(plan.vals.size(), -1),
      readers_(plan.vals.size()) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    done_by_[i] = static_cast<int32_t>(i);
    producer_[static_cast<size_t>(plan.ops[i].out.id)] = static_cast<int32_t>(i);
    for (const Val v : plan.ops[i].inputs) readers_[static_cast<size_t>(v.id)].push_back(i);
  }
  if (!fuse) return;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (const auto* a = std::get_if<AttendArgs>(&op.args)) read_heads(i, *a);
    if (const auto* a = std::get_if<DeltaRuleArgs>(&op.args)) read_delta_inputs(i, *a);
    if (is_product(op) && !products_.contains(op.inputs[0].id)) read_products(op.inputs[0]);
    if (std::holds_alternative<AddArgs>(op.args)) add_residual(i);
  }
}

template <typename Args>
const Args* Readings::made_by(Val v) const {
  const int32_t op = producer_[static_cast<size_t>(v.id)];
  if (op < 0 || absorbed(static_cast<size_t>(op)) || v == plan_.logits) return nullptr;
  return std::get_if<Args>(&plan_.ops[static_cast<size_t>(op)].args);
}

/// The op that makes `v`, when it is an Args and `v` has no other reader.
template <typename Args>
const Args* Readings::absorbable(Val v) const {
  return readers_[static_cast<size_t>(v.id)].size() == 1 ? made_by<Args>(v) : nullptr;
}

/// Leaves the maker of `v` to `reader`: its first input is read instead.
Val Readings::absorb(Val v, size_t reader) {
  const auto op = static_cast<size_t>(producer_[static_cast<size_t>(v.id)]);
  done_by_[op] = static_cast<int32_t>(reader);
  return plan_.ops[op].inputs[0];
}

// ---- Heads ----

HeadReading Readings::as_it_is(Val v, int64_t dim) const {
  return {.source = v, .row_stride = plan_.info(v).cols, .head_stride = dim};
}

HeadReading Readings::heads(size_t op, Val v, int64_t dim) const {
  const auto known = heads_.find({op, v.id});
  return known == heads_.end() ? as_it_is(v, dim) : known->second;
}

/// rope(rms_norm(take(x))) of heads of `dim`, each part where there is one.
HeadReading Readings::head_chain(size_t op, Val v, int64_t dim) {
  HeadReading r = as_it_is(v, dim);
  if (const auto* rope = absorbable<RopeArgs>(r.source); rope && rope->head_dim == dim) {
    r.rope = rope->table;
    r.source = absorb(r.source, op);
  }
  if (const auto* norm = absorbable<RmsNormArgs>(r.source); norm && norm->group == dim) {
    r.normalise = true;
    r.norm = norm->weight;
    r.eps = norm->eps;
    r.source = absorb(r.source, op);
  }
  if (const auto* take = absorbable<TakeArgs>(r.source); take && take->width == dim) {
    r.offset = take->offset;
    r.head_stride = take->stride;
    r.source = absorb(r.source, op);
  }
  r.row_stride = plan_.info(r.source).cols;
  return r;
}

void Readings::read_heads(size_t op, const AttendArgs& a) {
  const std::vector<Val>& in = plan_.ops[op].inputs;
  const auto *q = absorbable<RopeArgs>(in[0]), *k = absorbable<RopeArgs>(in[1]);
  if (q && k && q->table != k->table) return;  // one launch has one set of angles
  for (size_t i = 0; i < 2; ++i) heads_[{op, in[i].id}] = head_chain(op, in[i], a.head_dim_k);
}

/// l2_norm(take(x)) of queries and keys, take(x) of values. Reads of four floats want multiples of four.
void Readings::read_delta_inputs(size_t op, const DeltaRuleArgs& a) {
  const std::vector<Val>& in = plan_.ops[op].inputs;
  const auto norm_of = [&](Val v) {
    const auto* n = absorbable<L2NormArgs>(v);
    return n && n->group == a.head_dim ? n : nullptr;
  };
  const L2NormArgs *q = norm_of(in[0]), *k = norm_of(in[1]);
  const bool norms = q && k && q->eps == k->eps;
  for (size_t i = 0; i < 3; ++i) {
    HeadReading r = as_it_is(in[i], a.head_dim);
    if (norms && i < 2) {
      r.normalise = true;
      r.eps = q->eps;
      r.source = absorb(r.source, op);
    }
    const auto* take = absorbable<TakeArgs>(r.source);
    if (take && take->width == plan_.info(r.source).cols && take->offset % 4 == 0 && take->stride % 4 == 0) {
      r.offset = take->offset;
      r.source = absorb(r.source, op);
    }
    r.row_stride = plan_.info(r.source).cols;
    heads_[{op, in[i].id}] = r;
  }
}

// ---- Products ----

ProductReading Readings::product(Val v) const {
  const auto known = products_.find(v.id);
  return known == products_.end() ? ProductReading{.x = v} : known->second;
}

bool Readings::only_products_read(Val v) const {
  return v != plan_.logits &&
         std::ranges::all_of(readers_[static_cast<size_t>(v.id)], [&](size_t op) { return is_product(plan_.ops[op]); });
}

void Readings::read_products(Val v) {
  ProductReading r{.x = v};
  const size_t reader = readers_[static_cast<size_t>(v.id)].front();
  const bool alone = only_products_read(v);
  if (const auto* rotate = made_by<RotateArgs>(v); rotate && alone && !rotate->inverse) {
    r.rotate = producer_[static_cast<size_t>(v.id)];
    r.x = absorb(v, reader);
  }
  const bool rotated = r.rotate >= 0;
  if (alone && (!rotated || readers_[static_cast<size_t>(r.x.id)].size() == 1)) read_gated(r, reader);
  if (!r.gate && r.x_columns.dim == 0) read_norm(r, reader);
  products_[v.id] = r;
}

/// permute_heads(glu(take(g), rms_norm(x))), each part where there is one. Only the product reads r.x.
void Readings::read_gated(ProductReading& r, size_t reader) {
  const auto columns_of = [](const TakeArgs& t) {
    return Columns{static_cast<int32_t>(t.width), static_cast<int32_t>(t.stride), static_cast<int32_t>(t.offset)};
  };
  const auto fits = [](const TakeArgs* t) {
    return t && t->width % 4 == 0 && t->stride % 4 == 0 && t->offset % 4 == 0;
  };
  const auto* permute = made_by<PermuteHeadsArgs>(r.x);
  if (permute && permute->head_dim % 4 == 0) {
    r.x_columns = {static_cast<int32_t>(permute->head_dim), static_cast<int32_t>(permute->head_dim), 0,
                   static_cast<int32_t>(permute->k_heads), static_cast<int32_t>(permute->rep)};
    r.x = absorb(r.x, reader);
    if (readers_[static_cast<size_t>(r.x.id)].size() != 1) return;
  } else {
    permute = nullptr;
  }
  const auto* glu = made_by<GluArgs>(r.x);
  if (!glu) return;
  const std::vector<Val>& in = plan_.ops[static_cast<size_t>(producer_[static_cast<size_t>(r.x.id)])].inputs;
  if (plan_.info(in[0]).cols != plan_.info(in[1]).cols) return;  // one gate a row
  absorb(r.x, reader);
  r.gate_kind = glu->gate;
  r.gate = in[0];
  r.x = in[1];
  r.gate_columns = r.x_columns;
  if (const auto* t = absorbable<TakeArgs>(r.gate); !permute && fits(t)) {
    r.gate_columns = columns_of(*t);
    r.gate = absorb(r.gate, reader);
  }
  if (const auto* t = absorbable<TakeArgs>(r.x); !permute && fits(t)) {
    r.x_columns = columns_of(*t);
    r.x = absorb(r.x, reader);
    return;
  }
  const auto* norm = absorbable<RmsNormArgs>(r.x);
  if (!norm || norm->group > kMostNormGroup || !std::has_single_bit(static_cast<uint64_t>(norm->group)) ||
      norm->group < 4 || (permute && norm->group != permute->head_dim)) {
    return;
  }
  r.norm = norm->weight;
  r.group = norm->group;
  r.eps = norm->eps;
  r.x = absorb(r.x, reader);
}

/// rms_norm over the row. Its other readers find the result in its val, when the product comes first.
void Readings::read_norm(ProductReading& r, size_t reader) {
  const auto* norm = made_by<RmsNormArgs>(r.x);
  if (!norm || norm->group != plan_.info(r.x).cols) return;
  const Op& product = plan_.ops[reader];
  const bool linear = std::holds_alternative<LinearArgs>(product.args);
  if (!linear || (r.rotate < 0 && !rounds_(std::get<LinearArgs>(product.args).weight))) return;
  bool others = false;
  for (const size_t op : readers_[static_cast<size_t>(r.x.id)]) {
    const bool here = op == reader || static_cast<int32_t>(op) == r.rotate;
    if (!here && op < reader) return;
    others = others || !here;
  }
  if (others) r.plain = r.x;
  r.norm = norm->weight;
  r.group = norm->group;
  r.eps = norm->eps;
  r.x = absorb(r.x, reader);
}

// ---- Residuals ----

std::optional<Residual> Readings::residual(size_t op) const {
  const auto known = residuals_.find(op);
  return known == residuals_.end() ? std::nullopt : std::optional(known->second);
}

/// add(a, W x), when a is there before the first product of x: products of one activation share a launch.
void Readings::add_residual(size_t op) {
  const Op& add = plan_.ops[op];
  for (size_t i = 0; i < 2; ++i) {
    const Val sum = add.inputs[i], addend = add.inputs[1 - i];
    if (!absorbable<LinearArgs>(sum) || sum == addend) continue;
    const auto linear = static_cast<size_t>(producer_[static_cast<size_t>(sum.id)]);
    const auto maker = static_cast<size_t>(producer_[static_cast<size_t>(addend.id)]);
    if (absorbed(maker) && !std::holds_alternative<AddArgs>(plan_.ops[maker].args)) continue;  // written later
    const size_t first = readers_[static_cast<size_t>(plan_.ops[linear].inputs[0].id)].front();
    if (residuals_.contains(linear) || maker >= first) continue;
    done_by_[op] = static_cast<int32_t>(linear);
    residuals_[linear] = {addend, add.out};
    return;
  }
}

}  // namespace tern::cuda
