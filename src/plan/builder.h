// The only way to make a Plan. Resolves names to tensors, checks shapes, inserts the rotations of a Hadamard fold, and
// at the end refuses a file with a tensor that nothing reads.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gguf/file.h"
#include "plan/hadamard_fold.h"
#include "plan/plan.h"

namespace tern {

class Builder {
 public:
  using Loc = std::source_location;

  /// `file` must outlive the Builder (the Plan copies what it needs). Parses and checks `prism.hadamard.*`.
  explicit Builder(const gguf::File& file);

  // ---- Metadata, keys relative to "<architecture>." ----
  const std::string& architecture() const { return plan_.architecture; }
  const gguf::Metadata& metadata() const { return file_.metadata(); }
  int64_t require_int(std::string_view key) const;
  int64_t get_int(std::string_view key, int64_t otherwise) const;
  double require_float(std::string_view key) const;
  double get_float(std::string_view key, double otherwise) const;
  /// A key that is one integer, or an array with one a layer.
  int64_t layer_int(std::string_view key, int64_t layer, std::optional<int64_t> otherwise = {}) const;
  /// Refuses the file when `key` is present and not `neutral`: the family does not implement what it asks for.
  void refuse_unless(std::string_view key, double neutral) const;

  /// A tensor by the name `weight` takes, without claiming it: nullptr when absent.
  const gguf::TensorInfo* peek(std::string_view name) const;
  int64_t tensor_count() const { return static_cast<int64_t>(file_.tensors().size()); }

  // ---- Weights. Inside a block names are relative to "blk.<layer>."; ".weight" is appended unless the name has a
  // suffix. ----
  void begin_layer(int64_t layer) { layer_ = static_cast<int32_t>(layer); }
  void end_layers() { layer_ = -1; }
  /// kBadFile naming the tensor when it is absent.
  Weight weight(std::string_view name, Loc loc = Loc::current());
  /// A null Weight when absent.
  Weight find_weight(std::string_view name);
  bool has(std::string_view name) const;
  const gguf::TensorInfo& info(Weight w) const { return plan_.info(w).info; }
  /// Claims every tensor whose name starts with `prefix` without reading it; `tern plan` lists them.
  void leave_unused(std::string_view prefix);
  /// The f32 values of a small tensor read at build time (rope factors).
  std::optional<std::vector<float>> read_floats(std::string_view full_name);

  // ---- Ops. Every shape is checked here; the message names op, tensor and both sizes. ----
  Val embed(Weight table, Loc loc = Loc::current());
  Val rms_norm(Val x, Weight weight, double eps, Loc loc = Loc::current());                     // over all columns
  Val head_norm(Val x, int64_t head_dim, Weight weight, double eps, Loc loc = Loc::current());  // over each head
  Val l2_norm(Val x, int64_t group, double eps, Loc loc = Loc::current());
  /// Applies `<name>.scale` and `<name>.bias` when the file has them, and the rotation of a folded weight.
  Val linear(Val x, Weight w, Loc loc = Loc::current());
  Val add(Val a, Val b, Loc loc = Loc::current());
  Val glu(Val gate, Val x, Gate kind, Loc loc = Loc::current());
  Val rope(Val x, const RopeTable& table, int64_t head_dim, Loc loc = Loc::current());
  struct Attend {
    int64_t heads = 0, kv_heads = 0;
    std::optional<double> scale{};  // 1/sqrt(head_dim_k) when absent
  };
  Val attend(Val q, Val k, Val v, const Attend& a, Loc loc = Loc::current());  // makes a new KV layer
  Val take(Val x, int64_t offset, int64_t width, int64_t stride, Loc loc = Loc::current());
  struct Recurrent {
    int64_t k_heads = 0, v_heads = 0, head_dim = 0, taps = 0;
  };
  int32_t recurrent_state(const Recurrent& r);  // makes a new state layer
  Val conv_silu(Val x, Weight kernel, int32_t state, Loc loc = Loc::current());
  struct DeltaInputs {
    Val q, k, v, alpha, beta;
    Weight a, dt;
  };
  Val delta_rule(const DeltaInputs& in, int32_t state, const Recurrent& r, Loc loc = Loc::current());
  struct Routes {
    Val ids, weights;
  };
  Routes router(Val logits, int64_t used, bool normalise, double scale, Loc loc = Loc::current());
  Val expert_linear(Val x, Weight experts, Val ids, Loc loc = Loc::current());
  Val expert_sum(Val x, Val weights, Loc loc = Loc::current());
  Val pick_rows(Val x, Loc loc = Loc::current());

  int64_t cols(Val v) const { return plan_.info(v).cols; }
  const std::optional<HadamardFold>& fold() const { return fold_; }
  void set_ternary_row_activations() { plan_.ternary_row_activations = true; }

  /// The finished plan; refuses unread tensors, unapplied scales, and folded weights that were consumed without their
  /// transform.
  Plan finish(Val logits, Val hidden, int64_t n_layers);

 private:
  std::string full_name(std::string_view name) const;
  Weight add_weight(const gguf::TensorInfo& info);
  Val push(OpArgs args, std::vector<Val> inputs, int64_t out_cols, Loc loc);
  Val rotated(Val x, Weight w, Loc loc);  // the input a folded weight wants; x itself for others
  void use_as(Weight w, WeightUse use);
  float scale_of(const std::string& weight_name);
  int32_t rope_index(const RopeTable& table);
  int32_t sign_index(int64_t width);
  void expect(bool ok, Loc loc, const std::string& what) const;

  const gguf::File& file_;
  Plan plan_;
  std::optional<HadamardFold> fold_;
  int32_t layer_ = -1;
  std::set<std::string, std::less<>> claimed_;
  std::map<std::string, Weight, std::less<>> by_name_;
  std::map<std::tuple<int32_t, int64_t, bool>, Val> rotations_;  // (input, width, permuted) -> rotated activation
  std::set<int32_t> used_weights_;
};

}  // namespace tern
