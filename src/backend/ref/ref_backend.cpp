#include "backend/ref/ref_backend.h"

#include <algorithm>
#include <chrono>

#include "backend/activation_rule.h"
#include "backend/ref/ref_ops.h"
#include "base/error.h"

namespace tern {
namespace {

using ref::MutRow;
using ref::RefWeight;
using ref::Row;

struct RefProgram final : Program {
  explicit RefProgram(const Plan& p) : plan(p) {}
  const Plan& plan;  // the loaded one, or a part of it
};

/// The rows of one Val while a Step runs.
struct Rows {
  int64_t rows = 0, cols = 0;
  std::vector<double> f;
  std::vector<int32_t> ids;
  MutRow row(int64_t r) { return {f.data() + r * cols, static_cast<size_t>(cols)}; }
};

class RefBackend final : public Backend {
 public:
  explicit RefBackend(Precision precision) : precision_(precision) {}

  BackendInfo info() const override {
    return {.name = "ref",
            .device = precision_ == Precision::kF32 ? "scalar reference" : "scalar reference in float64",
            .threads = 1};
  }

  void load(const Plan& plan, const gguf::File& file, const LoadOptions& options) override {
    plan_ = &plan;
    for (const PlanWeight& w : plan.weights) {
      const quant::Format* format = quant::find_format(w.info.type);
      if (!format) {
        fail(ErrorCode::kUnsupported, "tensor '{}' is {}, which this engine cannot decode", w.name,
             type_info(w.info.type).name);
      }
      const TypeInfo& t = type_info(w.info.type);
      const std::span<const std::byte> bytes = file.bytes(w.info);
      weights_.push_back({.bytes = bytes,
                          .format = format,
                          .tensor_scale = quant::tensor_scale(w.info.type, bytes),
                          .cols = w.info.ne[0],
                          .rows = w.info.ne[1],
                          .row_bytes = static_cast<size_t>(w.info.ne[0] / t.block_elements * t.block_bytes),
                          .rule = activation_rule(plan, *format, options.activations)});
      vectors_.push_back(w.use == WeightUse::kVector ? weights_.back().decode_all() : std::vector<double>{});
    }
  }

  void reserve(const CacheShape& shape) override {
    shape_ = shape;
    k_.clear();
    v_.clear();
    k_packed_.clear();
    v_packed_.clear();
    conv_.clear();
    delta_.clear();
    const auto tokens = static_cast<size_t>(shape.pages) * kPageTokens;
    for (const KvLayer& l : plan_->kv_layers) {
      k_.emplace_back(tokens * static_cast<size_t>(l.kv_heads * l.head_dim_k));
      v_.emplace_back(tokens * static_cast<size_t>(l.kv_heads * l.head_dim_v));
    }
    if (kivi_bits(shape.k) > 0) k_packed_ = k_;
    if (kivi_bits(shape.v) > 0) v_packed_ = v_;
    for (const StateLayer& s : plan_->state_layers) {
      conv_.emplace_back(static_cast<size_t>(shape.state_slots) * static_cast<size_t>(s.conv_floats()));
      delta_.emplace_back(static_cast<size_t>(shape.state_slots) * static_cast<size_t>(s.delta_floats()));
    }
  }

  std::unique_ptr<Program> compile(const ProgramLimits& limits) override {
    return std::make_unique<RefProgram>(limits.part ? *limits.part : *plan_);
  }

  void run(Program& program, const Step& step, const Results& results) override {
    const Plan& plan = static_cast<RefProgram&>(program).plan;
    step_ = &step;
    vals_.resize(plan.vals.size());
    for (size_t i = 0; i < vals_.size(); ++i) {
      const ValInfo& v = plan.vals[i];
      Rows& r = vals_[i];
      r.cols = v.cols;
      r.rows = v.outputs_only ? static_cast<int64_t>(step.out_rows.size()) : step.rows();
      r.f.assign(v.is_ids ? 0 : static_cast<size_t>(r.rows * r.cols), 0.0);
      r.ids.assign(v.is_ids ? static_cast<size_t>(r.rows * r.cols) : 0, 0);
    }
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const Op& op = plan.ops[i];
      std::visit([&](const auto& args) { apply(op, args); }, op.args);
      round_result(op.out);
      if (op.out2) round_result(op.out2);
      if (!trace_) continue;
      const Rows& out = val(op.out);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      const std::vector<float> shown(out.f.begin(), out.f.end());
      trace_({.op = i,
              .data = shown.data(),
              .rows = out.rows,
              .cols = plan.info(op.out).is_ids ? 0 : out.cols,
              .seconds = seconds});
    }
    const std::vector<double>& result = val(plan.logits).f;
    CHECK(results.logits.size() >= result.size());
    std::copy(result.begin(), result.end(), results.logits.begin());
    check_wishes(step, results);
    for (size_t row = 0; results.of_wishes() && row < step.wanted.size(); ++row) grant_wish(plan, step, results, row);
  }

