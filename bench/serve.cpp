// What a server does for one, 8 and 64 streaming clients at once, and what a long prompt does to streams in flight:
//   bench_serve -m MODEL.gguf                       starts build/release/tern on a free port
//   bench_serve --url http://127.0.0.1:8383         measures a server that runs already, with -np 64 or more
// Run alone on an idle machine; the rounds of all rows take turns, and ratios are those of one round.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "base/error.h"
#include "measure/host.h"
#include "measure/receipt.h"
#include "serve_client.h"

namespace tern::bench {
namespace {

using measure::summarize;

struct Flags {
  std::string url, model, tern = "build/release/tern", receipt;
  std::vector<int> clients{1, 8, 64};
  int generate = 128, user = 64, system = 512, repeats = 3, context = 4096, prompt = 4096, streams = 8;
  bool no_long = false;
  std::vector<std::string> server;
};

/// Tokens of plain prose in a seeded order: a model goes on with text, not with the end.
class Prose {
 public:
  explicit Prose(const Address& server) {
    static constexpr const char* kSentences[] = {
        "The river runs slowly past the old mill and turns south behind the hill.",
        "In the morning the baker carries warm bread across the square.",
        "She asked how far the lighthouse was, and nobody could say for certain.",
        "Winter came early that year, so the harvest had to be finished in a hurry.",
        "A small engine pulled the last three wagons over the bridge.",
        "He wrote down every number twice and compared the two lists at night.",
        "The children built a dam of stones and watched the water rise.",
        "When the lamp went out, they told each other stories until it was light.",
        "There are many ways to mend a net, but only one that lasts.",
        "Far above the valley a bird of prey drew circles in the cold air.",
        "The letter had been opened, read and closed again with great care.",
        "Nothing in the garden grew as well as the beans along the southern wall."};
    std::mt19937 random(1);
    std::string text;
    for (int i = 0; i < 1000; ++i) text += std::string(kSentences[random() % std::size(kSentences)]) + " ";
    tokens_ = call(server, "POST", "/tokenize", {{"content", text}}).at("tokens").get<std::vector<int32_t>>();
  }
  /// `n` tokens from a place of its own.
  std::vector<int32_t> draw(int n) {
    std::vector<int32_t> out;
    while (std::ssize(out) < n) {
      const size_t at = random_() % (tokens_.size() - 16);
      out.insert(out.end(), tokens_.begin() + static_cast<ptrdiff_t>(at),
                 tokens_.begin() + static_cast<ptrdiff_t>(at) + 16);
    }
    out.resize(static_cast<size_t>(n));
    return out;
  }

 private:
  std::vector<int32_t> tokens_;
  std::mt19937 random_{2};
};

Json completion(const std::vector<int32_t>& prompt, int generate, bool cache) {
  return {{"prompt", prompt},
          {"max_tokens", generate},
          {"temperature", 0},
          {"ignore_eos", true},
          {"cache_prompt", cache},
          {"stream", true},
          {"stream_options", {{"include_usage", true}}}};
}

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

/// The value below which `share` of them lie; they are sorted in place.
double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

struct Latencies {
  std::vector<double> values;  // seconds
  Json json() {
    return {{"n", values.size()},
            {"p50_ms", 1e3 * percentile(values, .5)},
            {"p95_ms", 1e3 * percentile(values, .95)},
            {"p99_ms", 1e3 * percentile(values, .99)}};
  }
  std::string text() {
    return fmt::format("{:7.1f} {:7.1f} {:7.1f}", 1e3 * percentile(values, .5), 1e3 * percentile(values, .95),
                       1e3 * percentile(values, .99));
  }
};

/// So many clients at once, with or without a system prompt that all of them share.
struct Row {
  int clients;
  bool shared;
  std::vector<double> rates{};  // tokens/s of all together, a round each
  Latencies first{}, between{};
  int64_t generated = 0, prompt = 0, cached = 0, pieces = 0;  // tokens, but pieces of text
};

class Bench {
 public:
  Bench(const Flags& flags, Address server) : flags_(flags), server_(std::move(server)), prose_(server_) {
    system_ = prose_.draw(flags.system);
    for (const bool shared : {false, true})
      for (const int clients : flags.clients) rows_.push_back({clients, shared});
  }

  void run() {
    Row warm_up{1, true};
    measure_round(warm_up);
    for (int round = 0; round < flags_.repeats; ++round)
      for (Row& row : rows_) measure_round(row);
    for (int round = 0; round < flags_.repeats && !flags_.no_long; ++round) interrupt();
  }

