// tern bench: tokens a second, as llama-bench measures them: pp N = a prompt of N random tokens, tg N = N tokens one by
// one.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/model_summary.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "engine/bandwidth.h"
#include "engine/stats.h"

namespace tern::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  ModelFlags model;
  std::vector<int32_t> prompts{512}, generations{128}, depths{0};
  int32_t repeats = 5;
  bool json = false;
};

struct Test {
  int32_t prompt = 0, generate = 0, depth = 0;
  std::string name() const {
    return (prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate)) +
           (depth > 0 ? fmt::format(" @ d{}", depth) : "");
  }
};

struct Result {
  Test test;
  std::vector<double> rates;   // tokens a second
  double bytes_per_token = 0;  // tg only
  double median() const {
    std::vector<double> sorted = rates;
    std::sort(sorted.begin(), sorted.end());
    const size_t n = sorted.size();
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  }
  double mean() const {
    double sum = 0;
    for (const double r : rates) sum += r;
    return sum / static_cast<double>(rates.size());
  }
  double deviation() const {
    double sum = 0;
    for (const double r : rates) sum += (r - mean()) * (r - mean());
    return rates.size() > 1 ? std::sqrt(sum / static_cast<double>(rates.size() - 1)) : 0;
  }
};

/// Seconds of one repetition, after the depth has been filled.
double measure(Runner& runner, const Test& test, std::mt19937& random) {
  const auto tokens = [&](int32_t n) {
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(runner.plan().n_vocab));
    return ids;
  };
  Sequence sequence = runner.start();
  if (test.depth > 0) runner.prefill(sequence, tokens(test.depth));
  const std::vector<int32_t> ids = tokens(test.prompt + test.generate);
  const auto start = std::chrono::steady_clock::now();
  if (test.prompt > 0) {
    runner.prefill(sequence, ids);
  } else {
    for (const int32_t id : ids) runner.decode(sequence, id);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result run_test(Runner& runner, const Test& test, int32_t repeats) {
  std::mt19937 random(1);
  Result result{.test = test, .rates = {}};
  Test warm = test;
  warm.generate = std::min(test.generate, 8);
  measure(runner, warm, random);
  for (int32_t i = 0; i < repeats; ++i)
    result.rates.push_back((test.prompt + test.generate) / measure(runner, test, random));
  if (test.generate > 0) result.bytes_per_token = bytes_per_token(runner, test.depth + test.generate / 2.0);
  return result;
}

void print_json(Model& model, const std::vector<Result>& results, double bandwidth) {
  const BackendInfo info = model.backend().info();
  Json out = Json::array();
  for (const Result& r : results)
    out.push_back({{"model", model_name(model.file())},
                   {"path", model.file().path()},
                   {"model_size", model.file().file_bytes()},
                   {"model_n_params", parameter_count(model.file())},
                   {"backend", info.name},
                   {"device", info.device},
                   {"n_threads", info.threads},
                   {"type_k", kv_type_name(model.runner().limits().k)},
                   {"type_v", kv_type_name(model.runner().limits().v)},
                   {"test", r.test.name()},
                   {"n_prompt", r.test.prompt},
                   {"n_gen", r.test.generate},
                   {"n_depth", r.test.depth},
                   {"avg_ts", r.mean()},
                   {"stddev_ts", r.deviation()},
                   {"median_ts", r.median()},
                   {"samples_ts", r.rates},
                   {"bytes_per_token", r.bytes_per_token},
                   {"gb_per_s", r.median() * r.bytes_per_token / 1e9},
                   {"machine_gb_per_s", bandwidth / 1e9}});
  fmt::print("{}\n", out.dump(2));
}

void print_table(Model& model, const std::vector<Result>& results, double bandwidth) {
  const BackendInfo info = model.backend().info();
  Table table(
      {"MODEL", ">SIZE", ">PARAMS", "BACKEND", ">THREADS", "TEST", ">TOKENS/S", ">MEDIAN", ">GB/S", ">OF MACHINE"});
  for (const Result& r : results) {
    const double gb = r.median() * r.bytes_per_token / 1e9;
    table.add({model_name(model.file()), human_bytes(model.file().file_bytes()),
               human_count(parameter_count(model.file())), info.name, fmt::format("{}", info.threads), r.test.name(),
               fmt::format("{:.2f} +- {:.2f}", r.mean(), r.deviation()), fmt::format("{:.2f}", r.median()),
               gb > 0 ? fmt::format("{:.1f}", gb) : "",
               gb > 0 && bandwidth > 0 ? fmt::format("{:.0f}%", 100e9 * gb / bandwidth) : ""});
  }
  fmt::print("{}\nmachine: {}, reads {:.1f} GB/s with {} threads\n", table.text(), info.device, bandwidth / 1e9,
             info.threads);
}

int bench(const Flags& flags) {
  std::vector<Test> tests;
  int32_t longest = 1;
  for (const int32_t depth : flags.depths) {
    for (const int32_t n : flags.prompts)
      if (n > 0) tests.push_back({.prompt = n, .depth = depth});
    for (const int32_t n : flags.generations)
      if (n > 0) tests.push_back({.generate = n, .depth = depth});
  }
  if (tests.empty()) throw UsageError("nothing to measure: -p and -n are both 0");
  for (const Test& t : tests) longest = std::max(longest, t.depth + t.prompt + t.generate);
  const auto model = flags.model.load({.context = std::max(flags.model.context, longest)});
  std::vector<Result> results;
  for (const Test& test : tests) results.push_back(run_test(model->runner(), test, flags.repeats));
  const double bandwidth = read_bandwidth(model->backend().info().threads);
  if (flags.json) {
    print_json(*model, results, bandwidth);
  } else {
    print_table(*model, results, bandwidth);
  }
  return 0;
}

}  // namespace

Action setup_bench(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, false);
  const int32_t most = 1 << 22;
  set.option("-p,--n-prompt", flags->prompts, "lengths of prompts, separated by commas (0: none)").between(0, most);
  set.option("-n,--n-gen", flags->generations, "numbers of tokens to generate").between(0, most);
  set.option("-d,--n-depth", flags->depths, "tokens in the cache before the measurement starts").between(0, most);
  set.option("-r,--repetitions", flags->repeats, "times each is measured").between(1, 1000);
  set.flag("--json", flags->json, "as a JSON array");
  return [flags] { return bench(*flags); };
}

}  // namespace tern::cli