  void copy_state(int32_t from, int32_t to) override {
    for (std::vector<double>& s : conv_) copy_slot(s, from, to, shape_.state_slots);
    for (std::vector<double>& s : delta_) copy_slot(s, from, to, shape_.state_slots);
  }
  void copy_page(int32_t from, int32_t to) override {
    for (std::vector<double>& s : k_) copy_slot(s, from, to, shape_.pages);
    for (std::vector<double>& s : v_) copy_slot(s, from, to, shape_.pages);
    for (std::vector<double>& s : k_packed_) copy_slot(s, from, to, shape_.pages);
    for (std::vector<double>& s : v_packed_) copy_slot(s, from, to, shape_.pages);
  }

  std::vector<OpReport> report() const override {
    std::vector<OpReport> rows;
    for (const Op& op : plan_->ops) rows.push_back({.kernel = "ref_" + std::string(op_name(op))});
    return rows;
  }

  void set_trace(std::function<void(const OpTrace&)> sink) override { trace_ = std::move(sink); }

 private:
  Rows& val(Val v) { return vals_[static_cast<size_t>(v.id)]; }
  const RefWeight& weight(Weight w) const { return weights_[static_cast<size_t>(w.id)]; }
  const std::vector<double>& vector(Weight w) const { return vectors_[static_cast<size_t>(w.id)]; }

  static void copy_slot(std::vector<double>& s, int32_t from, int32_t to, int32_t slots) {
    const size_t n = s.size() / static_cast<size_t>(slots);
    std::copy_n(s.begin() + static_cast<std::ptrdiff_t>(n) * from, n, s.begin() + static_cast<std::ptrdiff_t>(n) * to);
  }

  /// In kF32 a result exists only in f32, states and caches included.
  static void to_f32(MutRow x) {
    for (double& v : x) v = static_cast<float>(v);
  }
  void round_result(Val v) {
    if (precision_ == Precision::kF32) to_f32(val(v).f);
  }

  /// f(input row, output row) on every row of a one-input op.
  template <typename F>
  void map_rows(const Op& op, F f) {
    for (int64_t r = 0; r < val(op.out).rows; ++r) f(Row(val(op.inputs[0]).row(r)), val(op.out).row(r));
  }

