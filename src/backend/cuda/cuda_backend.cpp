#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/program.h"
#include "base/error.h"

namespace tern {
namespace {

using namespace cuda;

/// Makes `device` the current one; one line of what is wrong otherwise.
void select(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    fail(ErrorCode::kUnsupported,
         "no CUDA GPU can be used here ({}): check the driver with nvidia-smi, or run on the CPU "
         "(--backend cpu)",
         status == cudaSuccess ? "the driver lists none" : cudaGetErrorString(status));
  }
  if (device < 0 || device >= count)
    fail(ErrorCode::kInvalidArgument, "there is no GPU {}: the driver lists {} (0 to {})", device, count, count - 1);
  check(cudaSetDevice(device), "selecting the GPU");
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : options_(options) {
    select(options.device);
    check(cudaGetDeviceProperties(&device_, options.device), "asking the GPU what it is");
    machine_ = std::make_unique<Machine>();
    machine_->gpu = {device_.multiProcessorCount, device_.major * 10 + device_.minor};
    machine_->graphs = options.graphs;
    machine_->workspace = DeviceMemory(workspace_bytes());
    check(cudaMemset(machine_->workspace.data(), 0, machine_->workspace.size()), "clearing the workspace of products");
  }

  BackendInfo info() const override {
    return {.name = "cuda",
            .device = fmt::format("{}, {} multiprocessors, sm_{}{}", device_.name, device_.multiProcessorCount,
                                  device_.major, device_.minor),
            .threads = 1};
  }

  void load(const Plan& plan, const gguf::File& file, const LoadOptions& options) override {
    CHECK(!machine_->plan, "load() is called once");
    machine_->weights.load(plan, file, options, machine_->stream.get());
    load_tables(plan);
    machine_->plan = &plan;
  }

  void reserve(const CacheShape& shape) override { machine_->cache.reserve(*machine_->plan, shape); }

  std::unique_ptr<Program> compile(const ProgramLimits& limits) override {
    return std::make_unique<CudaProgram>(*machine_, limits);
  }

  std::span<float> logits_memory(size_t floats) override {
    if (machine_->logits.size() < floats * sizeof(float)) machine_->logits = PinnedMemory(floats * sizeof(float));
    return {reinterpret_cast<float*>(machine_->logits.data()), floats};
  }

  void run(Program& program, const Step& step, const Results& results) override {
    auto& p = static_cast<CudaProgram&>(program);
    trace_ ? p.run_traced(step, results, trace_) : p.run(step, results);
  }

  void copy_state(int32_t from, int32_t to) override { machine_->cache.copy_state(machine_->stream.get(), from, to); }
  void copy_page(int32_t from, int32_t to) override { machine_->cache.copy_page(machine_->stream.get(), from, to); }
  void set_trace(std::function<void(const OpTrace&)> sink) override { trace_ = std::move(sink); }
  std::vector<OpReport> report() const override;
  double wait_seconds() const { return machine_->wait_seconds; }

 private:
  void load_tables(const Plan& plan);

  CudaOptions options_;
  cudaDeviceProp device_{};
  std::unique_ptr<Machine> machine_;
  std::function<void(const OpTrace&)> trace_;
};

/// Rope frequencies and signs, one after the other.
void CudaBackend::load_tables(const Plan& plan) {
  std::vector<double> freqs;
  std::vector<float> signs;
  for (const RopeTable& t : plan.ropes) freqs.insert(freqs.end(), t.freq.begin(), t.freq.end());
  if (freqs.size() % 2 != 0) freqs.push_back(0);  // signs are read four at a time
  for (const std::vector<float>& s : plan.signs) signs.insert(signs.end(), s.begin(), s.end());
  machine_->table_memory = DeviceMemory(freqs.size() * sizeof(double) + signs.size() * sizeof(float));
  auto* const to = reinterpret_cast<double*>(machine_->table_memory.data());
  auto* const after = reinterpret_cast<float*>(to + freqs.size());
  check(cudaMemcpy(to, freqs.data(), freqs.size() * sizeof(double), cudaMemcpyHostToDevice), "rope tables");
  check(cudaMemcpy(after, signs.data(), signs.size() * sizeof(float), cudaMemcpyHostToDevice), "signs");
  const double* freq = to;
  for (const RopeTable& t : plan.ropes) machine_->tables.freqs.push_back(std::exchange(freq, freq + t.freq.size()));
  const float* sign = after;
  for (const std::vector<float>& s : plan.signs) machine_->tables.signs.push_back(std::exchange(sign, sign + s.size()));
}

/// The kernel of an op and the bytes of weights that a decode step reads for it.
struct Describe {
  const Machine& machine;
  const Op& op;

  OpReport operator()(const LinearArgs& a) const {
    return {.kernel = product(a.weight), .bytes = machine.weights.bytes(a.weight)};
  }
  OpReport operator()(const ExpertLinearArgs& a) const {
    const auto used = static_cast<uint64_t>(machine.plan->info(op.inputs[1]).cols);
    return {.kernel = product(a.weight), .bytes = used * machine.weights.bytes(a.weight)};
  }
  OpReport operator()(const EmbedArgs& a) const {
    const MatrixShape& shape = machine.weights.matrix(a.table).shape;
    return {.kernel = name(), .bytes = machine.weights.bytes(a.table) / static_cast<uint64_t>(shape.rows)};
  }
  template <typename Args>
  OpReport operator()(const Args&) const {
    return {.kernel = name()};
  }
  std::string product(Weight w) const {
    return kernel_name(machine.weights.matrix(w).shape, machine.weights.rule(w), 1);
  }
  std::string name() const { return fmt::format("{}_cuda", op_name(op)); }
};

std::vector<OpReport> CudaBackend::report() const {
  const Plan& plan = *machine_->plan;
  std::vector<OpReport> rows;
  for (const Op& op : plan.ops) rows.push_back(std::visit(Describe{*machine_, op}, op.args));
  const Walk walk = make_walk(plan, machine_->weights, machine_->tables,
                              {.limits = {.rows = 1, .outputs = 1, .seqs = 1}, .gpu = machine_->gpu});
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto into = static_cast<size_t>(walk.fused_into[i]);
    if (into != i) rows[i].fused_into = rows[into].kernel;
  }
  return rows;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

uint64_t cuda_free_memory(int device) noexcept {
  size_t free = 0, total = 0;
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return free;
}

uint64_t cuda_weight_bytes(const PlanWeight& w) {
  return device_bytes(w);
}

double cuda_wait_seconds(const Backend& backend) {
  const auto* cuda = dynamic_cast<const CudaBackend*>(&backend);
  CHECK(cuda, "not a CUDA backend");
  return cuda->wait_seconds();
}

}  // namespace tern
