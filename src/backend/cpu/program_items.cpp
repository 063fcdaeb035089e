// The nodes whose work is cut into items: matrix products, attention, recurrences.
#include <algorithm>
#include <cstring>

#include "backend/cpu/program.h"
#include "base/checked.h"

namespace tern::cpu {

void CpuProgram::linear(const Node& n, int64_t row_begin, int64_t row_end) {
  const auto& a = args<LinearArgs>(n);
  const Matrix& m = machine_.weights.matrix(a.weight);
  const auto rows = static_cast<int64_t>(n.outputs ? step_->out_rows.size() : step_->tokens.size());
  if (rows == 0) return;
  n.kernel->matmul({.w = &m,
                    .act = at(n.in, 0, 0),
                    .act_rows = rows,
                    .out = f32(n.out, 0),
                    .out_stride = m.rows,
                    .row_begin = row_begin,
                    .row_end = row_end});
  if (a.scale == 1.0f && !a.bias) return;
  for (int64_t r = 0; r < rows; ++r) {
    float* y = f32(n.out, r) + row_begin;
    if (a.scale != 1.0f) machine_.ops->scale(a.scale, y, row_end - row_begin, y);
    if (a.bias) machine_.ops->add(y, machine_.weights.vector(a.bias) + row_begin, row_end - row_begin, y);
  }
}

void CpuProgram::conv(const Node& n, int64_t item) {
  const auto& a = args<ConvArgs>(n);
  const int64_t channels = machine_.plan->info(op(n).out).cols, blocks = ceil_div(channels, kConvChannels);
  const SeqRows& seq = step_->seqs[static_cast<size_t>(item / blocks)];
  const int64_t first = item % blocks * kConvChannels;
  const StateLayerMemory& s = machine_.cache.state(a.state);
  machine_.ops->conv_silu(
      {.x = f32(op(n).inputs[0].id, seq.first_row) + first,
       .kernel = machine_.weights.conv_kernel(a.kernel) + first,
       .history_in = seq.state_in == kZeroState ? nullptr : s.conv + seq.state_in * s.conv_floats + first,
       .history_out = s.conv + seq.state_out * s.conv_floats + first,
       .out = f32(n.out, seq.first_row) + first,
       .rows = seq.n_rows,
       .channels = std::min(kConvChannels, channels - first),
       .taps = a.taps,
       .stride = channels});
}

void CpuProgram::delta(const Node& n, int64_t item, int thread) {
  const auto& a = args<DeltaRuleArgs>(n);
  const Plan& plan = *machine_.plan;
  const SeqRows& seq = step_->seqs[static_cast<size_t>(item / a.v_heads)];
  const int64_t head = item % a.v_heads, k_head = head % a.k_heads;
  const StateLayerMemory& s = machine_.cache.state(a.state);
  const int64_t s_at = head * a.head_dim * a.head_dim;
  const std::vector<Val>& in = op(n).inputs;
  const auto input = [&](size_t i) { return f32(in[i].id, seq.first_row); };
  machine_.ops->delta_rule(
      {.q = input(0) + k_head * a.head_dim,
       .k = input(1) + k_head * a.head_dim,
       .v = input(2) + head * a.head_dim,
       .alpha = input(3) + head,
       .beta = input(4) + head,
       .q_stride = plan.info(in[0]).cols,
       .k_stride = plan.info(in[1]).cols,
       .v_stride = plan.info(in[2]).cols,
       .alpha_stride = plan.info(in[3]).cols,
       .beta_stride = plan.info(in[4]).cols,
       .a = machine_.weights.vector(a.a)[head],
       .dt = machine_.weights.vector(a.dt)[head],
       .s_in = seq.state_in == kZeroState ? nullptr : s.delta + seq.state_in * s.delta_floats + s_at,
       .s_out = s.delta + seq.state_out * s.delta_floats + s_at,
       .out = f32(n.out, seq.first_row) + head * a.head_dim,
       .out_stride = plan.info(op(n).out).cols,
       .rows = seq.n_rows,
       .dim = a.head_dim,
       .scratch = scratch(thread)});
}

int64_t CpuProgram::expert_chunk_rows(const Node& n) const {
  constexpr int64_t kChunkBytes = 48 << 10;
  const Weight w = args<ExpertLinearArgs>(n).weight;
  const Matrix& m = machine_.weights.matrix(w);
  const auto bytes = static_cast<int64_t>(machine_.weights.matrix_bytes(w));
  return round_up(std::max<int64_t>(1, kChunkBytes * m.rows / bytes), n.kernel->row_unit);
}

void CpuProgram::expert_linear(const Node& n, int64_t item, int thread) {
  const auto& a = args<ExpertLinearArgs>(n);
  const Grouping& g = groupings_[static_cast<size_t>(n.extra)];
  const int64_t rows = machine_.weights.matrix(a.weight).rows, step = expert_chunk_rows(n);
  const int64_t chunks = ceil_div(rows, step);
  const Grouping::Active& active = g.active[static_cast<size_t>(item / chunks)];
  const int64_t begin = item % chunks * step, end = std::min(rows, begin + step), width = end - begin;
  const int64_t act_bytes = schedule_.buffers[static_cast<size_t>(n.in)].row_bytes / g.used;
  const int64_t first_slot = active.first;
  for (int64_t done = 0; done < active.count; done += kExpertRows) {
    const int64_t batch = std::min(kExpertRows, active.count - done);
    float* product = scratch(thread);  // [batch][width], as rows of the batch that the expert got are scattered
    n.kernel->matmul({.w = &machine_.weights.matrix(a.weight, active.expert),
                      .act = at(n.in, 0, 0) + (first_slot + done) * act_bytes,
                      .act_rows = batch,
                      .out = product - begin,
                      .out_stride = width,
                      .row_begin = begin,
                      .row_end = end});
    for (int64_t i = 0; i < batch; ++i) {
      const int32_t pair = g.pair_of_slot[static_cast<size_t>(first_slot + done + i)];
      float* out = f32(n.out, pair / g.used) + pair % g.used * rows + begin;
      machine_.ops->scale(a.scale, product + i * width, width, out);
    }
  }
}

}  // namespace tern::cpu
