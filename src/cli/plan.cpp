// tern plan: what runs for a model on this machine, op by op.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "engine/model.h"
#include "engine/trace.h"
#include "models/registry.h"

namespace tern::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  ModelFlags model;
  bool json = false, all = false;
};

struct Row {
  int32_t layer;
  std::string op, weight, format, shape, kernel;
  uint64_t bytes;
};

std::vector<Row> rows_of(const Plan& plan, const std::vector<OpReport>& reports) {
  std::vector<Row> rows;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    Row row{.layer = op.site.layer,
            .op = std::string(op_name(op)),
            .weight = "",
            .format = "",
            .shape = fmt::format("{}", plan.info(op.out).cols),
            .kernel = reports[i].fused_into.empty() ? reports[i].kernel : "in " + reports[i].fused_into,
            .bytes = reports[i].bytes};
    if (const Weight w = op_weight(op)) {
      const gguf::TensorInfo& info = plan.info(w).info;
      row.weight = plan.info(w).name;
      row.format = type_info(info.type).name;
      row.shape = fmt::format("{} x {}", info.ne[0], info.rows());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Layers of the same ops, formats and kernels are one kind: shown once. Returns the first layer of the kind each layer
/// belongs to, and how many there are.
struct Kinds {
  std::map<int32_t, int32_t> first_of;  // layer -> first layer of its kind
  std::map<int32_t, std::vector<int32_t>> members;
};
Kinds kinds_of(const std::vector<Row>& rows) {
  std::map<int32_t, std::string> signatures;
  for (const Row& row : rows)
    signatures[row.layer] += row.op + '|' + row.format + '|' + row.shape + '|' + row.kernel + '\n';
  Kinds kinds;
  std::map<std::string, int32_t> known;
  for (const auto& [layer, signature] : signatures) {
    const int32_t first = layer < 0 ? layer : known.try_emplace(signature, layer).first->second;
    kinds.first_of[layer] = first;
    kinds.members[first].push_back(layer);
  }
  return kinds;
}

/// "0-2,4-6".
std::string ranges(const std::vector<int32_t>& layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    out += (out.empty() ? "" : ",") +
           (end - i == 1 ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[end - 1]));
    i = end;
  }
  return out;
}

void print_ops(const std::vector<Row>& rows, bool all) {
  const Kinds kinds = kinds_of(rows);
  Table table({"LAYER", "OP", "WEIGHT", "FORMAT", ">SHAPE", ">READ", "KERNEL"});
  for (const Row& row : rows) {
    const int32_t first = kinds.first_of.at(row.layer);
    if (!all && row.layer >= 0 && first != row.layer) continue;
    const std::string layer = row.layer < 0 ? "-"
                              : all         ? fmt::format("{}", row.layer)
                                            : ranges(kinds.members.at(first));
    table.add({layer, row.op, row.weight, row.format, row.shape, row.bytes ? human_bytes(row.bytes) : "", row.kernel});
  }
  fmt::print("{}", table.text());
}

std::vector<ContextNeed> needs(const Model& model) {
  return memory_at_contexts(model.plan(), [&](int32_t context) {
    Runner::Limits limits = model.placement().limits;
    limits.context = context;
    MemoryNeed need;
    for (const Share& s : model.placement().shares) need += memory_need(s.plan, limits, s.backend);
    return need;
  });
}

void print_memory(const Model& model) {
  const auto cells = [](const MemoryNeed& need) {
    return std::vector{human_bytes(need.weights), human_bytes(need.kv), human_bytes(need.states),
                       human_bytes(need.activations), human_bytes(need.total())};
  };
  Table contexts({">CONTEXT", ">WEIGHTS", ">KV", ">STATE", ">ACTIVATIONS", ">TOTAL"});
  for (const auto& [context, need] : needs(model)) {
    std::vector<std::string> row = cells(need);
    row.insert(row.begin(), grouped(context));
    contexts.add(row);
  }
  fmt::print("\n{}", contexts.text());
  const Placement& placement = model.placement();
  fmt::print("\nwith a context of {} and prompts in batches of {}:\n", grouped(placement.limits.context),
             placement.limits.rows);
  Table places({"ON", "WHAT", ">WEIGHTS", ">KV", ">STATE", ">ACTIVATIONS", ">TOTAL", ">AVAILABLE"});
  for (const Share& s : placement.shares) {
    std::vector<std::string> row = cells(s.need);
    row.insert(row.begin(), {std::string(backend_name(s.backend)), s.layers()});
    row.push_back(human_bytes(s.available));
    places.add(row);
  }
  fmt::print("{}", places.text());
}

Json need_json(const MemoryNeed& need) {
  return {{"weights", need.weights},
          {"kv", need.kv},
          {"states", need.states},
          {"activations", need.activations},
          {"total", need.total()}};
}

Json as_json(const Model& model, const std::vector<Row>& rows) {
  const Plan& plan = model.plan();
  const BackendInfo info = model.backend().info();
  Json out{
      {"architecture", plan.architecture}, {"backend", info.name}, {"device", info.device}, {"ops", Json::array()}};
  for (const Row& row : rows)
    out["ops"].push_back({{"layer", row.layer},
                          {"op", row.op},
                          {"weight", row.weight},
                          {"format", row.format},
                          {"shape", row.shape},
                          {"kernel", row.kernel},
                          {"bytes", row.bytes}});
  out["memory"] = Json::array();
  for (const auto& [context, need] : needs(model)) {
    out["memory"].push_back({{"context", context}});
    out["memory"].back().update(need_json(need));
  }
  out["context"] = model.placement().limits.context;
  out["placement"] = Json::array();
  for (const Share& s : model.placement().shares) {
    out["placement"].push_back({{"backend", backend_name(s.backend)}, {"layers", s.layers()}});
    out["placement"].back().update(need_json(s.need));
    out["placement"].back()["available"] = s.available;
  }
  return out;
}

int plan_verb(const Flags& flags) {
  const auto model = flags.model.load();
  const Plan& plan = model->plan();
  const std::vector<Row> rows = rows_of(plan, model->backend().report());
  const BackendInfo info = model->backend().info();
  if (flags.json) {
    print_json(as_json(*model, rows));
    return 0;
  }
  uint64_t read = 0;
  for (const Row& row : rows) read += row.bytes;
  fmt::print("{}, {} on {}: {} ops, {} of weights read a token\n\n", printable(model_name(model->file())), info.name,
             info.device, rows.size(), human_bytes(read));
  print_ops(rows, flags.all);
  print_memory(*model);
  for (const std::string& name : plan.unused_tensors) fmt::print("not used: {}\n", printable(name));
  return 0;
}

}  // namespace

Action setup_plan(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, true);
  set.flag("--all", flags->all, "list every layer, not one of each kind");
  set.flag("--json", flags->json, "as one JSON object");
  return [flags] { return plan_verb(*flags); };
}

}  // namespace tern::cli