  void print() {
    fmt::print("{:>7} {:>7} {:>7} {:>9} {:>15} {:^23} {:^23}\n", "clients", "prompt", "cached", "tokens/s", "(range)",
               "first token, ms: 50 95 99%", "between tokens, ms");
    for (Row& row : rows_) {
      const measure::Summary rate = summarize(row.rates);
      const int64_t requests = int64_t{row.clients} * flags_.repeats;
      fmt::print("{:>7} {:>7} {:>7} {:>9.1f} {:>15} {} {}{}\n", row.clients, row.prompt / requests,
                 row.cached / requests, rate.median, fmt::format("({:.1f}-{:.1f})", rate.low, rate.high),
                 row.first.text(), row.between.text(),
                 row.pieces * 10 < row.generated * 9 ? "  many tokens showed no text" : "");
    }
    for (const bool shared : {false, true})
      if (const auto ratio = eight_to_one(shared))
        fmt::print("8 clients do {:.2f} times the tokens/s of 1 {} a shared system prompt (wanted: 3)\n", *ratio,
                   shared ? "with" : "without");
    if (alone_.values.empty() || beside_.values.empty()) return;
    fmt::print("{} streams alone: {} ms between tokens; while a prompt of {} tokens is read ({:.2f} s): {} ms\n",
               flags_.streams, alone_.text(), long_prompt(), summarize(reading_).median, beside_.text());
    fmt::print("p99 with / without the prompt: {:.2f} (wanted: at most 2)\n", long_ratio());
  }

  Json json() {
    Json out{{"rows", Json::array()}};
    for (Row& row : rows_)
      out["rows"].push_back({{"clients", row.clients},
                             {"shared_system_prompt", row.shared},
                             {"n_gen", flags_.generate},
                             {"prompt_tokens", row.prompt},
                             {"cached_tokens", row.cached},
                             {"median_ts", summarize(row.rates).median},
                             {"samples_ts", row.rates},
                             {"first_token", row.first.json()},
                             {"inter_token", row.between.json()}});
    for (const bool shared : {false, true})
      if (const auto ratio = eight_to_one(shared)) out[shared ? "ratio_8_1_shared" : "ratio_8_1"] = *ratio;
    if (!alone_.values.empty() && !beside_.values.empty())
      out["long_prompt"] = {{"streams", flags_.streams},
                            {"prompt_tokens", long_prompt()},
                            {"reading_s", reading_},
                            {"inter_token_without", alone_.json()},
                            {"inter_token_with", beside_.json()},
                            {"ratio_p99", long_ratio()}};
    return out;
  }

 private:
  void measure_round(Row& row) {
    Streams streams;
    for (int i = 0; i < row.clients; ++i) {
      std::vector<int32_t> prompt = row.shared ? system_ : std::vector<int32_t>{};
      const std::vector<int32_t> user = prose_.draw(flags_.user);
      prompt.insert(prompt.end(), user.begin(), user.end());
      // What is not to be shared must not be found from an earlier round either.
      streams.push_back(std::make_unique<Stream>(server_, completion(prompt, flags_.generate, row.shared)));
    }
    pump(streams);
    const auto end = Clock::now();
    int64_t generated = 0;
    for (const auto& stream : streams) {
      const auto& pieces = stream->pieces();
      if (!pieces.empty()) row.first.values.push_back(seconds(pieces.front() - stream->sent()));
      for (size_t i = 1; i < pieces.size(); ++i) row.between.values.push_back(seconds(pieces[i] - pieces[i - 1]));
      generated += stream->generated();
      row.prompt += stream->prompt();
      row.cached += stream->cached();
      row.pieces += std::ssize(pieces);
    }
    row.generated += generated;
    row.rates.push_back(static_cast<double>(generated) / seconds(end - streams.front()->sent()));
  }

  int long_prompt() const { return std::min(flags_.prompt, flags_.context - 8); }

  /// Streams in flight, then a long prompt beside them, then some more of the streams, which are hung up on.
  void interrupt() {
    const auto grown = [&](const Streams& streams, const std::vector<size_t>& from) {
      for (size_t i = 0; i < from.size(); ++i)
        if (streams[i]->pieces().size() < from[i] + kPiecesAlone) return false;
      return true;
    };
    const auto counts = [&](const Streams& streams) {
      std::vector<size_t> out;
      for (int i = 0; i < flags_.streams; ++i) out.push_back(streams[static_cast<size_t>(i)]->pieces().size());
      return out;
    };
    Streams streams;
    const int generate = flags_.context - flags_.user - 1;
    for (int i = 0; i < flags_.streams; ++i)
      streams.push_back(std::make_unique<Stream>(server_, completion(prose_.draw(flags_.user), generate, false)));
    const auto all_begun = [&] {
      return std::all_of(streams.begin(), streams.end(), [](const auto& s) { return !s->pieces().empty(); });
    };
    pump(streams, all_begun);
    const auto begun = Clock::now();
    pump(streams, [&, from = counts(streams)] { return grown(streams, from); });
    streams.push_back(std::make_unique<Stream>(server_, completion(prose_.draw(long_prompt()), 1, false)));
    const Stream& interloper = *streams.back();
    pump(streams, [&] { return interloper.ended(); });
    const auto read = Clock::now();
    pump(streams, [&, from = counts(streams)] { return grown(streams, from); });
    reading_.push_back(seconds(read - interloper.sent()));
    for (int i = 0; i < flags_.streams; ++i) {
      const auto& pieces = streams[static_cast<size_t>(i)]->pieces();
      for (size_t k = 1; k < pieces.size(); ++k) {
        if (pieces[k - 1] < begun) continue;
        const bool beside = pieces[k] > interloper.sent() && pieces[k - 1] < read;
        (beside ? beside_ : alone_).values.push_back(seconds(pieces[k] - pieces[k - 1]));
      }
    }
  }

