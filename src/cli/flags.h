// Flags that several verbs share, spelled as llama.cpp spells them, and what is said about flags that a verb lacks.
#pragma once
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model.h"
#include "engine/sampler.h"

namespace tern::cli {

/// A command line that makes no sense: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// -m, or the first positional argument when `positional`.
struct FileFlags {
  std::string path;
  void declare(CLI::App& app, bool positional);
  /// The path to open: as given, or the model that ships with tern when none was.
  std::string resolve() const;
};

/// -m -c -t -b -ctk -ctv -ngl --backend --activations: everything that decides how a model is loaded.
struct ModelFlags {
  FileFlags file;
  int32_t context = 0, threads = 0, batch = 512;
  std::string type_k = "f16", type_v = "f16", backend = "cpu", activations = "native";
  int32_t gpu_layers = 0;
  bool quiet = false;

  void declare(CLI::App& app, bool positional_model);
  /// Loads with a progress line on a terminal. `context` and `sequences`, `rows` when not 0 override what the flags
  /// say.
  struct Need {
    int32_t context = 0, sequences = 1, rows = 0;
  };
  std::unique_ptr<Model> load(const Need& need) const;
  std::unique_ptr<Model> load() const { return load(Need{}); }
};

/// -s -n --temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n.
struct SamplingFlags {
  SamplerOptions options;
  int64_t seed = -1;  // -1: another one every time
  int32_t max_tokens = -1;

  void declare(CLI::App& app);
  SamplerOptions resolve() const;  // with the seed chosen
};

/// llama.cpp's flags of one dash and several letters ("-ngl") as the long ones that the parser takes.
std::vector<std::string> canonical_arguments(std::span<const std::string_view> arguments);

/// Throws UsageError for the first argument the parser did not take: an unknown flag with the nearest known one, a flag
/// of llama.cpp that tern lacks by name, or a superfluous argument.
void refuse_leftovers(const CLI::App& app);

/// The nearest of `candidates` by edit distance, when it is near enough to be meant.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tern::cli
