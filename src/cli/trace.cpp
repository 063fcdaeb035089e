#include "cli/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.h"
#include "cli/table.h"
#include "engine/trace.h"

namespace tern::cli {
namespace {

constexpr size_t kLockstepTokens = 64;  // --diff keeps every op's output of the reference

void print_trace(Model& model, std::span<const int32_t> tokens) {
  Table table({"OP", ">SHAPE", ">US", ">GB/S", ">MIN", ">MAX", ">NAN", "HASH"});
  const std::vector<OpReport> reports = model.backend().report();
  model.backend().set_trace([&](const OpTrace& t) {
    const TraceRow row = trace_row(t);
    const bool ids = model.plan().info(model.plan().ops[row.op].out).is_ids;
    const auto bytes = static_cast<double>(reports[row.op].bytes);
    table.add({op_label(model.plan(), row.op), fmt::format("{} x {}", row.rows, row.cols),
               fmt::format("{:.0f}", row.seconds * 1e6),
               bytes > 0 && row.seconds > 0 ? fmt::format("{:.1f}", bytes / row.seconds / 1e9) : "",
               ids ? "" : fmt::format("{:.4g}", row.min), ids ? "" : fmt::format("{:.4g}", row.max),
               fmt::format("{}", row.not_numbers), fmt::format("{:016x}", row.hash)});
  });
  Sequence sequence = model.runner().start();
  model.runner().prefill(sequence, tokens);
  model.backend().set_trace({});
  fmt::print(stderr, "{}", table.text());
}

int print_divergence(const TraceFlags& flags, const ModelFlags& model_flags, Model& model,
                     std::span<const int32_t> tokens) {
  ModelFlags other = model_flags;
  other.backend = flags.diff;
  other.gpu_layers = "auto";
  const auto reference = other.load({.context = static_cast<int32_t>(tokens.size()) + 1});
  tokens = tokens.first(std::min(tokens.size(), kLockstepTokens));
  const auto found = first_divergence(*reference, model, tokens, flags.tolerance);
  if (!found) {
    fmt::print("{} ops agree within {} over {} tokens\n", model.plan().ops.size(), flags.tolerance, tokens.size());
    return 0;
  }
  const Site& site = model.plan().ops[found->op].site;
  fmt::print("first difference: op {} ({}), row {}, column {}: {} has {}, {} has {} [{}:{}]\n", found->op,
             printable(op_label(model.plan(), found->op)), found->row, found->col, flags.diff, found->reference,
             model.backend().info().name, found->other, site.file, site.line);
  return 1;
}

}  // namespace

void TraceFlags::declare(FlagSet& set) {
  set.flag("--trace", trace,
           "list every op of the prompt on stderr: time, GB/s, range, values that are no numbers, hash");
  set.option("--diff", diff, "run the prompt on that backend too, op by op, and stop at the first difference")
      .one_of({"ref", "cpu"});
  set.option("--tolerance", tolerance, "of --diff, relative to the largest value of an op's output").at_least(0);
}

std::optional<int> trace_prompt(const TraceFlags& flags, const ModelFlags& model_flags, Model& model,
                                std::span<const int32_t> tokens) {
  if (flags.trace) print_trace(model, tokens);
  if (flags.diff.empty()) return std::nullopt;
  return print_divergence(flags, model_flags, model, tokens);
}

}  // namespace tern::cli
