// Watching a model run op by op: what each computed and how long it took; two backends in lockstep.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/model.h"
#include "plan/plan.h"

namespace tern {

/// One op of an eager walk, reduced to figures.
struct TraceRow {
  size_t op = 0;
  int64_t rows = 0, cols = 0;
  double seconds = 0;
  float min = 0, max = 0;
  int64_t not_numbers = 0;  // NaN or infinite
  uint64_t hash = 0;        // FNV-1a of the bytes: equal runs have equal hashes
};
TraceRow trace_row(const OpTrace& trace);

/// "blk.3 linear attn_q.weight": where an op stands and what it reads.
std::string op_label(const Plan& plan, size_t op);

/// The main weight an op reads; null for ops without one.
Weight op_weight(const Op& op);

/// The first op whose outputs on two backends differ by more than `tolerance` times the largest value of the
/// reference's output.
struct Divergence {
  size_t op = 0;
  int64_t row = 0, col = 0;
  float reference = 0, other = 0;
};
/// Runs `tokens` on both models (of one file) op by op. Each op of the other gets its own inputs, so differences add
/// up.
std::optional<Divergence> first_divergence(Model& reference, Model& other, std::span<const int32_t> tokens,
                                           double tolerance);

}  // namespace tern
