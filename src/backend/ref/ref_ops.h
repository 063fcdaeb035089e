// The ops on plain rows. Each takes spans of one row and says what it computes in plan/plan.h's words.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/ref/ref_backend.h"
#include "plan/plan.h"
#include "quant/format.h"

namespace tern::ref {

// Values live in double; in Precision::kF32 the executor rounds each op's result to f32, and norms, softmax and
// products of Q8_0 add up and round inside as llama.cpp does on x86: docs/decisions/0001-ref-precision.md.
using Row = std::span<const double>;
using MutRow = std::span<double>;

/// A weight of the plan where the file maps it.
struct RefWeight {
  std::span<const std::byte> bytes;
  const quant::Format* format = nullptr;
  float tensor_scale = 1.0f;
  int64_t cols = 0, rows = 0;  // of one matrix
  size_t row_bytes = 0;
  quant::Activation rule = quant::Activation::kF32;
  /// Row `r` (counting through all experts) as floats.
  void decode_row(int64_t r, std::vector<float>& out) const;
  std::vector<double> decode_all() const;
};

void rms_norm(Row x, Row weight, float eps, MutRow out, Precision precision);
void l2_norm(Row x, int64_t group, float eps, MutRow out);
void glu(Gate gate, Row a, Row b, MutRow out);
void rope(const RopeTable& table, int64_t head_dim, int32_t position, MutRow x);
void take(const TakeArgs& args, Row x, MutRow out);
void rotate(const RotateArgs& args, std::span<const float> signs, MutRow x, Precision precision);
void permute_heads(const PermuteHeadsArgs& args, Row x, MutRow out);
void router(const RouterArgs& args, Row logits, int32_t* ids, MutRow weights);
/// One token through the causal convolution: `history` [(taps-1), channels] is read and shifted.
void conv_silu(const ConvArgs& args, Row kernel, Row u, MutRow history, MutRow out);
/// One token of the gated delta rule; `s` [v_heads, dim, dim] is read and updated.
struct DeltaRow {
  Row q, k, v, alpha, beta, a, dt;
};
void delta_rule(const DeltaRuleArgs& args, const DeltaRow& in, MutRow s, MutRow out);
/// Attention of one query row over `tokens` cached rows: k [tokens][kv_heads*dk], v [tokens][kv_heads*dv].
void attend(const AttendArgs& args, Row q, std::span<const double* const> k, std::span<const double* const> v,
            MutRow out, Precision precision);

/// x rounded by `rule`: in kF32 exactly as quant::quantize_row rounds the f32 row, in kF64 with the same rule in
/// double.
struct RoundedRow {
  std::vector<int8_t> q;
  double row_scale = 1;        // kI8Row: the multiplier s
  std::vector<double> values;  // what the row means after rounding
  std::vector<float> scales;   // of the groups, kF32 only
};
RoundedRow round_row(quant::Activation rule, Precision precision, Row x);
/// y[r][i] = (row first_row + i of w) . x[r] for every i < rows.
void matmul(const RefWeight& w, int64_t first_row, std::span<const RoundedRow> x, std::span<const MutRow> y,
            Precision precision);
/// The value / key (heads of `head_dim`) of one token after a round trip through its type.
void round_value(KvType type, MutRow x);
void round_key(KvType type, int64_t head_dim, MutRow x);
/// A kivi page of 64 exact rows of `cols` columns after a round trip: keys in groups of 32 rows of one column, values
/// in groups of 32 columns of one row.
void round_kivi_keys(KvType type, Row exact, int64_t cols, MutRow out);
void round_kivi_values(KvType type, Row exact, MutRow out);

}  // namespace tern::ref