  /// The median over the rounds; nothing when 1 or 8 clients were not asked for.
  std::optional<double> eight_to_one(bool shared) const {
    const auto find = [&](int clients) {
      return std::find_if(rows_.begin(), rows_.end(),
                          [&](const Row& row) { return row.clients == clients && row.shared == shared; });
    };
    const auto one = find(1), eight = find(8);
    if (one == rows_.end() || eight == rows_.end()) return std::nullopt;
    std::vector<double> ratios;
    for (size_t i = 0; i < one->rates.size(); ++i) ratios.push_back(eight->rates[i] / one->rates[i]);
    return summarize(ratios).median;
  }

  double long_ratio() { return percentile(beside_.values, .99) / percentile(alone_.values, .99); }

  static constexpr size_t kPiecesAlone = 64;
  const Flags& flags_;
  const Address server_;
  Prose prose_;
  std::vector<int32_t> system_;
  std::vector<Row> rows_;
  Latencies alone_, beside_;
  std::vector<double> reading_;
};

Json to_json(const measure::Load& load) {
  return {{"busy_cores", load.busy}, {"average", load.average}};
}

int measure_server(const Flags& flags) {
  std::optional<OwnServer> own;
  std::string url = flags.url;
  const int most = *std::max_element(flags.clients.begin(), flags.clients.end());
  if (url.empty()) {
    std::vector<std::string> arguments{"-m",  flags.model,
                                       "-c",  std::to_string(flags.context),
                                       "-np", std::to_string(std::max(most, flags.streams + 1))};
    arguments.insert(arguments.end(), flags.server.begin(), flags.server.end());
    own.emplace(flags.tern, arguments);
    url = own->url();
  }
  const Address server = Address::of(url);
  const measure::Load before = measure::host_load(1);
  Bench bench(flags, server);
  bench.run();
  bench.print();
  if (flags.receipt.empty()) return 0;
  const measure::Host host = measure::this_host();
  Json out{{"bench_commit", measure::build_commit()},  // a server may be of another
           {"time", measure::now_utc()},
           {"host",
            {{"cpu", host.cpu},
             {"cores", host.cores},
             {"memory", host.memory},
             {"system", host.system},
             {"huge_pages", host.huge_pages}}},
           {"load", {{"before", to_json(before)}, {"after", to_json(measure::host_load(1))}}},
           {"model", std::filesystem::path(flags.model).filename()},
           {"server", flags.server}};
  out.update(bench.json());
  std::ofstream file(flags.receipt);
  file << out.dump(2) << '\n';
  if (!file.flush()) fail(ErrorCode::kIo, "cannot write {}", flags.receipt);
  return 0;
}

}  // namespace
}  // namespace tern::bench

int main(int argc, char** argv) {
  tern::bench::Flags flags;
  CLI::App app("Times a server with streaming clients");
  app.option_defaults()->always_capture_default();
  auto* url = app.add_option("--url", flags.url, "a server that runs already: http://HOST:PORT");
  app.add_option("-m,--model", flags.model, "the model of a server started for this")->excludes(url);
  app.add_option("--tern", flags.tern, "the binary to start");
  app.add_option("--clients", flags.clients, "how many at once, a row each")->delimiter(',');
  app.add_option("-n,--generate", flags.generate, "tokens of an answer");
  app.add_option("--user", flags.user, "tokens of a prompt of its own");
  app.add_option("--system", flags.system, "tokens of the shared system prompt");
  app.add_option("-r,--repeats", flags.repeats, "rounds");
  app.add_option("-c,--context", flags.context, "tokens of a request of the server");
  app.add_option("--long-prompt", flags.prompt, "tokens of the prompt read beside streams");
  app.add_flag("--no-long", flags.no_long, "without the long prompt beside 8 streams");
  app.add_option("--receipt", flags.receipt, "a JSON file to write all of it to");
  app.add_option("server", flags.server, "behind --: further flags of the server started");
  CLI11_PARSE(app, argc, argv);
  try {
    if (flags.url.empty() == flags.model.empty())
      tern::fail(tern::ErrorCode::kInvalidArgument, "give either -m MODEL or --url URL");
    return tern::bench::measure_server(flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_serve: {}\n", error.what());
    return 1;
  }
}
