// What a benchmark found, with everything needed to judge it: machine, build, file, load of the machine, every sample.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "measure/host.h"
#include "measure/rows.h"

namespace tern::measure {

struct Row {
  Test test;
  int threads = 0;
  Series ours, theirs;         // theirs: empty when nothing was compared
  double bytes_per_token = 0;  // weights, KV and state that one step of a generation reads; 0 for a prompt
  /// Either engine missed more than 1 - kContendedShare of its threads' time. Never where neighbours were asked for.
  bool contended() const;
};

struct ModelFile {
  std::string name, file, architecture;  // `file` without its folder
  uint64_t bytes = 0, parameters = 0;
  std::map<std::string, uint64_t> format_bytes;
};

/// Seconds from opening the file, which was in the page cache, to a model ready to run.
struct LoadTime {
  int threads = 0;
  std::vector<double> seconds;
};

struct Receipt {
  std::string version, commit, backend, device, type_k, type_v, activations, time;  // time: UTC, ISO 8601
  Host host;
  Load before, after;
  ModelFile model;
  std::optional<ModelFile> compared;  // the file the other engine ran
  std::string library;                // "llama.cpp v0.5.0"; empty when nothing was compared
  std::map<int, double> bandwidth;    // bytes a second, by threads
  bool bandwidth_huge = false;        // it was read from huge pages
  uint64_t kv_bytes = 0, state_bytes = 0, peak_resident = 0;
  std::vector<LoadTime> loads;
  std::vector<Row> rows;

  double bandwidth_of(int threads) const;
  /// The busier end of the run, in cores.
  double busy() const;
};

/// The git commit that was compiled, "-dirty" behind it when files differed; "unknown" outside a checkout.
std::string build_commit();
/// The present in UTC, ISO 8601.
std::string now_utc();

/// docs/performance.md explains the fields. Those of a row are called what llama-bench calls them.
nlohmann::ordered_json to_json(const Receipt& receipt);

}  // namespace tern::measure
