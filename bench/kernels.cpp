// Every matrix kernel of this machine: decode (one activation row, weights far larger than any cache, GB/s of packed
// bytes) and prefill (512 rows, G multiply-adds a second), with one and two threads. `decode_<isa>` rows are the
// reference that the tuned kernels are measured against. Run alone on an idle machine:
//   bench_kernels --benchmark_filter='decode/.*TQ2_0.*/threads:2'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/matrix.h"
#include "backend/matrix_weights.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/thread_pool.h"

namespace tern::cpu {
namespace {

constexpr int64_t kCols = 2560, kTensorRows = 1280, kDecodeBytes = int64_t{256} << 20, kPrefillActs = 512;

/// `copies` times the same random rows under one another: random weights of any amount, packed.
struct Weights {
  Weights(const Kernel& kernel, int64_t copies) {
    std::mt19937 random(1);
    tensor = test::random_tensor(kernel.type, kTensorRows, kCols, test::Codes::kTernaryOnly, random);
    const size_t one = kernel.pack != nullptr ? kernel.packed_bytes(kTensorRows, kCols) : tensor.size();
    memory = Memory(one * static_cast<size_t>(copies) + 4096);
    for (int64_t i = 0; i < copies; ++i) {
      std::byte* to = memory.data() + static_cast<size_t>(i) * one;
      if (kernel.pack != nullptr) {
        kernel.pack(tensor.data(), kTensorRows, kCols, to, 0, kTensorRows);
      } else {
        std::copy(tensor.begin(), tensor.end(), to);
      }
    }
    bytes = static_cast<int64_t>(one) * copies;
    matrix = {.kernel = &kernel, .rows = kTensorRows * copies, .cols = kCols, .data = memory.data(), .tensor_scale = 1};
  }

  std::vector<std::byte> tensor;
  Memory memory;
  int64_t bytes = 0;
  Matrix matrix;
};

struct Activations {
  Activations(const Kernel& kernel, int64_t rows) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(kCols));
    const size_t row_bytes = kernel.act_layout(kCols).row_bytes;
    memory = Memory(row_bytes * static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (float& v : x) v = normal(random);
      kernel.quantize(x.data(), kCols, memory.data() + static_cast<size_t>(r) * row_bytes);
    }
  }
  Memory memory;
};

void multiply(ThreadPool& pool, const Weights& w, const Activations& x, int64_t acts, std::vector<float>& out) {
  const int64_t rows = w.matrix.rows, unit = w.matrix.kernel->row_unit;
  const int64_t piece = ceil_div(ceil_div(rows, int64_t{8} * pool.size()), unit) * unit;
  pool.run({static_cast<uint32_t>(ceil_div(rows, piece))}, [&](uint32_t begin, uint32_t end, int) {
    w.matrix.kernel->matmul({.w = &w.matrix,
                             .act = x.memory.data(),
                             .act_rows = acts,
                             .out = out.data(),
                             .out_stride = rows,
                             .row_begin = begin * piece,
                             .row_end = std::min(rows, end * piece)});
  });
}

void run(benchmark::State& state, const Kernel& kernel, int64_t copies, int64_t acts) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const Weights w(kernel, copies);
  const Activations x(kernel, acts);
  std::vector<float> out(static_cast<size_t>(acts * w.matrix.rows));
  for (auto _ : state) {
    multiply(pool, w, x, acts, out);
    benchmark::DoNotOptimize(out.data());
  }
  using benchmark::Counter;
  state.counters["B/s"] = Counter(static_cast<double>(w.bytes), Counter::kIsIterationInvariantRate, Counter::kIs1000);
  state.counters["MAC/s"] =
      Counter(static_cast<double>(w.matrix.rows * kCols * acts), Counter::kIsIterationInvariantRate);
  state.counters["bits/weight"] = 8.0 * static_cast<double>(w.bytes) / static_cast<double>(w.matrix.rows * kCols);
}

int64_t decode_copies(const Kernel& k) {
  const TypeInfo& t = type_info(k.type);
  return std::max<int64_t>(1, kDecodeBytes / (kTensorRows * kCols / t.block_elements * t.block_bytes));
}

void register_kernel(Isa isa, const Kernel& k) {
  const bool reference = std::string_view(k.name).starts_with("decode_");
  const std::string name = std::string(type_info(k.type).name) + "/rule:" + std::to_string(static_cast<int>(k.rule)) +
                           "/" + k.name + (reference ? "/reference" : "") + "/" + std::string(isa_name(isa));
  const auto decode = [&k, copies = decode_copies(k), reference](benchmark::State& s) {
    run(s, k, reference ? 1 : copies, 1);
  };
  const auto prefill = [&k](benchmark::State& s) { run(s, k, 1, kPrefillActs); };
  for (const int threads : {1, 2}) {
    for (auto* b : {benchmark::RegisterBenchmark(("decode/" + name).c_str(), decode),
                    benchmark::RegisterBenchmark(("prefill/" + name).c_str(), prefill)}) {
      b->Arg(threads)->ArgName("threads")->UseRealTime()->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace

void register_all() {
  const Isa isa = select_isa();
  for (const Kernel& k : kernels(isa)) {
    const quant::Format* f = quant::find_format(k.type);
    if (k.rule == f->activation || k.rule == quant::Activation::kI8Row) register_kernel(isa, k);
  }
}

}  // namespace tern::cpu
