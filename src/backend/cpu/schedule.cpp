#include "backend/cpu/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "backend/placement.h"
#include "base/checked.h"
#include "base/error.h"

namespace tern::cpu {
namespace {

constexpr int64_t kAlign = 64;

/// Writes the nodes of every op in plan order.
class Expander {
 public:
  Expander(const Plan& plan, const Weights& weights, const ScheduleOptions& options, Schedule& s)
      : plan_(plan), weights_(weights), options_(options), s_(s) {
    for (const ValInfo& v : plan.vals) s_.buffers.push_back({.row_bytes = v.cols * 4, .outputs = v.outputs_only});
  }

  void expand() {
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      op_ = static_cast<int32_t>(i);
      const Op& op = plan_.ops[i];
      std::visit([&](const auto& args) { add(op, args); }, op.args);
    }
  }

 private:
  int32_t buffer(int64_t row_bytes, bool outputs, int64_t fixed_bytes = 0) {
    s_.buffers.push_back({.row_bytes = row_bytes, .fixed_bytes = fixed_bytes, .outputs = outputs});
    return static_cast<int32_t>(s_.buffers.size()) - 1;
  }

  Node& push(NodeKind kind, std::vector<int32_t> reads, std::vector<int32_t> writes) {
    Node n{.kind = kind, .op = op_};
    n.outputs = s_.buffers[static_cast<size_t>(writes.front())].outputs;
    n.out = writes.front();
    n.reads = std::move(reads);
    n.writes = std::move(writes);
    s_.nodes.push_back(std::move(n));
    return s_.nodes.back();
  }

  static std::vector<int32_t> inputs(const Op& op) {
    std::vector<int32_t> ids;
    for (const Val v : op.inputs) ids.push_back(v.id);
    return ids;
  }

  /// Ops that work row by row.
  template <typename Args>
  void add(const Op& op, const Args&) {
    std::vector<int32_t> writes{op.out.id};
    if (op.out2) writes.push_back(op.out2.id);
    push(NodeKind::kRowOp, inputs(op), std::move(writes));
  }

  void add(const Op& op, const RopeArgs& a) {
    int32_t& angles = angles_.emplace(a.table, -1).first->second;
    if (angles < 0) {
      const auto pairs = static_cast<int64_t>(plan_.ropes[static_cast<size_t>(a.table)].freq.size());
      angles = buffer(2 * pairs * 4, false);
      push(NodeKind::kAngles, {}, {angles}).extra = a.table;
    }
    push(NodeKind::kRowOp, {op.inputs[0].id, angles}, {op.out.id}).extra = angles;
  }

  /// The rounded activations that `kernel` reads; the val itself where nothing is rounded.
  int32_t rounded(Val x, const Kernel& kernel, int64_t cols, int32_t grouping, int64_t copies) {
    const ActLayout layout = kernel.act_layout(cols);
    const Buffer& b = s_.buffers[static_cast<size_t>(x.id)];
    CHECK(layout.row_bytes % kAlign == 0, "{} reads rows of {} bytes", kernel.name, layout.row_bytes);
    const bool as_is = layout.rule == quant::Activation::kF32 && layout.generic && grouping < 0 &&
                       b.row_bytes == static_cast<int64_t>(layout.row_bytes);
    if (as_is) return x.id;
    const auto key = std::make_tuple(x.id, layout.rule, layout.generic, cols, grouping);
    int32_t& act = rounded_.emplace(key, -1).first->second;
    if (act >= 0) return act;
    act = buffer(static_cast<int64_t>(layout.row_bytes) * copies, b.outputs);
    std::vector<int32_t> reads{x.id};
    if (grouping >= 0) reads.push_back(group_tokens_[static_cast<size_t>(grouping)]);
    Node& n = push(grouping >= 0 ? NodeKind::kExpertRound : NodeKind::kRound, std::move(reads), {act});
    n.in = x.id;
    n.extra = grouping;
    n.kernel = &kernel;
    return act;
  }

