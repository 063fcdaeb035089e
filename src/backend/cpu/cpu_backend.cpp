#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "backend/cpu/program.h"
#include "base/error.h"

namespace tern {
namespace {

using namespace cpu;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : options_(options), isa_(options.isa.empty() ? select_isa() : isa_by_name(options.isa, "isa")) {
    machine_.ops = &ops_of(isa_);
    machine_.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : default_threads());
  }

  BackendInfo info() const override {
    const int threads = machine_.pool->size();
    return {.name = "cpu",
            .device = fmt::format("{}, {} thread{}, {}", cpu_model(), threads, threads == 1 ? "" : "s", isa_name(isa_)),
            .threads = threads};
  }

  void load(const Plan& plan, const gguf::File& file, const LoadOptions& options) override {
    CHECK(!machine_.plan, "load() is called once");
    machine_.weights.load(plan, file, options, {.isa = isa_, .force_kernel = options_.force_kernel}, *machine_.pool);
    machine_.plan = &plan;
  }

  void reserve(const CacheShape& shape) override { machine_.cache.reserve(*machine_.plan, shape); }

  std::unique_ptr<Program> compile(const ProgramLimits& limits) override {
    return std::make_unique<CpuProgram>(machine_, limits, options_.eager);
  }

  void run(Program& program, const Step& step, const Results& results) override {
    auto& p = static_cast<CpuProgram&>(program);
    trace_ ? p.run_traced(step, results.logits, trace_) : p.run(step, results.logits);
    check_wishes(step, results);
    if (!results.of_wishes()) return;
    machine_.pool->run({static_cast<uint32_t>(step.wanted.size())}, [&](uint32_t begin, uint32_t end, int) {
      for (uint32_t row = begin; row < end; ++row) grant_wish(*machine_.plan, step, results, row);
    });
  }

  void copy_state(int32_t from, int32_t to) override { machine_.cache.copy_state(from, to); }
  void copy_page(int32_t from, int32_t to) override { machine_.cache.copy_page(from, to); }
  void set_trace(std::function<void(const OpTrace&)> sink) override { trace_ = std::move(sink); }
  std::vector<OpReport> report() const override;

 private:
  CpuOptions options_;
  Isa isa_;
  Machine machine_;
  std::function<void(const OpTrace&)> trace_;
};

/// The kernel of an op and the bytes of weights that a decode step reads for it.
struct Describe {
  const Machine& machine;
  const Op& op;

  OpReport operator()(const LinearArgs& a) const {
    return {.kernel = machine.weights.matrix(a.weight).kernel->name, .bytes = machine.weights.matrix_bytes(a.weight)};
  }
  OpReport operator()(const ExpertLinearArgs& a) const {
    const auto used = static_cast<uint64_t>(machine.plan->info(op.inputs[1]).cols);
    return {.kernel = machine.weights.matrix(a.weight).kernel->name,
            .bytes = used * machine.weights.matrix_bytes(a.weight)};
  }
  OpReport operator()(const EmbedArgs& a) const {
    return {.kernel = name(), .bytes = machine.weights.table(a.table).row_bytes};
  }
  template <typename Args>
  OpReport operator()(const Args&) const {
    return {.kernel = name()};
  }
  std::string name() const { return fmt::format("{}_{}", op_name(op), machine.ops->isa); }
};

std::vector<OpReport> CpuBackend::report() const {
  std::vector<OpReport> rows;
  for (const Op& op : machine_.plan->ops) rows.push_back(std::visit(Describe{machine_, op}, op.args));
  const Schedule s =
      make_schedule(*machine_.plan, machine_.weights,
                    {.rows = 1, .outputs = 1, .threads = machine_.pool->size(), .eager = options_.eager});
  for (const Phase& phase : s.phases) {
    if (phase.work != Work::kRows) continue;
    const std::string* first = nullptr;  // of the rows that a thread takes through the whole phase
    for (const int32_t n : phase.nodes) {
      const Node& node = s.nodes[static_cast<size_t>(n)];
      if (node.kind != NodeKind::kRowOp) continue;
      OpReport& row = rows[static_cast<size_t>(node.op)];
      if (first) row.fused_into = *first;
      first = first ? first : &row.kernel;
    }
  }
  return rows;
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace tern
