#include "engine/trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace tern {
namespace {

/// Runs `tokens`, at most one batch of them, with `sink` watching, and turns the watching off again.
void run_watched(Model& model, std::span<const int32_t> tokens, const std::function<void(const OpTrace&)>& sink) {
  Sequence sequence = model.runner().start();
  model.backend().set_trace(sink);
  model.runner().prefill(sequence,
                         tokens.first(std::min(tokens.size(), static_cast<size_t>(model.runner().limits().rows))));
  model.backend().set_trace({});
}

struct Output {
  int64_t cols = 0;
  std::vector<float> values;
};

std::optional<Divergence> compare_outputs(size_t op, const Output& expected, const OpTrace& got, double tolerance) {
  const auto n = static_cast<size_t>(got.rows * got.cols);
  CHECK(n == expected.values.size(), "op {}: {} and {} values", op, expected.values.size(), n);
  float largest = 0;
  for (const float v : expected.values) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < n; ++i) {
    const double difference = std::abs(static_cast<double>(got.data[i]) - static_cast<double>(expected.values[i]));
    if (!(difference <= tolerance * static_cast<double>(std::max(largest, 1e-6f))))  // NaN diverges
      return Divergence{.op = op,
                        .row = static_cast<int64_t>(i) / got.cols,
                        .col = static_cast<int64_t>(i) % got.cols,
                        .reference = expected.values[i],
                        .other = got.data[i]};
  }
  return std::nullopt;
}

}  // namespace

TraceRow trace_row(const OpTrace& trace) {
  TraceRow row{.op = trace.op, .rows = trace.rows, .cols = trace.cols, .seconds = trace.seconds};
  const auto n = static_cast<size_t>(trace.rows * trace.cols);
  bool first = true;
  row.hash = 14695981039346656037ull;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, trace.data + i, sizeof bits);
    for (int shift = 0; shift < 32; shift += 8) row.hash = (row.hash ^ ((bits >> shift) & 255u)) * 1099511628211ull;
    const float value = trace.data[i];
    if (!std::isfinite(value)) {
      ++row.not_numbers;
      continue;
    }
    row.min = first ? value : std::min(row.min, value);
    row.max = first ? value : std::max(row.max, value);
    first = false;
  }
  return row;
}

Weight op_weight(const Op& op) {
  return std::visit(
      [](const auto& args) -> Weight {
        using Args = std::decay_t<decltype(args)>;
        if constexpr (std::is_same_v<Args, EmbedArgs>) return args.table;
        if constexpr (requires { args.weight; }) return args.weight;
        if constexpr (requires { args.kernel; }) return args.kernel;
        if constexpr (requires { args.dt; }) return args.a;
        return {};
      },
      op.args);
}

std::string op_label(const Plan& plan, size_t op) {
  const Op& o = plan.ops[op];
  std::string label = o.site.layer < 0 ? std::string(op_name(o)) : fmt::format("layer {} {}", o.site.layer, op_name(o));
  if (const Weight w = op_weight(o)) label += " " + plan.info(w).name;
  return label;
}

std::optional<Divergence> first_divergence(Model& reference, Model& other, std::span<const int32_t> tokens,
                                           double tolerance) {
  std::vector<Output> outputs(reference.plan().ops.size());
  run_watched(reference, tokens, [&](const OpTrace& t) {
    outputs[t.op] = {t.cols, {t.data, t.data + t.rows * t.cols}};
  });
  std::optional<Divergence> found;
  run_watched(other, tokens, [&](const OpTrace& t) {
    const Val out = other.plan().ops[t.op].out;
    if (!found && !other.plan().info(out).is_ids) found = compare_outputs(t.op, outputs[t.op], t, tolerance);
  });
  return found;
}

}  // namespace tern
