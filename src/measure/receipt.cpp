#include "measure/receipt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

namespace tern::measure {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Load& load) {
  return {{"busy_cores", load.busy}, {"average", load.average}};
}

Json to_json(const ModelFile& m) {
  return {{"name", m.name},
          {"file", m.file},
          {"architecture", m.architecture},
          {"model_size", m.bytes},
          {"model_n_params", m.parameters},
          {"format_bytes", m.format_bytes}};
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += (v - mean(values)) * (v - mean(values));
  return values.size() > 1 ? std::sqrt(sum / static_cast<double>(values.size() - 1)) : 0;
}

Json to_json(const Series& series, const Row& row) {
  const std::vector<double> ts = rates(series, row.test.tokens());
  return {{"median_ts", summarize(ts).median},
          {"avg_ts", mean(ts)},
          {"stddev_ts", deviation(ts)},
          {"samples_ts", ts},
          {"cpu_share", cpu_share(series, row.threads)}};
}

Json to_json(const Row& row, double bandwidth) {
  Json out{{"test", row.test.name()},     {"n_prompt", row.test.prompt}, {"n_gen", row.test.generate},
           {"n_depth", row.test.depth},   {"n_busy", row.test.busy},     {"n_threads", row.threads},
           {"contended", row.contended()}};
  out.update(to_json(row.ours, row));
  if (row.bytes_per_token > 0) {
    const double bytes = row.bytes_per_token * out["median_ts"].get<double>();
    out["bytes_per_token"] = row.bytes_per_token;
    out["gb_per_s"] = bytes / 1e9;
    if (bandwidth > 0) out["of_bandwidth"] = bytes / bandwidth;
  }
  if (!row.theirs.empty()) {
    out["compared"] = to_json(row.theirs, row);
    out["ratio"] = paired_ratio(row.ours, row.theirs);
  }
  return out;
}

}  // namespace

bool Row::contended() const {
  const auto short_of_time = [&](const Series& s) { return !s.empty() && cpu_share(s, threads) < kContendedShare; };
  return test.busy == 0 && (short_of_time(ours) || short_of_time(theirs));
}

double Receipt::bandwidth_of(int threads) const {
  const auto it = bandwidth.find(threads);
  return it == bandwidth.end() ? 0 : it->second;
}

double Receipt::busy() const {
  return std::max(before.busy, after.busy);
}

std::string now_utc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

Json to_json(const Receipt& r) {
  Json out{
      {"version", r.version},
      {"commit", r.commit},
      {"time", r.time},
      {"host",
       {{"cpu", r.host.cpu},
        {"cores", r.host.cores},
        {"memory", r.host.memory},
        {"system", r.host.system},
        {"huge_pages", r.host.huge_pages}}},
      {"load", {{"before", to_json(r.before)}, {"after", to_json(r.after)}}},
      {"backend", r.backend},
      {"device", r.device},
      {"type_k", r.type_k},
      {"type_v", r.type_v},
      {"activations", r.activations},
      {"model", to_json(r.model)},
      {"memory",
       {{"file", r.model.bytes}, {"kv", r.kv_bytes}, {"state", r.state_bytes}, {"peak_resident", r.peak_resident}}},
      {"bandwidth", {{"huge_pages", r.bandwidth_huge}, {"by_threads", Json::array()}}},
      {"loads", Json::array()},
      {"rows", Json::array()}};
  if (r.compared) {
    out["compared"] = to_json(*r.compared);
    out["compared"]["library"] = r.library;
  }
  for (const auto& [threads, bytes] : r.bandwidth)
    out["bandwidth"]["by_threads"].push_back({{"n_threads", threads}, {"bytes_per_s", bytes}});
  for (const LoadTime& load : r.loads)
    out["loads"].push_back(
        {{"n_threads", load.threads}, {"median_s", summarize(load.seconds).median}, {"samples_s", load.seconds}});
  for (const Row& row : r.rows) out["rows"].push_back(to_json(row, r.bandwidth_of(row.threads)));
  return out;
}

}  // namespace tern::measure
