// Which ops of a plan are left to the op that reads their result, which does them while it loads, or to the product
// whose result they add to: slices of columns, norms, gates, rotations, the rotary embedding and residual sums.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/matrix_source.h"
#include "plan/plan.h"

namespace tern::cuda {

/// How attention and the delta rule read an input: heads of another val, with what is done on the way, in this order.
struct HeadReading {
  Val source;
  int64_t offset = 0, row_stride = 0, head_stride = 0;  // floats: a row, a head in it
  bool normalise = false;                               // rms_norm with `norm`, l2_norm without
  Weight norm{};
  float eps = 0;
  int32_t rope = -1;  // rope table
};

/// How products read an activation: gate(g) * rms_norm(x), then a rotation, each part where there is one.
struct ProductReading {
  Val x;
  Columns x_columns{};
  Weight norm{};
  int64_t group = 0;
  float eps = 0;
  Val gate{};
  Columns gate_columns{};
  Gate gate_kind{};
  int32_t rotate = -1;  // the rotate op
  Val plain{};          // a val that must hold what is rotated, for its other readers
};

/// What a product adds to its result, and which val that makes.
struct Residual {
  Val addend, out;
};

class Readings {
 public:
  /// `fuse` false: every op for itself. `rounds(w)`: products with w do not read f32.
  Readings(const Plan& plan, const std::function<bool(Weight)>& rounds, bool fuse);

  /// How the op at `op` reads its input `v` of heads of `dim` columns.
  HeadReading heads(size_t op, Val v, int64_t dim) const;
  ProductReading product(Val v) const;
  std::optional<Residual> residual(size_t op) const;
  const std::vector<size_t>& readers(Val v) const { return readers_[static_cast<size_t>(v.id)]; }
  /// The op that does the work of `op`: itself unless it was absorbed.
  int32_t done_by(size_t op) const { return done_by_[op]; }
  bool absorbed(size_t op) const { return done_by_[op] != static_cast<int32_t>(op); }

 private:
  template <typename Args>
  const Args* made_by(Val v) const;
  template <typename Args>
  const Args* absorbable(Val v) const;
  Val absorb(Val v, size_t reader);
  HeadReading as_it_is(Val v, int64_t dim) const;
  HeadReading head_chain(size_t op, Val v, int64_t dim);
  void read_heads(size_t op, const AttendArgs& a);
  void read_delta_inputs(size_t op, const DeltaRuleArgs& a);
  bool only_products_read(Val v) const;
  void read_products(Val v);
  void read_gated(ProductReading& r, size_t reader);
  void read_norm(ProductReading& r, size_t reader);
  void add_residual(size_t op);

  const Plan& plan_;
  const std::function<bool(Weight)> rounds_;
  std::vector<int32_t> done_by_;
  std::vector<int32_t> producer_;                            // of every val: the op that makes it
  std::vector<std::vector<size_t>> readers_;                 // of every val: the ops that read it
  std::map<std::pair<size_t, int32_t>, HeadReading> heads_;  // (op, val)
  std::map<int32_t, ProductReading> products_;               // val
  std::map<size_t, Residual> residuals_;                     // the product's op
};

}  // namespace tern::cuda