  void apply(const Op& op, const EmbedArgs& a) {
    std::vector<float> row;
    for (int64_t r = 0; r < step_->rows(); ++r) {
      weight(a.table).decode_row(step_->tokens[static_cast<size_t>(r)], row);
      std::copy(row.begin(), row.end(), val(op.out).row(r).begin());
    }
  }
  void apply(const Op& op, const RmsNormArgs& a) {
    map_rows(op, [&](Row x, MutRow y) { ref::rms_norm(x, vector(a.weight), a.eps, y, precision_); });
  }
  void apply(const Op& op, const L2NormArgs& a) {
    map_rows(op, [&](Row x, MutRow y) { ref::l2_norm(x, a.group, a.eps, y); });
  }
  void apply(const Op& op, const LinearArgs& a) {
    const RefWeight& w = weight(a.weight);
    std::vector<ref::RoundedRow> x;
    std::vector<MutRow> y;
    map_rows(op, [&](Row in, MutRow out) {
      x.push_back(ref::round_row(w.rule, precision_, in));
      y.push_back(out);
    });
    if (y.empty()) return;
    ref::matmul(w, 0, x, y, precision_);
    for (const MutRow& out : y) {
      for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] * a.scale + (a.bias ? vector(a.bias)[i] : 0.0);
    }
  }
  void apply(const Op& op, const AddArgs&) {
    for (int64_t r = 0; r < val(op.out).rows; ++r) {
      const Row x = val(op.inputs[0]).row(r), z = val(op.inputs[1]).row(r);
      std::transform(x.begin(), x.end(), z.begin(), val(op.out).row(r).begin(), std::plus<>());
    }
  }
  void apply(const Op& op, const GluArgs& a) {
    for (int64_t r = 0; r < val(op.out).rows; ++r)
      ref::glu(a.gate, val(op.inputs[0]).row(r), val(op.inputs[1]).row(r), val(op.out).row(r));
  }
  void apply(const Op& op, const RopeArgs& a) {
    val(op.out).f = val(op.inputs[0]).f;
    for (const SeqRows& s : step_->seqs) {
      for (int32_t i = 0; i < s.n_rows; ++i) {
        ref::rope(plan_->ropes[static_cast<size_t>(a.table)], a.head_dim, s.position + i,
                  val(op.out).row(s.first_row + i));
      }
    }
  }
  void apply(const Op& op, const AttendArgs& a) {
    const auto layer = static_cast<size_t>(a.cache);
    const int64_t k_cols = a.kv_heads * a.head_dim_k, v_cols = a.kv_heads * a.head_dim_v;
    for (const SeqRows& s : step_->seqs) {
      const auto slot = [&](int32_t position) {  // index of a token in the cache of a layer
        const int32_t page = step_->pages[static_cast<size_t>(s.first_page + position / kPageTokens)];
        return static_cast<int64_t>(page) * kPageTokens + position % kPageTokens;
      };
      for (int32_t i = 0; i < s.n_rows; ++i) {
        const int64_t at = slot(s.position + i);
        const MutRow k(k_[layer].data() + at * k_cols, static_cast<size_t>(k_cols)),
            v(v_[layer].data() + at * v_cols, static_cast<size_t>(v_cols));
        std::ranges::copy(val(op.inputs[1]).row(s.first_row + i), k.begin());
        std::ranges::copy(val(op.inputs[2]).row(s.first_row + i), v.begin());
        ref::round_key(shape_.k, a.head_dim_k, k);
        ref::round_value(shape_.v, v);
        if ((s.position + i + 1) % kPageTokens == 0) pack_page(layer, at / kPageTokens);
      }
      std::vector<const double*> k, v;
      for (int32_t i = 0; i < s.n_rows; ++i) {
        const int32_t seen = s.position + i + 1, own_page = (seen - 1) / kPageTokens;
        k.clear();
        v.clear();
        for (int32_t p = 0; p < seen; ++p) {
          const bool earlier = p / kPageTokens < own_page;
          k.push_back((earlier && kivi_bits(shape_.k) > 0 ? k_packed_ : k_)[layer].data() + slot(p) * k_cols);
          v.push_back((earlier && kivi_bits(shape_.v) > 0 ? v_packed_ : v_)[layer].data() + slot(p) * v_cols);
        }
        ref::attend(a, val(op.inputs[0]).row(s.first_row + i), k, v, val(op.out).row(s.first_row + i), precision_);
      }
    }
  }
  /// What later pages see of a page of a kivi cache.
  void pack_page(size_t layer, int64_t page) {
    const auto rows = [&](std::vector<std::vector<double>>& memory) {
      const size_t n = memory[layer].size() / static_cast<size_t>(shape_.pages);
      return MutRow(memory[layer]).subspan(static_cast<size_t>(page) * n, n);
    };
    if (kivi_bits(shape_.k) > 0) {
      const MutRow exact = rows(k_);
      ref::round_kivi_keys(shape_.k, exact, static_cast<int64_t>(exact.size()) / kPageTokens, rows(k_packed_));
    }
    if (kivi_bits(shape_.v) > 0) ref::round_kivi_values(shape_.v, rows(v_), rows(v_packed_));
  }
  void apply(const Op& op, const TakeArgs& a) {
    map_rows(op, [&](Row x, MutRow y) { ref::take(a, x, y); });
  }
  void apply(const Op& op, const RotateArgs& a) {
    const std::span<const float> signs =
        a.signs < 0 ? std::span<const float>{} : plan_->signs[static_cast<size_t>(a.signs)];
    map_rows(op, [&](Row x, MutRow y) {
      std::copy(x.begin(), x.end(), y.begin());
      ref::rotate(a, signs, y, precision_);
    });
  }
  void apply(const Op& op, const PermuteHeadsArgs& a) {
    map_rows(op, [&](Row x, MutRow y) { ref::permute_heads(a, x, y); });
  }

