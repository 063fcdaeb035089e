// tern bench: tokens a second, as llama-bench measures them (pp N: a prompt of N random tokens; tg N: N tokens one by
// one), alone or in turns with a libllama, with what is needed to judge the numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory.h"
#include "cli/bench_contenders.h"
#include "cli/flags.h"
#include "cli/model_summary.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "engine/bandwidth.h"
#include "engine/stats.h"
#include "measure/receipt.h"

namespace tern::cli {
namespace {

using measure::Contender;
using measure::Receipt;
using measure::Row;
using measure::Series;
using measure::Test;

struct Flags {
  ModelFlags model;
  std::vector<int32_t> prompts{512}, generations{128}, depths{0}, threads{0}, busy{0};
  int32_t repeats = 5;
  std::string library, compared_model, receipt;
  double max_load = 0.25;
  bool json = false;

  std::string compared_path() const { return compared_model.empty() ? model.file.resolve() : compared_model; }
};

/// By depth, because an engine that fills its cache once goes on from there.
std::vector<Test> tests_of(const Flags& flags) {
  std::vector<int32_t> depths = flags.depths;
  std::sort(depths.begin(), depths.end());
  std::vector<Test> tests;
  for (const int32_t depth : depths) {
    for (const int32_t n : flags.prompts)
      if (n > 0) tests.push_back({.prompt = n, .depth = depth});
    for (const int32_t n : flags.generations)
      for (const int32_t busy : flags.busy)
        if (n > 0) tests.push_back({.generate = n, .depth = depth, .busy = busy});
  }
  return tests;
}

int32_t longest(std::span<const Test> tests) {
  int32_t most = 1;
  for (const Test& t : tests) most = std::max(most, t.depth + t.tokens());
  return most;
}

measure::ModelFile describe(const gguf::File& file) {
  measure::ModelFile m{.name = model_name(file),
                       .file = std::filesystem::path(file.path()).filename().string(),
                       .architecture = std::string(file.metadata().get_string("general.architecture").value_or("")),
                       .bytes = file.file_bytes(),
                       .parameters = parameter_count(file),
                       .format_bytes = {}};
  for (const FormatShare& share : format_mix(file)) m.format_bytes[share.name] = share.bytes;
  return m;
}

/// The system gives 2 MB pages to whoever asks for them, as the bandwidth is measured with them.
bool huge_pages_work() {
  const Memory probe(size_t{32} << 20);
  for (size_t i = 0; i < probe.size(); i += 4096) probe.data()[i] = std::byte{1};
  return huge_page_bytes(probe.data(), probe.size()) >= probe.size() / 2;
}

/// One run of the verb: the engines and what has been found so far.
class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags), tests_(tests_of(flags)) {
    if (tests_.empty()) throw UsageError("nothing to measure: -p and -n are both 0");
    if (flags.library.empty() && !flags.compared_model.empty())
      throw UsageError("--compare-model needs --compare DIR, the library that runs it");
    const auto folder = std::filesystem::path(flags.receipt).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      fail(ErrorCode::kNotFound, "there is no folder {} to write the receipt to", folder.string());
  }

  Receipt run() {
    receipt_.before = measure::host_load(load_seconds());
    if (!flags_.receipt.empty()) require_calm(receipt_.before);
    receipt_.host = measure::this_host();
    receipt_.version = version();
    receipt_.commit = measure::build_commit();
    receipt_.time = measure::now_utc();
    receipt_.activations = flags_.model.activations;
    measure::read_through(flags_.model.file.resolve());
    for (const int32_t threads : flags_.threads) measure_with(threads);
    receipt_.after = measure::host_load(load_seconds());
    return receipt_;
  }

  /// Throws when others used more of the machine than a published figure allows.
  void require_calm(const measure::Load& load) const {
    if (load.busy > flags_.max_load)
      fail(ErrorCode::kUnsupported,
           "other processes keep {:.2f} cores busy, and a receipt is written only up to {:.2f}: wait until the machine "
           "is quiet, or say --max-load {:.2f} (the receipt will show it)",
           load.busy, flags_.max_load, load.busy + 0.1);
  }

 private:
  /// A glance is enough where nothing is published.
  double load_seconds() const { return flags_.receipt.empty() ? 0.2 : 1.0; }

