// A plan cut into consecutive segments, each a plan of its own for a backend of its own: what a layer reads and keeps
// (weights, keys, state) lies where the layer runs.
#pragma once
#include <cstddef>
#include <vector>

#include "plan/plan.h"

namespace tern {

/// The ops at which a plan may be cut, ascending: the first of every block and, last, of the head behind them.
std::vector<size_t> block_starts(const Plan& plan);

/// Ops [begin, end) of `plan` with the weights, caches and states that they use, all numbered anew from 0. `begin` is 0
/// or one of block_starts(): there one activation is all that the ops behind need of those before. It enters by an
/// InputArgs, which comes before the ops, and is the result (Plan::logits) of the segment that ends there.
Plan segment(const Plan& plan, size_t begin, size_t end);

}  // namespace tern