  void add(const Op& op, const LinearArgs& a) {
    const Matrix& m = weights_.matrix(a.weight);
    const int32_t act = rounded(op.inputs[0], *m.kernel, m.cols, -1, 1);
    Node& n = push(NodeKind::kLinear, {act}, {op.out.id});
    n.in = act;
    n.kernel = m.kernel;
  }

  void add(const Op& op, const AttendArgs& a) {
    const int32_t token = buffer(0, false);
    push(NodeKind::kKvWrite, {op.inputs[1].id, op.inputs[2].id}, {token});
    const int32_t parts = buffer(0, false, options_.attend_parts * a.heads * (a.head_dim_v + 2) * 4);
    push(NodeKind::kAttend, {op.inputs[0].id, token}, {op.out.id, parts}).extra = parts;
    push(NodeKind::kAttendMerge, {parts, op.out.id}, {op.out.id}).extra = parts;
  }

  void add(const Op& op, const ConvArgs&) { push(NodeKind::kConv, inputs(op), {op.out.id}); }
  void add(const Op& op, const DeltaRuleArgs&) { push(NodeKind::kDelta, inputs(op), {op.out.id}); }

  int32_t grouping(Val ids) {
    const auto known = std::find(s_.groupings.begin(), s_.groupings.end(), ids.id);
    if (known != s_.groupings.end()) return static_cast<int32_t>(known - s_.groupings.begin());
    const auto index = static_cast<int32_t>(s_.groupings.size());
    s_.groupings.push_back(ids.id);
    group_tokens_.push_back(buffer(0, plan_.info(ids).outputs_only));
    push(NodeKind::kExpertGroup, {ids.id}, {group_tokens_.back()}).extra = index;
    return index;
  }

  void add(const Op& op, const ExpertLinearArgs& a) {
    const Matrix& m = weights_.matrix(a.weight);
    const Val ids = op.inputs[1];
    const int32_t group = grouping(ids);
    const int32_t act = rounded(op.inputs[0], *m.kernel, m.cols, group, plan_.info(ids).cols);
    Node& n = push(NodeKind::kExpertLinear, {act, group_tokens_[static_cast<size_t>(group)], ids.id}, {op.out.id});
    n.in = act;
    n.extra = group;
    n.kernel = m.kernel;
  }

  const Plan& plan_;
  const Weights& weights_;
  const ScheduleOptions& options_;
  Schedule& s_;
  int32_t op_ = 0;
  std::map<int32_t, int32_t> angles_;
  std::map<std::tuple<int32_t, quant::Activation, bool, int64_t, int32_t>, int32_t> rounded_;
  std::vector<int32_t> group_tokens_;
};

/// For each node the nodes it waits for: the last writer of everything it reads.
std::vector<std::vector<int32_t>> dependencies(const Schedule& s) {
  std::vector<int32_t> writer(s.buffers.size(), -1);
  std::vector<std::vector<int32_t>> deps(s.nodes.size());
  for (size_t i = 0; i < s.nodes.size(); ++i) {
    for (const int32_t b : s.nodes[i].reads) {
      if (writer[static_cast<size_t>(b)] >= 0) deps[i].push_back(writer[static_cast<size_t>(b)]);
    }
    for (const int32_t b : s.nodes[i].writes) writer[static_cast<size_t>(b)] = static_cast<int32_t>(i);
  }
  return deps;
}

void group_eager(Schedule& s) {
  for (size_t i = 0; i < s.nodes.size(); ++i) {
    s.phases.push_back(
        {.work = work_of(s.nodes[i].kind), .outputs = s.nodes[i].outputs, .nodes = {static_cast<int32_t>(i)}});
  }
}

/// As soon as possible: first everything that works on rows, then everything on items that is ready.
class Grouper {
 public:
  explicit Grouper(Schedule& s) : s_(s), deps_(dependencies(s)), state_(s.nodes.size(), kWaiting) {}

  void group() {
    for (size_t left = s_.nodes.size(); left > 0;) {
      Phase phase = next();
      CHECK(!phase.nodes.empty(), "{} nodes of a plan wait for each other", left);
      for (const int32_t n : phase.nodes) state_[static_cast<size_t>(n)] = kDone;
      left -= phase.nodes.size();
      s_.phases.push_back(std::move(phase));
    }
  }