  /// Loads the model several times, which is measured too, and keeps the last.
  void load(int32_t threads) {
    ModelFlags how = flags_.model;
    how.threads = threads;
    std::vector<double> seconds;
    for (int32_t i = 0; i < flags_.repeats; ++i) {
      model_.reset();
      const auto start = std::chrono::steady_clock::now();
      model_ = how.load({.context = longest(tests_)});
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    receipt_.loads.push_back({model_->backend().info().threads, seconds});
  }

  /// Memory is looked at before another engine shares the process, after the longest prompt and generation.
  void measure_memory() {
    const auto ours = make_contender(*model_);
    const std::array contenders{ours.get()};
    const int32_t depth = tests_.back().depth;
    for (const Test& test : tests_)
      if (test.depth == depth && test.busy == 0)
        measure::take_turns(contenders, test, 0, vocabulary(), measure::system_clock());
    receipt_.peak_resident = measure::peak_resident();
    receipt_.kv_bytes = model_->memory().kv;
    receipt_.state_bytes = model_->memory().states;
    receipt_.model = describe(model_->file());
    receipt_.type_k = kv_type_name(model_->runner().limits().k);
    receipt_.type_v = kv_type_name(model_->runner().limits().v);
    receipt_.backend = model_->backend().info().name;
    receipt_.device = model_->backend().info().device;
    receipt_.bandwidth_huge = huge_pages_work();
  }

  void load_compared(int threads) {
    const std::string path = flags_.compared_path();
    receipt_.compared = describe(gguf::File::open(path));
    measure::read_through(path);
    library_ = std::make_unique<Libllama>(flags_.library);
    receipt_.library = "llama.cpp " + library_->version();
    const Runner::Limits& limits = model_->runner().limits();
    compared_ = std::make_unique<LlamaModel>(*library_, path, longest(tests_), threads,
                                             LlamaSettings{.k = limits.k, .v = limits.v, .defaults = true});
  }

  int32_t vocabulary() const {
    const auto n = static_cast<int32_t>(model_->plan().n_vocab);
    return compared_ ? std::min(n, compared_->n_vocab()) : n;
  }

  void measure_with(int32_t asked_threads) {
    const bool first = receipt_.rows.empty();
    if (first) measure::reset_peak_resident();
    load(asked_threads);
    const int threads = model_->backend().info().threads;
    if (first) measure_memory();
    receipt_.bandwidth[threads] = read_bandwidth(threads);
    if (first && !flags_.library.empty()) load_compared(threads);
    const auto ours = make_contender(*model_);
    std::unique_ptr<Contender> theirs;
    const int most_threads = std::max(threads, *std::max_element(flags_.threads.begin(), flags_.threads.end()));
    if (compared_) theirs = make_contender(*compared_, threads, most_threads);
    for (const Test& test : tests_) receipt_.rows.push_back(measure_row(test, threads, ours.get(), theirs.get()));
  }

  Row measure_row(const Test& test, int threads, Contender* ours, Contender* theirs) {
    const measure::BusyNeighbours neighbours(test.busy);
    std::vector<Contender*> contenders{ours};
    // Spinning barriers beside a busy neighbour take minutes a sample; what counts there is tern left alone.
    if (theirs != nullptr && test.busy == 0) contenders.push_back(theirs);
    std::vector<Series> series =
        measure::take_turns(contenders, test, flags_.repeats, vocabulary(), measure::system_clock());
    Row row{.test = test, .threads = threads, .ours = std::move(series[0]), .theirs = {}};
    if (series.size() > 1) row.theirs = std::move(series[1]);
    if (test.generate > 0) row.bytes_per_token = bytes_per_token(model_->runner(), test.depth + test.generate / 2.0);
    if (!flags_.model.quiet)
      fmt::print(stderr, "{} with {} threads: {:.2f} tokens/s\n", test.name(), threads,
                 measure::summarize(measure::rates(row.ours, test.tokens())).median);
    return row;
  }

  const Flags& flags_;
  const std::vector<Test> tests_;
  Receipt receipt_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Libllama> library_;
  std::unique_ptr<LlamaModel> compared_;
};

std::string with_spread(const Series& series, int32_t tokens) {
  const measure::Summary s = measure::summarize(measure::rates(series, tokens));
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", s.median, s.low, s.high);
}

void print_rows(const Receipt& r) {
  const bool compared = r.compared.has_value();
  std::vector<std::string> titles{"TEST", ">THREADS", ">TOKENS/S (RANGE)", ">MB/TOKEN", ">GB/S", ">OF MACHINE"};
  if (compared) titles.insert(titles.end(), {">LLAMA.CPP (RANGE)", ">RATIO"});
  titles.emplace_back("");
  Table table(titles);
  for (const Row& row : r.rows) {
    const int32_t tokens = row.test.tokens();
    const double bytes = row.bytes_per_token * measure::summarize(measure::rates(row.ours, tokens)).median;
    const double bandwidth = r.bandwidth_of(row.threads);
    std::vector<std::string> cells{row.test.name(),
                                   fmt::format("{}", row.threads),
                                   with_spread(row.ours, tokens),
                                   bytes > 0 ? fmt::format("{:.1f}", row.bytes_per_token / 1e6) : "",
                                   bytes > 0 ? fmt::format("{:.1f}", bytes / 1e9) : "",
                                   bytes > 0 && bandwidth > 0 ? fmt::format("{:.0f}%", 100 * bytes / bandwidth) : ""};
    if (compared) {
      const bool has = !row.theirs.empty();
      cells.push_back(has ? with_spread(row.theirs, tokens) : "");
      cells.push_back(has ? fmt::format("{:.2f}", measure::paired_ratio(row.ours, row.theirs)) : "");
    }
    cells.emplace_back(row.contended() ? "contended" : "");
    table.add(cells);
  }
  fmt::print("{}", table.text());
}

void print_report(const Receipt& r) {
  fmt::print("{}, {}, {} parameters\n", printable(r.model.file), human_bytes(r.model.bytes),
             human_count(r.model.parameters));
  fmt::print("{} {} on {}; KV cache {}, {}\n", r.version, r.commit, r.device, r.type_k, r.type_v);
  if (r.compared) fmt::print("in turns with {} on {}\n", r.library, printable(r.compared->file));
  fmt::print("\n");
  print_rows(r);
  fmt::print("\n");
  for (const auto& [threads, bytes] : r.bandwidth)
    fmt::print("memory reads {:.1f} GB/s with {} threads, {} pages\n", bytes / 1e9, threads,
               r.bandwidth_huge ? "2 MB" : "only small");
  for (const measure::LoadTime& load : r.loads)
    fmt::print("load {:.2f} s with {} threads\n", measure::summarize(load.seconds).median, load.threads);
  const uint64_t expected = r.model.bytes + r.kv_bytes + r.state_bytes;
  fmt::print("peak memory {}: {:.0f}% of file {} + KV {} + state {}\n", human_bytes(r.peak_resident),
             100.0 * static_cast<double>(r.peak_resident) / static_cast<double>(expected), human_bytes(r.model.bytes),
             human_bytes(r.kv_bytes), human_bytes(r.state_bytes));
  fmt::print("others kept {:.2f} cores busy before and {:.2f} after\n", r.before.busy, r.after.busy);
}

void write_receipt(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text << "\n" << std::flush;
  if (!out) fail(ErrorCode::kIo, "cannot write the receipt {}", path);
}

int bench(const Flags& flags) {
  Bench run(flags);
  const Receipt receipt = run.run();
  const nlohmann::ordered_json json = measure::to_json(receipt);
  if (flags.json) {
    print_json(json, 2);
  } else {
    print_report(receipt);
  }
  if (flags.receipt.empty()) return 0;
  run.require_calm(receipt.after);
  write_receipt(flags.receipt, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return 0;
}

}  // namespace

Action setup_bench(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  const int32_t most = 1 << 22;
  flags->model.file.declare(set, false);
  flags->model.declare_engine(set);
  set.option("-p,--n-prompt", flags->prompts, "lengths of prompts, separated by commas (0: none)").between(0, most);
  set.option("-n,--n-gen", flags->generations, "numbers of tokens to generate").between(0, most);
  set.option("-d,--n-depth", flags->depths, "tokens in the cache before the measurement starts").between(0, most);
  set.option("-t,--threads", flags->threads, "numbers of threads (0: the physical cores this process may use)")
      .between(0, 1024);
  set.option("-r,--repetitions", flags->repeats, "times each is measured, after a warm-up").between(1, 1000);
  set.option("--busy", flags->busy, "numbers of processes that keep a core each busy beside a generation")
      .between(0, 64);
  set.option("--compare", flags->library, "take turns with the libllama*.so (llama.cpp v0.5.0) of this folder");
  set.option("--compare-model", flags->compared_model, "the file libllama runs (default: the same)");
  set.option("--receipt", flags->receipt, "write everything to this JSON file, if the machine was quiet");
  set.option("--max-load", flags->max_load, "cores that others may use at either end for a receipt to be written");
  set.flag("--json", flags->json, "the receipt on stdout, whatever the load");
  return [flags] { return bench(*flags); };
}

}  // namespace tern::cli
