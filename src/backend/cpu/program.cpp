#include "backend/cpu/program.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace tern::cpu {
namespace {

/// Floats that an item of any node needs.
int64_t scratch_floats(const Plan& plan, const ProgramLimits& limits) {
  int64_t most = 0;
  for (const Op& op : plan.ops) {
    if (const auto* a = std::get_if<AttendArgs>(&op.args)) {
      const int64_t vectors = int64_t{kTileRows} * (a->heads / a->kv_heads);
      most = std::max(most, attend_scratch(vectors, a->head_dim_k, a->head_dim_v) +
                                fresh_scratch(limits.rows, a->head_dim_k) + fresh_scratch(limits.rows, a->head_dim_v));
    } else if (const auto* d = std::get_if<DeltaRuleArgs>(&op.args)) {
      most = std::max<int64_t>(most, delta_scratch(d->head_dim));
    } else if (const auto* e = std::get_if<ExpertLinearArgs>(&op.args)) {
      most = std::max(most, kExpertRows * plan.info(e->weight).info.ne[1]);
    }
  }
  return most;
}

}  // namespace

void Workspace::fit(int64_t arena_bytes, int64_t scratch_bytes) {
  for (const auto& [memory, bytes] : {std::pair(&arena, arena_bytes), std::pair(&scratch, scratch_bytes)}) {
    if (static_cast<size_t>(bytes) <= memory->size()) continue;
    *memory = Memory();  // the old one first: both together may not fit
    *memory = Memory(static_cast<size_t>(bytes));
  }
}

CpuProgram::CpuProgram(Machine& machine, const ProgramLimits& limits, bool eager)
    : machine_(machine), plan_(limits.part ? *limits.part : *machine.plan), limits_(limits), eager_(eager) {
  const Plan& plan = plan_;
  const int threads = machine.pool->size();
  if (!plan.kv_layers.empty()) {
    least_kv_heads_ = std::ranges::min_element(plan.kv_layers, {}, &KvLayer::kv_heads)->kv_heads;
  }
  const int64_t wanted_tasks = ceil_div<int64_t>(kTasksAThread * threads, least_kv_heads_);
  attend_parts_ = 2 * wanted_tasks;
  schedule_ = make_schedule(plan, machine.weights,
                            {.rows = limits.rows,
                             .outputs = limits.outputs,
                             .threads = threads,
                             .eager = eager,
                             .attend_parts = attend_parts_});
  scratch_step_ = round_up<int64_t>(schedule_.local_bytes + 4 * scratch_floats(plan, limits), 4096);
  machine.workspace.fit(schedule_.arena_bytes, scratch_step_ * threads);
  base_.resize(schedule_.buffers.size());
  for (const Buffer& b : schedule_.buffers) {
    row_step_.push_back(b.local ? 0 : b.row_bytes);
    thread_step_.push_back(b.local ? scratch_step_ : 0);
  }
  const auto rows = static_cast<size_t>(limits.rows);
  for (std::vector<int32_t>* v : {&position_, &seq_of_row_, &first_part_, &n_parts_}) v->resize(rows);
  tasks_.resize(rows + static_cast<size_t>(attend_parts_));
  tails_.resize(rows);
  if (const CacheShape& shape = machine.cache.shape(); shape.has_tails()) {
    for (const KvLayer& l : plan.kv_layers) {
      const int64_t both = tail_bytes(shape.k, l.kv_heads * l.head_dim_k * kPageTokens) +
                           tail_bytes(shape.v, l.kv_heads * l.head_dim_v * kPageTokens);
      middle_page_bytes_ = std::max(middle_page_bytes_, both / 2);
    }
    middle_ = Memory(static_cast<size_t>(middle_page_bytes_ * (limits.rows / kPageTokens + 1)));
  }
  for (const int32_t ids : schedule_.groupings) {
    const auto router = std::ranges::find_if(plan.ops, [&](const Op& o) { return o.out.id == ids; });
    const auto* a = router == plan.ops.end() ? nullptr : std::get_if<RouterArgs>(&router->args);
    CHECK(a, "expert ids that no router made");
    const auto pairs = static_cast<size_t>(std::max(limits.rows, limits.outputs) * a->used);
    const auto experts = static_cast<size_t>(a->experts);
    Grouping g{.used = a->used, .experts = a->experts};
    g.slot_of_pair.resize(pairs);
    g.pair_of_slot.resize(pairs);
    g.next.resize(experts);
    g.active.resize(experts);
    groupings_.push_back(std::move(g));
  }
}

void CpuProgram::run(const Step& step, std::span<float> logits) {
  begin(step, logits);
  run_phases(0, static_cast<uint32_t>(schedule_.phases.size()));
}

