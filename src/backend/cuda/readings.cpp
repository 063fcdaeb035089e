#include "backend/cuda/readings.h"

#include <algorithm>

namespace tern::cuda {

Readings::Readings(const Plan& plan, bool fuse)
    : plan_(plan), done_by_(plan.ops.size()), producer_(plan.vals.size(), -1), uses_(plan.vals.size()) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    done_by_[i] = static_cast<int32_t>(i);
    producer_[static_cast<size_t>(plan.ops[i].out.id)] = static_cast<int32_t>(i);
    for (const Val v : plan.ops[i].inputs) ++uses_[static_cast<size_t>(v.id)];
  }
  ++uses_[static_cast<size_t>(plan.logits.id)];
  if (!fuse) return;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (const auto* a = std::get_if<AttendArgs>(&op.args)) read_heads(i, *a);
    if (const auto* a = std::get_if<DeltaRuleArgs>(&op.args)) read_delta_inputs(i, *a);
    if (const auto* a = std::get_if<RotateArgs>(&op.args)) read_rotated(i, *a);
  }
}

/// The op that makes `v`, when it is an Args and `v` has no other reader.
template <typename Args>
const Args* Readings::absorbable(Val v) const {
  const int32_t op = producer_[static_cast<size_t>(v.id)];
  if (op < 0 || uses_[static_cast<size_t>(v.id)] != 1) return nullptr;
  return std::get_if<Args>(&plan_.ops[static_cast<size_t>(op)].args);
}

/// Leaves the maker of `v` to `reader`: its input is read instead.
Val Readings::absorb(Val v, size_t reader) {
  const auto op = static_cast<size_t>(producer_[static_cast<size_t>(v.id)]);
  done_by_[op] = static_cast<int32_t>(reader);
  return plan_.ops[op].inputs[0];
}

Reading Readings::as_it_is(Val v, int64_t dim) const {
  return {.source = v, .row_stride = plan_.info(v).cols, .head_stride = dim};
}

Reading Readings::of(size_t op, Val v, int64_t dim) const {
  const auto known = readings_.find({op, v.id});
  return known == readings_.end() ? as_it_is(v, dim) : known->second;
}

/// rope(rms_norm(take(x))) of heads of `dim`, each part where there is one.
Reading Readings::head_chain(size_t op, Val v, int64_t dim) {
  Reading r = as_it_is(v, dim);
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
  for (size_t i = 0; i < 2; ++i) readings_[{op, in[i].id}] = head_chain(op, in[i], a.head_dim_k);
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
    Reading r = as_it_is(in[i], a.head_dim);
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
    readings_[{op, in[i].id}] = r;
  }
}

/// A rotation that only products read is done where they round their activations.
void Readings::read_rotated(size_t op, const RotateArgs& a) {
  const Op& rotate = plan_.ops[op];
  if (a.inverse || rotate.out == plan_.logits) return;
  std::vector<size_t> readers;
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    if (std::ranges::find(plan_.ops[i].inputs, rotate.out) == plan_.ops[i].inputs.end()) continue;
    const OpArgs& args = plan_.ops[i].args;
    if (!std::holds_alternative<LinearArgs>(args) && !std::holds_alternative<ExpertLinearArgs>(args)) return;
    readers.push_back(i);
  }
  if (readers.empty()) return;
  done_by_[op] = static_cast<int32_t>(readers.front());
  for (const size_t reader : readers) {
    Reading r = as_it_is(rotate.inputs[0], plan_.info(rotate.out).cols);
    r.rotate = static_cast<int32_t>(op);
    readings_[{reader, rotate.out.id}] = r;
  }
}

}  // namespace tern::cuda
