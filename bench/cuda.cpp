// What one GPU does with one model: decode at several depths, prompts, many sequences together, the first token of a
// short prompt, and what of a step the host takes. Every figure stands beside the card's copy bandwidth, measured here.
//
//   bench_cuda MODEL [--depths 128,16384] [--prompt 2048] [--sequences 32] [--repeats 5] [--json FILE]
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "engine/model.h"
#include "engine/stats.h"

namespace tern {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model, json;
  std::vector<int32_t> depths{128, 16384};
  int32_t prompt = 2048, sequences = 32, tokens = 64, repeats = 5;
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Bytes a second of a large copy from the GPU's memory to itself, read and written bytes counted.
double copy_bandwidth() {
  constexpr size_t kBytes = size_t{2} << 30;
  void *from = nullptr, *to = nullptr;
  if (cudaMalloc(&from, kBytes) != cudaSuccess || cudaMalloc(&to, kBytes) != cudaSuccess) return 0;
  cudaMemset(from, 1, kBytes);
  std::vector<double> rates;
  for (int i = 0; i < 7; ++i) {
    cudaDeviceSynchronize();
    const auto start = Clock::now();
    cudaMemcpy(to, from, kBytes, cudaMemcpyDeviceToDevice);
    cudaDeviceSynchronize();
    rates.push_back(2.0 * kBytes / seconds_since(start));
  }
  cudaFree(from);
  cudaFree(to);
  return median(rates);
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), bandwidth_(copy_bandwidth()) {
    const int32_t longest =
        std::max(*std::max_element(options.depths.begin(), options.depths.end()) + options.tokens, options.prompt);
    ModelOptions load{.path = options.model, .backend = BackendKind::kCuda, .gpu_layers = kAllLayers};
    load.limits = {.context = longest + 16, .sequences = 1, .rows = options.prompt};
    model_ = std::make_unique<Model>(load);
    fmt::print("{} on {}, copies {:.0f} GB/s; loaded in {:.2f} s\n", model_name(model_->file()),
               model_->backend().info().device, bandwidth_ / 1e9, model_->load_seconds());
    result_ = {{"model", model_name(model_->file())},
               {"device", model_->backend().info().device},
               {"copy_gb_per_s", bandwidth_ / 1e9},
               {"load_seconds", model_->load_seconds()}};
  }

  void run() {
    first_token();
    prompt();
    for (const int32_t depth : options_.depths) decode(depth);
    together();
    if (!options_.json.empty()) std::ofstream(options_.json, std::ios::app) << result_.dump() << "\n";
  }

 private:
  std::vector<int32_t> tokens(int32_t n) {
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % static_cast<uint32_t>(model_->plan().n_vocab));
    return ids;
  }

  void first_token() {
    std::vector<double> times;
    for (int32_t i = 0; i <= options_.repeats; ++i) {
      Sequence s = model_->runner().start();
      const auto ids = tokens(16);
      const auto start = Clock::now();
      model_->runner().prefill(s, ids, {}, kBestToken);
      times.push_back(seconds_since(start));
    }
    const double first = times.front();
    times.erase(times.begin());
    fmt::print("first token of 16          {:8.2f} ms (the very first {:.2f} ms)\n", 1e3 * median(times), 1e3 * first);
    result_["first_token_ms"] = 1e3 * median(times);
    result_["very_first_token_ms"] = 1e3 * first;
  }

  void prompt() {
    std::vector<double> rates;
    for (int32_t i = 0; i <= options_.repeats; ++i) {
      Sequence s = model_->runner().start();
      const auto ids = tokens(options_.prompt);
      const auto start = Clock::now();
      model_->runner().prefill(s, ids, {}, kBestToken);
      if (i > 0) rates.push_back(options_.prompt / seconds_since(start));
    }
    fmt::print("prompt {:<6}              {:8.0f} tokens/s\n", options_.prompt, median(rates));
    result_["prompt"] = {{"tokens", options_.prompt}, {"tokens_per_s", median(rates)}};
  }

  void decode(int32_t depth) {
    Sequence s = model_->runner().start();
    model_->runner().prefill(s, tokens(depth), {}, kBestToken);
    for (int32_t i = 0; i < 4; ++i) model_->runner().decode(s, 1, kBestToken);
    std::vector<double> times, hosts;
    for (const int32_t id : tokens(options_.tokens)) {
      if (s.position() + 1 >= model_->runner().limits().context) break;
      const auto start = Clock::now();
      model_->runner().decode(s, id, kBestToken);
      times.push_back(seconds_since(start));
      hosts.push_back(times.back() - cuda_wait_seconds(model_->backend()));
    }
    const double seconds = median(times), bytes = bytes_per_token(model_->runner(), s.position());
    fmt::print(
        "decode at {:<6}           {:8.1f} tokens/s, {:.3f} ms, {:.2f} GB: {:.0f}% of the bandwidth; host {:.3f} ms, "
        "{:.1f}%\n",
        depth, 1 / seconds, 1e3 * seconds, bytes / 1e9, 100 * bytes / seconds / bandwidth_, 1e3 * median(hosts),
        100 * median(hosts) / seconds);
    result_["decode"].push_back({{"depth", depth},
                                 {"tokens_per_s", 1 / seconds},
                                 {"bytes", bytes},
                                 {"bandwidth_share", bytes / seconds / bandwidth_},
                                 {"host_ms", 1e3 * median(hosts)}});
  }

  void together() {
    if (options_.sequences < 2) return;
    Runner runner(model_->plan(), model_->backend(), {.context = 512, .sequences = options_.sequences, .rows = 512});
    std::vector<Sequence> all;
    for (int32_t i = 0; i < options_.sequences; ++i) {
      all.push_back(runner.start());
      runner.prefill(all.back(), tokens(128), {}, kBestToken);
    }
    std::vector<double> times;
    for (int32_t i = 0; i < options_.tokens; ++i) {
      const auto ids = tokens(options_.sequences);
      std::vector<Slice> slices;
      for (size_t k = 0; k < all.size(); ++k)
        slices.push_back({.sequence = &all[k], .tokens = {&ids[k], 1}, .wanted = kBestToken});
      const auto start = Clock::now();
      runner.run(slices);
      if (i >= 4) times.push_back(seconds_since(start));
    }
    fmt::print("{} sequences together     {:8.0f} tokens/s, {:.3f} ms a step\n", options_.sequences,
               options_.sequences / median(times), 1e3 * median(times));
    result_["together"] = {{"sequences", options_.sequences}, {"tokens_per_s", options_.sequences / median(times)}};
  }

  Options options_;
  double bandwidth_;
  std::unique_ptr<Model> model_;
  std::mt19937 random_{1};
  nlohmann::ordered_json result_;
};

}  // namespace
}  // namespace tern

int main(int argc, char** argv) {
  tern::Options options;
  CLI::App app("What one GPU does with one model");
  app.add_option("model", options.model)->required();
  app.add_option("--depths", options.depths)->delimiter(',');
  app.add_option("--prompt", options.prompt);
  app.add_option("--sequences", options.sequences);
  app.add_option("--tokens", options.tokens);
  app.add_option("--repeats", options.repeats);
  app.add_option("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  try {
    tern::Bench(options).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cuda: {}\n", error.what());
    return 1;
  }
  return 0;
}