 private:
  enum State : uint8_t { kWaiting, kInPhase, kDone };

  bool ready(size_t node, State at_least) const {
    return std::all_of(deps_[node].begin(), deps_[node].end(),
                       [&](int32_t d) { return state_[static_cast<size_t>(d)] >= at_least; });
  }

  /// All waiting nodes of a kind of work whose inputs are done, or (rows) come earlier in the phase.
  Phase collect(Work work, bool outputs) {
    Phase phase{.work = work, .outputs = outputs, .light = work != Work::kItems};
    for (size_t i = 0; i < s_.nodes.size(); ++i) {
      const Node& n = s_.nodes[i];
      if (state_[i] != kWaiting || work_of(n.kind) != work) continue;
      if (work == Work::kRows && n.outputs != outputs) continue;
      if (!ready(i, work == Work::kRows ? kInPhase : kDone)) continue;
      phase.nodes.push_back(static_cast<int32_t>(i));
      if (work == Work::kRows) state_[i] = kInPhase;
      if (work == Work::kOnce) break;
    }
    return phase;
  }

  Phase next() {
    for (const bool outputs : {false, true}) {
      Phase rows = collect(Work::kRows, outputs);
      if (!rows.nodes.empty()) return rows;
    }
    Phase once = collect(Work::kOnce, false);
    if (!once.nodes.empty()) return once;
    Phase items = collect(Work::kItems, false);
    items.light = std::all_of(items.nodes.begin(), items.nodes.end(),
                              [&](int32_t n) { return s_.nodes[static_cast<size_t>(n)].kind == NodeKind::kConv; });
    return items;
  }

