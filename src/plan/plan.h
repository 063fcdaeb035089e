// A Plan: one model family written down as a flat list of ops over activations whose only symbolic size is the row
// count. Made once by a Builder, then immutable. It names weights, never formats, threads, devices, pages or batches.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gguf/file.h"

namespace tern {

/// Where an op comes from: for `tern plan`, `--trace` and error messages.
struct Site {
  int32_t layer = -1;  // -1 outside the blocks
  const char* file = "";
  uint32_t line = 0;
};

/// An activation [rows, cols] of a Plan. f32, except the expert ids of a router (int32).
struct Val {
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
  bool operator==(const Val&) const = default;
};

/// A row of Plan::weights.
struct Weight {
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
  bool operator==(const Weight&) const = default;
};

struct ValInfo {
  int64_t cols = 0;
  bool outputs_only = false;  // has one row per output of the Step instead of one per token
  bool is_ids = false;        // int32 instead of f32
};

enum class WeightUse : uint8_t {
  kVector,   // 1-D or small f32 data an op reads whole (norms, biases, conv kernels)
  kTable,    // rows looked up by token id
  kMatrix,   // y = W x, W [ne1, ne0]
  kExperts,  // one matrix an expert, W [ne2][ne1, ne0]
};

struct PlanWeight {
  std::string name;
  gguf::TensorInfo info;  // type, shape, offset; names and extents as in the file
  WeightUse use = WeightUse::kMatrix;
  bool also_table = false;  // a tied embedding: read as kTable and as kMatrix
};

// ---- Arguments of each op. Shapes: inputs and output are [rows, cols]; "chunk" = consecutive columns of one row. ----

/// out[r] = row tokens[r] of the table.
struct EmbedArgs {
  Weight table;
};
/// out = x / sqrt(mean(x^2) + eps) * weight, over every chunk of `group` columns (weight has `group` elements). Sum in
/// double.
struct RmsNormArgs {
  Weight weight;
  float eps = 0;
  int64_t group = 0;
};
/// out = x / max(sqrt(sum x^2), eps) over every chunk of `group` columns. Sum in double.
struct L2NormArgs {
  float eps = 0;
  int64_t group = 0;
};
/// out = (W x) * scale + bias. x has ne0 columns, out ne1.
struct LinearArgs {
  Weight weight;
  Weight bias{};
  float scale = 1.0f;
};
/// out = a + b.
struct AddArgs {};
enum class Gate : uint8_t { kSilu, kRelu2, kSigmoid };
/// out = gate(a) * b, elementwise; b may have fewer columns only if a is [rows, 1] (one gate a row).
struct GluArgs {
  Gate gate = Gate::kSilu;
};
/// Rotates the first 2*freq.size() dims of every head of `head_dim` columns by angle position * freq[i] (double), then
/// multiplies the rotated dims by `magnitude`. neox: pair i = (i, i+n/2); otherwise (2i, 2i+1).
struct RopeArgs {
  int32_t table = 0;
  int64_t head_dim = 0;
};
/// Causal attention of the rows of each sequence over its cache `cache`, after appending k and v to it. Inputs q, k, v.
struct AttendArgs {
  int32_t cache = 0;
  int32_t heads = 0, kv_heads = 0;
  int64_t head_dim_k = 0, head_dim_v = 0;
  float scale = 0;
};
/// out = for every chunk of `stride` columns, the `width` columns from `offset`.
struct TakeArgs {
  int64_t offset = 0, width = 0, stride = 0;
};
/// Blockwise normalised Walsh-Hadamard transform of every chunk of `width` columns with optional signs
/// (docs/formats.md): forward: signs, then H; inverse: H, then signs.
struct RotateArgs {
  int32_t signs = -1;
  int64_t block = 0, width = 0;
  bool inverse = false;
};
/// Delta-net V heads, tiled -> grouped: y[d + hd*(r + rep*k)] = x[d + hd*(k + n_k*r)].
struct PermuteHeadsArgs {
  int64_t k_heads = 0, rep = 0, head_dim = 0;
};
/// Causal depthwise convolution with history in recurrent state `state`, then SiLU. kernel [taps, channels].
struct ConvArgs {
  Weight kernel;
  int32_t state = 0;
  int64_t taps = 0;
};
/// Gated delta rule (docs/formats.md). Inputs q, k (normalised, [k_heads*dim]), v [v_heads*dim], alpha, beta [v_heads].
/// decay = exp(a * softplus(alpha + dt)), beta = sigmoid(beta); v head h uses k head h mod k_heads; read-out /
/// sqrt(dim).
struct DeltaRuleArgs {
  Weight a, dt;
  int32_t state = 0;
  int32_t k_heads = 0, v_heads = 0;
  int64_t head_dim = 0;
};
/// Input: logits [experts]. out = ids [used] (int32, best first, ties to the lower id), out2 = weights [used]:
/// softmax over all experts, renormalised over the chosen when `normalise`, times `scale`.
struct RouterArgs {
  int32_t experts = 0, used = 0;
  bool normalise = true;
  float scale = 1.0f;
};
/// Inputs x, ids. out chunk j (of ne1 columns) = W[ids[j]] x_j; x_j is chunk j of x, or all of x when x has ne0
/// columns.
struct ExpertLinearArgs {
  Weight weight;
  float scale = 1.0f;
};
/// Inputs x [used * cols], weights [used]. out = sum_j weights[j] * chunk j.
struct ExpertSumArgs {};
/// out = the rows of x listed in Step::out_rows.
struct PickRowsArgs {};
/// out = Step::input. No inputs; the first op of a segment (segment.h), and of no other plan.
struct InputArgs {};

using OpArgs = std::variant<EmbedArgs, RmsNormArgs, L2NormArgs, LinearArgs, AddArgs, GluArgs, RopeArgs, AttendArgs,
                            TakeArgs, RotateArgs, PermuteHeadsArgs, ConvArgs, DeltaRuleArgs, RouterArgs,
                            ExpertLinearArgs, ExpertSumArgs, PickRowsArgs, InputArgs>;

struct Op {
  OpArgs args;
  std::vector<Val> inputs;
  Val out;
  Val out2{};  // router only
  Site site;
};

/// "rms_norm", "linear", ... of the variant's alternative.
std::string_view op_name(const Op& op) noexcept;

/// Frequencies of a rotary embedding after all scaling rules (linear, YaRN, per-dimension factors) were applied.
struct RopeTable {
  std::vector<double> freq;  // one a pair
  float magnitude = 1.0f;    // YaRN's attention factor
  bool neox = true;
  bool operator==(const RopeTable&) const = default;
};

/// What one attention layer keeps a token: kv_heads * (head_dim_k + head_dim_v) values.
struct KvLayer {
  int32_t kv_heads = 0;
  int64_t head_dim_k = 0, head_dim_v = 0;
};

/// What one recurrent layer keeps a sequence: conv history [(taps-1), channels] and S [v_heads, dim (value), dim
/// (key)], f32.
struct StateLayer {
  int64_t channels = 0, taps = 0;
  int64_t v_heads = 0, head_dim = 0;
  int64_t conv_floats() const { return channels * (taps - 1); }
  int64_t delta_floats() const { return v_heads * head_dim * head_dim; }
};

struct Plan {
  std::string architecture;
  std::vector<Op> ops;
  std::vector<ValInfo> vals;
  std::vector<PlanWeight> weights;
  std::vector<RopeTable> ropes;
  std::vector<std::vector<float>> signs;  // +1/-1 vectors of Hadamard folds
  std::vector<KvLayer> kv_layers;
  std::vector<StateLayer> state_layers;
  std::vector<std::string> unused_tensors;  // claimed on purpose without being read (multi-token-prediction heads)
  Val logits;  // the result
  Val hidden;  // what the head reads: the last layer behind the final norm, of the same rows
  /// Columns of the result that are logits of tokens; the others of n_vocab pad. 0: the result is none.
  int64_t n_tokens = 0;
  int64_t n_vocab = 0, n_embd = 0, n_layers = 0, n_context_train = 0;
  /// The model was trained with int8 activations, one scale a token, before its ternary weights (BitNet): this
  /// overrides the rule of the weight's format for every ternary weight.
  bool ternary_row_activations = false;

  const ValInfo& info(Val v) const { return vals[static_cast<size_t>(v.id)]; }
  const PlanWeight& info(Weight w) const { return weights[static_cast<size_t>(w.id)]; }
  bool recurrent() const { return !state_layers.empty(); }
};

/// The part of a plan that ends at `hidden`, which is its result then. Weights and vals keep their ids, ops their places.
Plan hidden_part(const Plan& plan);

}  // namespace tern
