// Which ops of a plan are left to their only reader, which does them while it loads: slices of columns, norms of heads
// and the rotary embedding in front of attention and of the delta rule, rotations in front of products.
#pragma once
#include <map>
#include <vector>

#include "plan/plan.h"

namespace tern::cuda {

/// How an input is read: from another val, and with what done on the way, in this order.
struct Reading {
  Val source;
  int64_t offset = 0, row_stride = 0, head_stride = 0;  // floats: a row, a head in it
  bool normalise = false;                               // rms_norm with `norm`, l2_norm without
  Weight norm{};
  float eps = 0;
  int32_t rope = -1;    // rope table
  int32_t rotate = -1;  // the rotate op
};

class Readings {
 public:
  /// `fuse` false: every op for itself.
  Readings(const Plan& plan, bool fuse);

  /// The way the op at `op` reads its input `v` of heads of `dim` columns.
  Reading of(size_t op, Val v, int64_t dim) const;
  /// The op that does the work of `op`: itself unless it was absorbed. An absorbed op may have several readers
  /// (products of one rotation): the first of them.
  int32_t done_by(size_t op) const { return done_by_[op]; }
  bool absorbed(size_t op) const { return done_by_[op] != static_cast<int32_t>(op); }

 private:
  template <typename Args>
  const Args* absorbable(Val v) const;
  Val absorb(Val v, size_t reader);
  Reading as_it_is(Val v, int64_t dim) const;
  void read_heads(size_t op, const AttendArgs& a);
  Reading head_chain(size_t op, Val v, int64_t dim);
  void read_delta_inputs(size_t op, const DeltaRuleArgs& a);
  void read_rotated(size_t op, const RotateArgs& a);

  const Plan& plan_;
  std::vector<int32_t> done_by_;
  std::vector<int32_t> producer_, uses_;                    // of every val: the op that makes it, how many read it
  std::map<std::pair<size_t, int32_t>, Reading> readings_;  // (op, val)
};

}  // namespace tern::cuda
