// A model ready to run: file, plan, tokenizer, chat template and a loaded backend.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "engine/placement.h"
#include "engine/runner.h"
#include "gguf/file.h"
#include "plan/plan.h"
#include "text/tokenizer.h"

namespace tern {

struct ModelOptions {
  std::string path;
  BackendKind backend = BackendKind::kCpu;
  int32_t gpu_layers = kAutoLayers;  // as PlacementOptions says
  int threads = 0;                   // 0: default_threads()
  ActivationMode activations = ActivationMode::kNative;
  std::function<void(uint64_t done, uint64_t total)> progress{};  // bytes of weights loaded
  /// Context and rows of 0 as PlacementOptions says.
  Runner::Limits limits{.context = 0, .rows = 0};
};

class Model {
 public:
  /// Opens, plans, places by memory and only then loads. Errors as gguf::File, build_plan, place and Backend::load say.
  explicit Model(const ModelOptions& options);

  const gguf::File& file() const noexcept { return file_; }
  const Plan& plan() const noexcept { return plan_; }
  const text::Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  Backend& backend() const noexcept { return *backend_; }
  Runner& runner() noexcept { return *runner_; }
  const Placement& placement() const noexcept { return placement_; }
  const MemoryNeed& memory() const noexcept { return need_; }
  double load_seconds() const noexcept { return load_seconds_; }

 private:
  gguf::File file_;
  Plan plan_;
  text::Tokenizer tokenizer_;
  std::unique_ptr<Backend> backend_;
  std::optional<Runner> runner_;  // after backend_: it goes first
  Placement placement_;
  MemoryNeed need_;
  double load_seconds_ = 0;
};

/// "hybrid-108m": `general.name`, or the file's name without its extension. UTF-8, whatever the file says.
std::string model_name(const gguf::File& file);
/// Weights in the file, all tensors.
uint64_t parameter_count(const gguf::File& file);

}  // namespace tern
