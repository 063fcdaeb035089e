#include "plan/segment.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace tern {
namespace {

/// Rows of a table in the order in which they are asked for.
template <typename T>
class Renumbered {
 public:
  Renumbered(const std::vector<T>& from, std::vector<T>& to) : from_(from), to_(to) { to.clear(); }
  void operator()(int32_t& id) {
    if (id < 0) return;
    const auto [known, is_new] = ids_.try_emplace(id, static_cast<int32_t>(to_.size()));
    if (is_new) to_.push_back(from_[static_cast<size_t>(id)]);
    id = known->second;
  }

 private:
  const std::vector<T>& from_;
  std::vector<T>& to_;
  std::map<int32_t, int32_t> ids_;
};

/// The activation that ops from `at` on read and an earlier one made.
Val crossing(const Plan& plan, size_t at) {
  std::set<int32_t> made, crossing;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (i < at) made.insert({op.out.id, op.out2.id});
    for (const Val v : op.inputs)
      if (i >= at && made.contains(v.id)) crossing.insert(v.id);
  }
  const Val x{crossing.empty() ? -1 : *crossing.begin()};
  CHECK(crossing.size() == 1 && !plan.info(x).is_ids, "{} activations cross op {} of {}", crossing.size(), at,
        plan.ops.size());
  return x;
}

/// A weight that two segments share may be used in one way here and in another there.
void narrow_uses(Plan& plan) {
  std::set<int32_t> tables, matrices;
  for (const Op& op : plan.ops) {
    if (const auto* embed = std::get_if<EmbedArgs>(&op.args)) tables.insert(embed->table.id);
    if (const auto* linear = std::get_if<LinearArgs>(&op.args)) matrices.insert(linear->weight.id);
  }
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    PlanWeight& w = plan.weights[i];
    if (!w.also_table) continue;
    w.also_table = tables.contains(id) && matrices.contains(id);
    if (!matrices.contains(id)) w.use = WeightUse::kTable;
  }
}

}  // namespace

std::vector<size_t> block_starts(const Plan& plan) {
  std::vector<size_t> starts;
  for (size_t i = 1; i < plan.ops.size(); ++i)
    if (plan.ops[i].site.layer != plan.ops[i - 1].site.layer) starts.push_back(i);
  return starts;
}

Plan segment(const Plan& plan, size_t begin, size_t end) {
  CHECK(begin < end && end <= plan.ops.size(), "ops {} to {} of {}", begin, end, plan.ops.size());
  Plan out = plan;
  out.ops.clear();
  Renumbered vals(plan.vals, out.vals);
  Renumbered weights(plan.weights, out.weights);
  Renumbered caches(plan.kv_layers, out.kv_layers);
  Renumbered states(plan.state_layers, out.state_layers);
  const auto renumber = [&](auto& args) {
    if constexpr (requires { args.table.id; }) weights(args.table.id);
    if constexpr (requires { args.weight; }) weights(args.weight.id);
    if constexpr (requires { args.bias; }) weights(args.bias.id);
    if constexpr (requires { args.kernel; }) weights(args.kernel.id);
    if constexpr (requires { args.dt; }) weights(args.a.id), weights(args.dt.id);
    if constexpr (requires { args.cache; }) caches(args.cache);
    if constexpr (requires { args.state; }) states(args.state);
  };
  if (begin > 0) {
    Val x = crossing(plan, begin);
    vals(x.id);
    out.ops.push_back({.args = InputArgs{}, .inputs = {}, .out = x, .site = plan.ops[begin].site});
  }
  std::set<int32_t> layers;
  out.hidden = {};
  for (size_t i = begin; i < end; ++i) {
    Op op = plan.ops[i];
    std::visit(renumber, op.args);
    for (Val& v : op.inputs) vals(v.id);
    vals(op.out.id);
    vals(op.out2.id);
    if (plan.ops[i].out == plan.hidden) out.hidden = op.out;
    if (op.site.layer >= 0) layers.insert(op.site.layer);
    out.ops.push_back(std::move(op));
  }
  out.logits = end < plan.ops.size() ? crossing(plan, end) : plan.logits;
  vals(out.logits.id);
  if (end < plan.ops.size()) out.n_tokens = 0;
  out.n_layers = static_cast<int64_t>(layers.size());
  narrow_uses(out);
  return out;
}

}  // namespace tern