void CpuProgram::run_traced(const Step& step, std::span<float> logits,
                            const std::function<void(const OpTrace&)>& sink) {
  if (!eager_) {
    if (!traced_) traced_ = std::make_unique<CpuProgram>(machine_, limits_, true);
    return traced_->run_traced(step, logits, sink);
  }
  begin(step, logits);
  const Plan& plan = plan_;
  size_t phase = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    const size_t first = phase;
    while (phase < schedule_.nodes.size() && schedule_.nodes[phase].op == static_cast<int32_t>(i)) ++phase;
    run_phases(static_cast<uint32_t>(first), static_cast<uint32_t>(phase));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const Val out = plan.ops[i].out;
    const ValInfo& info = plan.info(out);
    sink({.op = i,
          .data = f32(out.id, 0),
          .rows = info.outputs_only ? static_cast<int64_t>(step.out_rows.size()) : step.rows(),
          .cols = info.is_ids ? 0 : info.cols,
          .seconds = seconds});
  }
}

void CpuProgram::begin(const Step& step, std::span<float> logits) {
  const Plan& plan = plan_;
  CHECK(step.rows() <= limits_.rows && static_cast<int32_t>(step.out_rows.size()) <= limits_.outputs &&
            static_cast<int32_t>(step.seqs.size()) <= limits_.seqs,
        "{} rows, {} outputs, {} sequences in a program for {}, {}, {}", step.rows(), step.out_rows.size(),
        step.seqs.size(), limits_.rows, limits_.outputs, limits_.seqs);
  const size_t out_rows = plan.info(plan.logits).outputs_only ? step.out_rows.size() : step.tokens.size();
  CHECK(logits.size() >= out_rows * static_cast<size_t>(plan.info(plan.logits).cols));
  step_ = &step;
  place_buffers();
  base_[static_cast<size_t>(plan.logits.id)] = reinterpret_cast<std::byte*>(logits.data());
  for (size_t s = 0; s < step.seqs.size(); ++s) {
    const SeqRows& seq = step.seqs[s];
    for (int32_t i = 0; i < seq.n_rows; ++i) {
      const auto row = static_cast<size_t>(seq.first_row + i);
      position_[row] = seq.position + i;
      seq_of_row_[row] = static_cast<int32_t>(s);
      n_parts_[row] = 0;
    }
  }
  if (plan.kv_layers.empty()) return;
  open_tails();
  plan_attention();
}

/// Programs made since may have replaced the workspace by a larger one.
void CpuProgram::place_buffers() {
  const Workspace& w = machine_.workspace;
  if (arena_ == w.arena.data() && scratch_ == w.scratch.data()) return;
  arena_ = w.arena.data();
  scratch_ = w.scratch.data();
  for (size_t i = 0; i < base_.size(); ++i) {
    const Buffer& b = schedule_.buffers[i];
    base_[i] = (b.local ? scratch_ : arena_) + b.offset;
  }
}

// ---- The walk ----

void CpuProgram::run_phases(uint32_t first, uint32_t last) {
  last_phase_ = last;
  const ThreadPool::Phase opened = advance(first, 0);
  machine_.pool->run(
      opened,
      [this](uint32_t begin, uint32_t end, int thread) {
        const Phase& p = schedule_.phases[phase_];
        run_range(p, begin, end, thread);
        expect_weights(p, thread);
      },
      [this](int thread) { return advance(phase_ + 1, thread); });
}

/// Does what is not worth a second thread and opens the next phase that is.
ThreadPool::Phase CpuProgram::advance(uint32_t phase, int thread) {
  for (phase_ = phase; phase_ < last_phase_; ++phase_) {
    const Phase& p = schedule_.phases[phase_];
    const uint32_t n = items(p);
    if (n > 0 && !serial(p)) return open(p, n);
    run_range(p, 0, n, thread);
  }
  return {};
}

/// In steps of few rows work is dealt: a thread keeps its rows, and knows what it will read of the next matrices.
ThreadPool::Phase CpuProgram::open(const Phase& p, uint32_t items) const {
  return {.items = items, .grain = grain(p), .dealt = rows() <= kFewRows};
}