  /// The recurrent state of a sequence in its output slot, carried over from the input slot (or zeros).
  static MutRow open_state(std::vector<double>& memory, int64_t floats, const SeqRows& s) {
    const MutRow out(memory.data() + floats * s.state_out, static_cast<size_t>(floats));
    if (s.state_in == kZeroState) {
      std::fill(out.begin(), out.end(), 0.0);
    } else if (s.state_in != s.state_out) {
      std::copy_n(memory.data() + floats * s.state_in, floats, out.data());
    }
    return out;
  }
  void apply(const Op& op, const ConvArgs& a) {
    const auto layer = static_cast<size_t>(a.state);
    for (const SeqRows& s : step_->seqs) {
      const MutRow history = open_state(conv_[layer], plan_->state_layers[layer].conv_floats(), s);
      for (int32_t i = s.first_row; i < s.first_row + s.n_rows; ++i) {
        ref::conv_silu(a, vector(a.kernel), val(op.inputs[0]).row(i), history, val(op.out).row(i));
      }
    }
  }
  void apply(const Op& op, const DeltaRuleArgs& a) {
    const auto layer = static_cast<size_t>(a.state);
    for (const SeqRows& s : step_->seqs) {
      const MutRow state = open_state(delta_[layer], plan_->state_layers[layer].delta_floats(), s);
      for (int32_t i = s.first_row; i < s.first_row + s.n_rows; ++i) {
        const auto in = [&](size_t j) { return Row(val(op.inputs[j]).row(i)); };
        ref::delta_rule(
            a,
            {.q = in(0), .k = in(1), .v = in(2), .alpha = in(3), .beta = in(4), .a = vector(a.a), .dt = vector(a.dt)},
            state, val(op.out).row(i));
        if (precision_ == Precision::kF32) to_f32(state);
      }
    }
  }
  void apply(const Op& op, const RouterArgs& a) {
    for (int64_t r = 0; r < val(op.out).rows; ++r) {
      ref::router(a, val(op.inputs[0]).row(r), val(op.out).ids.data() + r * a.used, val(op.out2).row(r));
    }
  }
  void apply(const Op& op, const ExpertLinearArgs& a) {
    const RefWeight& w = weight(a.weight);
    Rows& ids = val(op.inputs[1]);
    for (int64_t r = 0; r < val(op.out).rows; ++r) {
      const Row x = val(op.inputs[0]).row(r);
      const MutRow y = val(op.out).row(r);
      for (int64_t j = 0; j < ids.cols; ++j) {
        const Row xj = static_cast<int64_t>(x.size()) == w.cols
                           ? x
                           : x.subspan(static_cast<size_t>(j * w.cols), static_cast<size_t>(w.cols));
        const MutRow yj = y.subspan(static_cast<size_t>(j * w.rows), static_cast<size_t>(w.rows));
        const ref::RoundedRow rounded = ref::round_row(w.rule, precision_, xj);
        ref::matmul(w, ids.ids[static_cast<size_t>(r * ids.cols + j)] * w.rows, {&rounded, 1}, {&yj, 1}, precision_);
        for (double& f : yj) f *= a.scale;
      }
    }
  }
  void apply(const Op& op, const ExpertSumArgs&) {
    for (int64_t r = 0; r < val(op.out).rows; ++r) {
      const Row x = val(op.inputs[0]).row(r), w = val(op.inputs[1]).row(r);
      const MutRow y = val(op.out).row(r);
      for (size_t i = 0; i < y.size(); ++i) {
        double sum = 0;
        for (size_t j = 0; j < w.size(); ++j) sum += w[j] * x[j * y.size() + i];
        y[i] = sum;
      }
    }
  }
  void apply(const Op& op, const InputArgs&) {
    CHECK(step_->input.size() == val(op.out).f.size());
    std::ranges::copy(step_->input, val(op.out).f.begin());
  }
  void apply(const Op& op, const PickRowsArgs&) {
    for (size_t i = 0; i < step_->out_rows.size(); ++i) {
      std::ranges::copy(val(op.inputs[0]).row(step_->out_rows[i]), val(op.out).row(static_cast<int64_t>(i)).begin());
    }
  }

  Precision precision_;
  const Plan* plan_ = nullptr;
  const Step* step_ = nullptr;
  std::vector<RefWeight> weights_;
  std::vector<std::vector<double>> vectors_;
  CacheShape shape_;
  std::vector<std::vector<double>> k_, v_, conv_, delta_;  // one a layer
  std::vector<std::vector<double>> k_packed_, v_packed_;   // of a kivi cache: k_ and v_ have the exact ones
  std::vector<Rows> vals_;
  std::function<void(const OpTrace&)> trace_;
};

}  // namespace

std::unique_ptr<Backend> make_ref_backend(Precision precision) {
  return std::make_unique<RefBackend>(precision);
}

}  // namespace tern
