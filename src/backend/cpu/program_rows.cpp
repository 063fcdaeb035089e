// The nodes that work row by row.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/program.h"
#include "base/error.h"

namespace tern::cpu {
namespace {

void copy(const float* from, int64_t n, float* to) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

double gate_value(Gate gate, double g) {
  switch (gate) {
    case Gate::kSilu:
      return g / (1.0 + std::exp(-g));
    case Gate::kSigmoid:
      return 1.0 / (1.0 + std::exp(-g));
    case Gate::kRelu2:
      return g > 0 ? g * g : 0.0;
  }
  return 0.0;
}

/// The best logits first, ties to the lower id.
void route(const RouterArgs& a, const float* logits, int32_t* ids, float* weights) {
  int32_t last = -1;
  for (int32_t j = 0; j < a.used; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < a.experts; ++e) {
      const bool taken = last >= 0 && !(logits[e] < logits[last] || (logits[e] == logits[last] && e > last));
      if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    ids[j] = last = best < 0 ? j : best;  // only NaN leaves none
  }
  const double top = logits[ids[0]];
  double all = 0, chosen = 0;
  for (int32_t e = 0; e < a.experts; ++e) all += std::exp(logits[e] - top);
  for (int32_t j = 0; j < a.used; ++j) chosen += std::exp(logits[ids[j]] - top);
  for (int32_t j = 0; j < a.used; ++j) {
    weights[j] = static_cast<float>(std::exp(logits[ids[j]] - top) / (a.normalise ? chosen : all) * a.scale);
  }
}

/// One row through one op of the plan. x is the first input, n its columns.
struct RowOp {
  const Machine& machine;
  const Plan& plan;
  const Ops& ops;
  const float *x, *y;  // inputs
  int64_t n, n_y;      // their columns
  float* out;
  int64_t n_out;
  const float* angles;  // rope
  int32_t token;        // embed
  int32_t* ids;         // router
  float* out2;