/// A step of few rows reads all weights, but not while one thread norms and rounds, or the last ends its piece.
void CpuProgram::expect_weights(const Phase& p, int thread) const {
  constexpr int64_t kMost = 128 << 10;  // of a second-level cache of 512 KB and more
  if (rows() > kFewRows || p.next_linears < 0) return;
  const std::vector<Chunk>& next = schedule_.phases[static_cast<size_t>(p.next_linears)].few;
  if (static_cast<size_t>(thread) >= next.size()) return;
  const Chunk& c = next[static_cast<size_t>(thread)];
  const Weight w = args<LinearArgs>(schedule_.nodes[static_cast<size_t>(c.node)]).weight;
  const Matrix& m = machine_.weights.matrix(w);
  const int64_t row_bytes = static_cast<int64_t>(machine_.weights.matrix_bytes(w)) / m.rows;
  const int64_t bytes = std::min(kMost, (c.end - c.begin) * row_bytes);
  machine_.pool->expect(thread, {m.data + c.begin * row_bytes, static_cast<size_t>(bytes)});
}

int64_t CpuProgram::node_items(const Node& n) const {
  const auto seqs = static_cast<int64_t>(step_->seqs.size());
  switch (n.kind) {
    case NodeKind::kAttend:
      return int64_t{n_tasks_} * args<AttendArgs>(n).kv_heads;
    case NodeKind::kConv:
      return seqs * ceil_div(machine_.plan->info(op(n).out).cols, kConvChannels);
    case NodeKind::kDelta:
      return seqs * args<DeltaRuleArgs>(n).v_heads;
    case NodeKind::kExpertLinear: {
      const int64_t chunks =
          ceil_div(machine_.weights.matrix(args<ExpertLinearArgs>(n).weight).rows, expert_chunk_rows(n));
      return groupings_[static_cast<size_t>(n.extra)].n_active * chunks;
    }
    default:
      return 0;  // a linear: its chunks were cut beforehand
  }
}

uint32_t CpuProgram::items(const Phase& p) const {
  if (p.work == Work::kOnce) return 1;
  if (p.work == Work::kRows) return static_cast<uint32_t>(p.outputs ? step_->out_rows.size() : step_->tokens.size());
  auto n = static_cast<int64_t>(chunks(p).size());
  for (const int32_t node : p.nodes) n += node_items(schedule_.nodes[static_cast<size_t>(node)]);
  return static_cast<uint32_t>(n);
}

uint32_t CpuProgram::grain(const Phase& p) const {
  const uint32_t n = items(p), threads = static_cast<uint32_t>(machine_.pool->size());
  // Of few rows several neighbours at a time: pieces of an expert are one stream of memory, a head's keys are asked for
  // while the head before is computed. MoE 12.7 -> 10.6 ms a step, attention of 8 rows of BitNet 72M 0.51 -> 0.43.
  if (p.work != Work::kRows) return rows() <= kFewRows && p.few.empty() ? std::max(1u, n / (4 * threads)) : 1;
  // Each taking moves cache lines between cores for as long as a row of a small model takes: all such phases of 8 rows
  // of BitNet 72M one by one 0.44 ms a step, four by four 0.35. Keys of one dim of 32 tokens lie in a line, which two
  // threads would write by turns: of a prompt of 64, by 8 writing them took 2.5 ms, by 16 2.0, by 32 1.0.
  return std::min(ceil_div(n, threads), 32u);
}

void CpuProgram::run_range(const Phase& p, uint32_t begin, uint32_t end, int thread) {
  if (begin == end) return;
  switch (p.work) {
    case Work::kRows:
      for (uint32_t row = begin; row < end; ++row) {
        for (const int32_t n : p.nodes) row_node(schedule_.nodes[static_cast<size_t>(n)], row, thread);
      }
      break;
    case Work::kOnce:
      for (const int32_t n : p.nodes) group_experts(schedule_.nodes[static_cast<size_t>(n)]);
      break;
    case Work::kItems:
      for (uint32_t i = begin; i < end; ++i) run_item(p, i, thread);
      break;
  }
}

void CpuProgram::run_item(const Phase& p, int64_t item, int thread) {
  const std::vector<Chunk>& cut = chunks(p);
  if (item < static_cast<int64_t>(cut.size())) {
    const Chunk& c = cut[static_cast<size_t>(item)];
    return linear(schedule_.nodes[static_cast<size_t>(c.node)], c.begin, c.end);
  }
  item -= static_cast<int64_t>(cut.size());
  for (const int32_t index : p.nodes) {
    const Node& n = schedule_.nodes[static_cast<size_t>(index)];
    const int64_t items = node_items(n);
    if (item >= items) {
      item -= items;
      continue;
    }
    switch (n.kind) {
      case NodeKind::kAttend:
        return attend(n, item, thread);
      case NodeKind::kConv:
        return conv(n, item);
      case NodeKind::kDelta:
        return delta(n, item, thread);
      default:
        return expert_linear(n, item, thread);
    }
  }
}

}  // namespace tern::cpu
