// Flags that several verbs share, spelled as llama.cpp spells them, and what is said about flags that a verb lacks.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flag_set.h"
#include "cli/usage_error.h"
#include "engine/model.h"
#include "engine/sampler_settings.h"

namespace tern::cli {

/// -m, or the first positional argument when `positional`.
struct FileFlags {
  std::string path;
  void declare(FlagSet& set, bool positional);
  /// The path as given, else as the environment says; empty when neither names one.
  std::string named() const;
  /// The path to open: as given, else as the environment says, else the model that ships with tern. (Not an
  /// environment() of the flag: `tern run MODEL` has to win over it.)
  std::string resolve() const;
};

/// -m -c -t -b -ctk -ctv -ngl --backend --activations: everything that decides how a model is loaded.
struct ModelFlags {
  FileFlags file;
  int32_t context = 0, threads = 0, batch = 0;
  std::string type_k = "f16", type_v = "f16", backend = "auto", activations = "native", gpu_layers = "auto";
  bool quiet = false;

  void declare(FlagSet& set, bool positional_model);
  /// All but the file, -c and -t, for a verb that has its own.
  void declare_engine(FlagSet& set);
  /// What --backend says; for "auto" a GPU where there is one, unless -ngl is 0.
  BackendKind kind() const;
  /// Loads with a progress line on a terminal. `context` and `sequences`, `rows` when not 0 override what the flags
  /// say.
  struct Need {
    int32_t context = 0, sequences = 1, rows = 0;
  };
  std::unique_ptr<Model> load(const Need& need) const;
  /// What load() loads with, without path and progress.
  ModelOptions options(const Need& need) const;
  std::unique_ptr<Model> load() const { return load(Need{}); }
};

/// -s -n --temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n.
struct SamplingFlags {
  SamplerOptions options;
  int64_t seed = -1;  // -1: another one every time
  int32_t max_tokens = -1;

  void declare(FlagSet& set);
  void declare_settings(FlagSet& set);  // all but -n and -s
  /// Takes what the file recommends for the settings that were not given in `set`. kBadFile for a value out of range.
  void take_file(const FileSampling& file, const FlagSet& set);
  SamplerOptions resolve() const;  // with the seed chosen
};

/// "temp 0.8 top-k 40 ...".
std::string sampling_text(const SamplerOptions& options);

/// llama.cpp's flags of one dash and several letters ("-ngl") as the long ones that the parser takes. UsageError for
/// one that `flags` lacks: letters are not bundled, "-fa" is not "-f a" but a flag of llama.cpp.
std::vector<std::string> canonical_arguments(const FlagSet& flags, std::span<const std::string_view> arguments);

/// Throws UsageError for the first argument the parser did not take: an unknown flag with the nearest known one, a flag
/// of llama.cpp that tern lacks by name, or a superfluous argument.
void refuse_leftovers(const FlagSet& flags);

/// The nearest of `candidates` by edit distance, when it is near enough to be meant.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tern::cli