  void operator()(const EmbedArgs& a) const {
    const Table& t = machine.weights.table(a.table);
    CHECK(token >= 0 && token < t.rows, "token {} of a vocabulary of {}", token, t.rows);
    const auto stored = t.bytes.subspan(static_cast<size_t>(token) * t.row_bytes, t.row_bytes);
    // Touching the mapping would keep 64 KB around every row in memory: most of the table in the end.
    thread_local std::vector<std::byte> row;
    row.resize(t.row_bytes);
    const bool copied = t.file && t.file->copy(stored, row.data());
    t.format->decode(copied ? row.data() : stored.data(), out, t.cols, t.tensor_scale);
  }
  void operator()(const RmsNormArgs& a) const {
    ops.rms_norm(x, machine.weights.vector(a.weight), a.eps, a.group, n, out);
  }
  void operator()(const L2NormArgs& a) const { ops.l2_norm(x, a.eps, a.group, n, out); }
  void operator()(const AddArgs&) const { ops.add(x, y, n, out); }
  void operator()(const GluArgs& a) const {
    if (n == 1 && n_y != 1) {
      ops.scale(static_cast<float>(gate_value(a.gate, x[0])), y, n_y, out);
    } else {
      ops.glu[static_cast<size_t>(a.gate)](x, y, n, out);
    }
  }
  void operator()(const RopeArgs& a) const {
    const RopeTable& t = plan.ropes[static_cast<size_t>(a.table)];
    const auto pairs = static_cast<int64_t>(t.freq.size());
    ops.rope[t.neox ? 1 : 0](x, angles, angles + pairs, pairs, a.head_dim, n, out);
  }
  void operator()(const TakeArgs& a) const {
    float* to = out;
    for (int64_t chunk = 0; chunk < n; chunk += a.stride, to += a.width) copy(x + chunk + a.offset, a.width, to);
  }
  void operator()(const RotateArgs& a) const {
    const float* signs = a.signs < 0 ? nullptr : plan.signs[static_cast<size_t>(a.signs)].data();
    for (int64_t at = 0; at < n; at += a.width) {
      if (signs && !a.inverse) {
        ops.multiply(x + at, signs, a.width, out + at);
      } else {
        copy(x + at, a.width, out + at);
      }
      ops.hadamard(out + at, a.width, a.block);
      if (signs && a.inverse) ops.multiply(out + at, signs, a.width, out + at);
    }
  }
  void operator()(const PermuteHeadsArgs& a) const {
    for (int64_t k = 0; k < a.k_heads; ++k) {
      for (int64_t r = 0; r < a.rep; ++r) {
        copy(x + a.head_dim * (k + a.k_heads * r), a.head_dim, out + a.head_dim * (r + a.rep * k));
      }
    }
  }
  void operator()(const RouterArgs& a) const { route(a, x, ids, out2); }
  void operator()(const ExpertSumArgs&) const {
    ops.scale(y[0], x, n_out, out);
    for (int64_t j = 1; j < n_y; ++j) ops.add_scaled(y[j], x + j * n_out, n_out, out);
  }
  void operator()(const PickRowsArgs&) const { copy(x, n_out, out); }
  void operator()(const InputArgs&) const { copy(x, n_out, out); }
  template <typename Items>
  void operator()(const Items&) const {
    CHECK(false, "an op on items in a phase of rows");
  }
};

}  // namespace

void CpuProgram::row_node(const Node& n, int64_t row, int thread) {
  switch (n.kind) {
    case NodeKind::kAngles:
      return angles(n, row, thread);
    case NodeKind::kRound:
      return round_row(n, row, thread);
    case NodeKind::kExpertRound:
      return round_experts(n, row, thread);
    case NodeKind::kKvWrite:
      return write_kv(n, row, thread);
    case NodeKind::kAttendMerge:
      return merge_parts(n, row, thread);
    default:
      return row_op(n, op(n), row, thread);
  }
}

void CpuProgram::row_op(const Node& n, const Op& op, int64_t row, int thread) {
  const Plan& plan = *machine_.plan;
  const bool first = op.inputs.empty(), pick = std::holds_alternative<PickRowsArgs>(op.args);
  const int64_t from = pick ? step_->out_rows[static_cast<size_t>(row)] : row;
  const bool two = op.inputs.size() > 1;
  const int64_t n_out = plan.info(op.out).cols;
  const float* input = step_->input.empty() ? nullptr : step_->input.data() + row * n_out;
  const RowOp apply{.machine = machine_,
                    .plan = plan,
                    .ops = *machine_.ops,
                    .x = first ? input : f32(op.inputs[0].id, from, thread),
                    .y = two ? f32(op.inputs[1].id, row, thread) : nullptr,
                    .n = first ? 0 : plan.info(op.inputs[0]).cols,
                    .n_y = two ? plan.info(op.inputs[1]).cols : 0,
                    .out = f32(op.out.id, row, thread),
                    .n_out = n_out,
                    .angles = n.extra >= 0 ? f32(n.extra, row, thread) : nullptr,
                    .token = first ? step_->tokens[static_cast<size_t>(row)] : 0,
                    .ids = i32(op.out.id, row, thread),
                    .out2 = op.out2 ? f32(op.out2.id, row, thread) : nullptr};
  std::visit(apply, op.args);
}

void CpuProgram::angles(const Node& n, int64_t row, int thread) {
  const RopeTable& t = machine_.plan->ropes[static_cast<size_t>(n.extra)];
  float* cosines = f32(n.out, row, thread);
  float* sines = cosines + t.freq.size();
  for (size_t i = 0; i < t.freq.size(); ++i) {
    const double angle = position_[static_cast<size_t>(row)] * t.freq[i];
    cosines[i] = static_cast<float>(std::cos(angle) * t.magnitude);
    sines[i] = static_cast<float>(std::sin(angle) * t.magnitude);
  }
}

void CpuProgram::round_row(const Node& n, int64_t row, int thread) {
  n.kernel->quantize(f32(n.in, row, thread), machine_.plan->vals[static_cast<size_t>(n.in)].cols,
                     at(n.out, row, thread));
}

void CpuProgram::round_experts(const Node& n, int64_t row, int thread) {
  const Grouping& g = groupings_[static_cast<size_t>(n.extra)];
  const int64_t cols = machine_.weights.matrix(args<ExpertLinearArgs>(n).weight).cols;
  const int64_t bytes = schedule_.buffers[static_cast<size_t>(n.out)].row_bytes / g.used;
  const bool shared = machine_.plan->vals[static_cast<size_t>(n.in)].cols == cols;  // all experts read the same row
  const float* x = f32(n.in, row, thread);
  const auto slot = [&](int32_t j) {
    return at(n.out, 0, thread) + g.slot_of_pair[static_cast<size_t>(row * g.used + j)] * bytes;
  };
  for (int32_t j = 0; j < g.used; ++j) {
    if (shared && j > 0) {
      std::memcpy(slot(j), slot(0), static_cast<size_t>(bytes));
    } else {
      n.kernel->quantize(shared ? x : x + j * cols, cols, slot(j));
    }
  }
}

void CpuProgram::group_experts(const Node& n) {
  Grouping& g = groupings_[static_cast<size_t>(n.extra)];
  const int32_t ids_val = schedule_.groupings[static_cast<size_t>(n.extra)];
  const auto rows = static_cast<int32_t>(n.outputs ? step_->out_rows.size() : step_->tokens.size());
  const int32_t pairs = rows * g.used;
  const auto expert = [&](int32_t pair) { return static_cast<size_t>(i32(ids_val, pair / g.used)[pair % g.used]); };
  std::fill(g.next.begin(), g.next.end(), 0);
  for (int32_t pair = 0; pair < pairs; ++pair) ++g.next[expert(pair)];
  g.n_active = 0;
  int32_t slot = 0;
  for (int32_t e = 0; e < g.experts; ++e) {
    const int32_t count = g.next[static_cast<size_t>(e)];
    if (count > 0) g.active[static_cast<size_t>(g.n_active++)] = {e, slot, count};
    g.next[static_cast<size_t>(e)] = slot;
    slot += count;
  }
  for (int32_t pair = 0; pair < pairs; ++pair) {
    const int32_t at = g.next[expert(pair)]++;
    g.slot_of_pair[static_cast<size_t>(pair)] = at;
    g.pair_of_slot[static_cast<size_t>(at)] = pair;
  }
}

}  // namespace tern::cpu
