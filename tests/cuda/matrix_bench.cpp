// How fast the matrix products run on this GPU, and what share of its memory bandwidth or int8 rate that is. Random
// bytes in the device layout; every launch of a graph reads other weights than the one before, more than the cache
// holds.
//   matrix_bench [part of a row's name]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/matrix.h"

namespace tern::cuda {
namespace {

using quant::Activation;

constexpr size_t kColdBytes = 400u << 20;

void fill_random(const DeviceMemory& m) {
  static const std::vector<uint32_t> noise = [] {
    std::mt19937 random(1);
    std::vector<uint32_t> v(4 << 20);
    for (uint32_t& x : v) x = static_cast<uint32_t>(random()) & 0x3bff3bffu;  // as f16: finite
    return v;
  }();
  const size_t bytes = noise.size() * 4;
  for (size_t at = 0; at < m.size(); at += bytes) {
    check(cudaMemcpy(m.data() + at, noise.data(), std::min(bytes, m.size() - at), cudaMemcpyHostToDevice), "fill");
  }
}

/// Seconds of one replay of what `work` enqueues: the median of several.
double seconds(cudaStream_t stream, const std::function<void()>& work) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t begin, end;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  work();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> ms;
  for (int i = 0; i < 9; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "run");
    float t = 0;
    check(cudaEventElapsedTime(&t, begin, end), "time");
    if (i >= 2) ms.push_back(t);
  }
  std::nth_element(ms.begin(), ms.begin() + ms.size() / 2, ms.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms[ms.size() / 2] / 1e3;
}

double copy_rate(cudaStream_t stream) {
  DeviceMemory a(2u << 30), b(2u << 30);
  const double s =
      seconds(stream, [&] { cudaMemcpyAsync(b.data(), a.data(), a.size(), cudaMemcpyDeviceToDevice, stream); });
  return 2.0 * static_cast<double>(a.size()) / s;
}

/// Products over one activation, as a block of a model has them.
struct Step {
  int64_t cols;
  std::vector<int64_t> rows;
  int64_t rotation = 1024;
};

struct Weights {
  std::vector<DeviceMemory> memory;
  std::vector<std::vector<DeviceMatrix>> steps;  // layer after layer
  double bytes = 0, macs = 0;
};

Weights make_weights(TensorType type, const std::vector<Step>& steps, int layers) {
  Weights w;
  for (int layer = 0; layer < layers; ++layer) {
    for (const Step& s : steps) {
      auto& list = w.steps.emplace_back();
      for (const int64_t rows : s.rows) {
        const MatrixShape shape{.type = type, .cols = s.cols, .rows = rows};
        w.memory.emplace_back(matrix_bytes(shape));
        fill_random(w.memory.back());
        list.push_back({.shape = shape, .data = w.memory.back().data()});
        w.bytes += static_cast<double>(matrix_bytes(shape));
        w.macs += static_cast<double>(rows * s.cols);
      }
    }
  }
  return w;
}

void run_row(const char* name, cudaStream_t stream, TensorType type, const std::vector<Step>& steps, int layers,
             const std::vector<int64_t>& act_rows, double copy) {
  const Activation rule = quant::find_format(type)->activation;
  const Weights w = make_weights(type, steps, layers);
  int64_t widest = 0, longest = 0;
  for (const Step& s : steps) {
    widest = std::max(widest, s.cols);
    for (const int64_t r : s.rows) longest = std::max(longest, r);
  }
  for (const int64_t rows : act_rows) {
    DeviceMemory x(static_cast<size_t>(rows * widest) * 4), out(static_cast<size_t>(rows * longest) * 4 * 2);
    fill_random(x);
    DeviceMemory room(prepared_bytes(rule, widest, rows) + (1 << 20));
    DeviceMemory workspace(workspace_bytes());
    check(cudaMemset(workspace.data(), 0, workspace.size()), "a workspace");
    const auto prepare_step = [&](const Step& s) {
      const Prepared p{.rule = rule, .cols = s.cols, .capacity = rows, .data = room.data()};
      prepare(stream, reinterpret_cast<const float*>(x.data()), rows, {.block = s.rotation}, p);
      return p;
    };
    const auto multiply_step = [&](size_t i, const Prepared& p) {
      std::vector<Product> products;
      for (const DeviceMatrix& m : w.steps[i])
        products.push_back({.w = &m, .out = reinterpret_cast<float*>(out.data())});
      multiply(stream, products, p, rows, workspace.data());
    };
    const double all = seconds(stream, [&] {
      for (size_t i = 0; i < w.steps.size(); ++i) multiply_step(i, prepare_step(steps[i % steps.size()]));
    });
    const double products = seconds(stream, [&] {
      for (size_t i = 0; i < w.steps.size(); ++i) {
        const Step& s = steps[i % steps.size()];
        multiply_step(i, {.rule = rule, .cols = s.cols, .capacity = rows, .data = room.data()});
      }
    });
    const double tops = 2 * w.macs * static_cast<double>(rows) / products / 1e12;
    std::printf(
        "%-22s %-7s rows %4ld  %8.1f us products, %8.1f us with prepare  %6.0f GB/s %5.1f%% of copy  %6.1f TOPS\n",
        name, std::string(type_info(type).name).c_str(), rows, products * 1e6, all * 1e6, w.bytes / products / 1e9,
        100 * w.bytes / products / copy, tops);
    std::fflush(stdout);
  }
}

int bench(const char* only) {
  const Stream stream;
  const double copy = copy_rate(stream.get());
  std::printf("device-to-device copy: %.0f GB/s read and written\n", copy / 1e9);
  using enum TensorType;
  // Bonsai 27B: three delta-net blocks and an attention block, sixteen times; then the head.
  const Step up{5120, {17408, 17408}}, down{17408, {5120}}, delta{5120, {10240, 6144}}, out{6144, {5120}},
      qkv{5120, {12288, 1024, 1024}};
  const std::vector<Step> four = {delta, out, up, down, delta, out, up, down, delta, out, up, down, qkv, out, up, down};
  const auto wanted = [&](const char* name) { return !only || std::strstr(name, only); };
  const auto row = [&](const char* name, TensorType type, const std::vector<Step>& steps, int layers,
                       const std::vector<int64_t>& rows) {
    if (wanted(name)) run_row(name, stream.get(), type, steps, layers, rows, copy);
  };
  for (const TensorType type : {PQ2_0, PTQ1_0}) {
    row("27b blocks", type, four, 16, {1, 4, 8, 16, 32, 2048});
    row("27b head", type, {{5120, {248320}}}, 2, {1, 32});
    row("shape up", type, {up}, 12, {1, 2048});
    row("shape down", type, {down}, 24, {1, 2048});
    row("shape delta", type, {delta}, 24, {1});
    row("shape out", type, {out}, 60, {1});
  }
  const Step bit_qkv{2560, {2560, 640, 640}, 0}, bit_out{2560, {2560}, 0}, bit_up{2560, {6912, 6912}, 0},
      bit_down{6912, {2560}, 0};
  row("bitnet blocks", I2_S, {bit_qkv, bit_out, bit_up, bit_down}, 30, {1, 32, 2048});
  row("bitnet head", F16, {{2560, {128256}, 0}}, 1, {1});
  for (const TensorType type : {TQ2_0, TQ1_0, Q2_0, Q1_0, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, MXFP4, IQ4_XS, Q2_K, BF16}) {
    row("formats", type, {{4096, {14336, 14336}, 0}, {14336, {4096}, 0}}, 8, {1, 8, 32});
    if (type != BF16) row("formats gemm", type, {{4096, {14336}, 0}}, 1, {1024});
  }
  return 0;
}

}  // namespace
}  // namespace tern::cuda

int main(int argc, char** argv) {
  try {
    return tern::cuda::bench(argc > 1 ? argv[1] : nullptr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