  Schedule& s_;
  std::vector<std::vector<int32_t>> deps_;
  std::vector<State> state_;
};

/// Bytes of the next piece of a phase of matrices, after `done` of `total` bytes were cut.
using PieceSize = int64_t (*)(int64_t total, int64_t done, int threads);

/// A decode step reads every weight once. A piece begins with misses that no prefetch hides, about a microsecond, so
/// the first pieces are most of what a thread will read; the last are small, so that threads end together. Against 16
/// equal pieces a thread, with two threads and TQ2_0: a matrix of 2560 x 2560 in 26 us instead of 43, 6912 x 2560 in 74
/// instead of 90. (Asking for the first lines of a piece at once instead changed nothing.)
int64_t few_piece(int64_t total, int64_t done, int threads) {
  constexpr int64_t kLeast = 24 << 10;
  const int64_t tenth = total / (10 * threads);
  return std::max(kLeast, (done < 7 * tenth * threads ? 7 : done < 9 * tenth * threads ? 2 : 1) * tenth);
}

/// With many rows a piece stays in the second-level cache while all rows pass by.
int64_t many_piece(int64_t total, int64_t, int threads) {
  constexpr int64_t kLeast = 4 << 10, kMost = 128 << 10;
  return std::clamp(total / (8 * threads), kLeast, kMost);
}

/// Cuts the matrices of a phase into pieces for threads to take.
std::vector<Chunk> cut(const Schedule& s, const Plan& plan, const Weights& weights, const Phase& phase,
                       PieceSize piece_size, int threads) {
  struct Part {
    int32_t node;
    const Matrix* m;
    int64_t bytes;
  };
  std::vector<Part> parts;
  int64_t total = 0;
  for (const int32_t n : phase.nodes) {
    const Node& node = s.nodes[static_cast<size_t>(n)];
    if (node.kind != NodeKind::kLinear) continue;
    const Weight w = std::get<LinearArgs>(plan.ops[static_cast<size_t>(node.op)].args).weight;
    parts.push_back({n, &weights.matrix(w), static_cast<int64_t>(weights.matrix_bytes(w))});
    total += parts.back().bytes;
  }
  std::vector<Chunk> chunks;
  int64_t done = 0;
  for (const Part& p : parts) {
    const int64_t row_bytes = std::max<int64_t>(1, p.bytes / std::max<int64_t>(1, p.m->rows));
    for (int64_t row = 0; row < p.m->rows;) {
      const int64_t wanted = std::max<int64_t>(1, piece_size(total, done, threads) / row_bytes);
      const int64_t end = std::min(p.m->rows, row + round_up(wanted, p.m->kernel->row_unit));
      chunks.push_back({p.node, row, end});
      done += (end - row) * row_bytes;
      row = end;
    }
  }
  return chunks;
}

void find_next_linears(std::vector<Phase>& phases) {
  const auto count = static_cast<int32_t>(phases.size());
  int32_t next = -1;
  for (int32_t i = 2 * count - 1; i >= 0; --i) {
    Phase& p = phases[static_cast<size_t>(i % count)];
    p.next_linears = next;
    if (!p.few.empty()) next = i % count;
  }
}

/// When a buffer is written first and read last, in phases.
struct Life {
  int32_t first = -1, last = -1;
};

std::vector<Life> lives(const Schedule& s) {
  std::vector<Life> lives(s.buffers.size());
  for (size_t p = 0; p < s.phases.size(); ++p) {
    const auto touch = [&](int32_t b) {
      Life& l = lives[static_cast<size_t>(b)];
      if (l.first < 0) l.first = static_cast<int32_t>(p);
      l.last = static_cast<int32_t>(p);
    };
    for (const int32_t n : s.phases[p].nodes) {
      std::ranges::for_each(s.nodes[static_cast<size_t>(n)].reads, touch);
      std::ranges::for_each(s.nodes[static_cast<size_t>(n)].writes, touch);
    }
  }
  return lives;
}

/// Buffers of one phase of rows lie in a thread's scratch, all others in the arena.
void place(Schedule& s, const Plan& plan, const ScheduleOptions& options) {
  const std::vector<Life> life = lives(s);
  std::vector<LiveBuffer> arena(s.buffers.size());
  std::vector<int64_t> local_bytes(s.phases.size());
  for (size_t i = 0; i < s.buffers.size(); ++i) {
    Buffer& b = s.buffers[i];
    if (static_cast<int32_t>(i) == plan.logits.id || life[i].first < 0) continue;
    const Phase& phase = s.phases[static_cast<size_t>(life[i].first)];
    b.local = !options.eager && life[i].first == life[i].last && phase.work == Work::kRows && b.fixed_bytes == 0;
    if (b.local) {
      int64_t& taken = local_bytes[static_cast<size_t>(life[i].first)];
      b.offset = taken;
      taken += round_up(b.row_bytes, kAlign);
      s.local_bytes = std::max(s.local_bytes, taken);
    } else {
      const int64_t bytes = b.fixed_bytes + b.row_bytes * (b.outputs ? options.outputs : options.rows);
      arena[i] = {.bytes = round_up(bytes, kAlign), .first = life[i].first, .last = life[i].last};
    }
  }
  s.arena_bytes = place_buffers(arena);
  for (size_t i = 0; i < s.buffers.size(); ++i) {
    if (!s.buffers[i].local) s.buffers[i].offset = arena[i].offset;
  }
}

}  // namespace

Work work_of(NodeKind kind) noexcept {
  switch (kind) {
    case NodeKind::kExpertGroup:
      return Work::kOnce;
    case NodeKind::kLinear:
    case NodeKind::kAttend:
    case NodeKind::kConv:
    case NodeKind::kDelta:
    case NodeKind::kExpertLinear:
      return Work::kItems;
    default:
      return Work::kRows;
  }
}

Schedule make_schedule(const Plan& plan, const Weights& weights, const ScheduleOptions& options) {
  Schedule s;
  Expander(plan, weights, options, s).expand();
  if (options.eager) {
    group_eager(s);
  } else {
    Grouper(s).group();
  }
  for (Phase& p : s.phases) {
    if (p.work != Work::kItems) continue;
    p.few = cut(s, plan, weights, p, few_piece, options.threads);
    p.many = cut(s, plan, weights, p, many_piece, options.threads);
  }
  find_next_linears(s.phases);
  place(s, plan, options);
  return s;
}

}  // namespace tern::cpu
