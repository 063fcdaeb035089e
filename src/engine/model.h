// A model ready to run: file, plan, tokenizer, chat template and a loaded backend.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "engine/memory_need.h"
#include "engine/runner.h"
#include "gguf/file.h"
#include "plan/plan.h"
#include "text/tokenizer.h"

namespace tern {

enum class BackendKind : uint8_t { kCpu, kRef, kCuda };

struct ModelOptions {
  std::string path;
  BackendKind backend = BackendKind::kCpu;
  int threads = 0;  // 0: default_threads()
  ActivationMode activations = ActivationMode::kNative;
  std::function<void(uint64_t done, uint64_t total)> progress{};  // bytes of weights loaded
  /// Limits::context 0: the largest that fits into memory, at most what the model was trained for. Limits::rows 0:
  /// default_rows().
  Runner::Limits limits{.context = 0, .rows = 0};
};

class Model {
 public:
  /// Opens, plans, checks the memory and only then loads. Errors as gguf::File, build_plan, require_fits and
  /// Backend::load say.
  explicit Model(const ModelOptions& options);

  const gguf::File& file() const noexcept { return file_; }
  const Plan& plan() const noexcept { return plan_; }
  const text::Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  Backend& backend() const noexcept { return *backend_; }
  Runner& runner() noexcept { return *runner_; }
  const MemoryNeed& memory() const noexcept { return need_; }
  double load_seconds() const noexcept { return load_seconds_; }

 private:
  gguf::File file_;
  Plan plan_;
  text::Tokenizer tokenizer_;
  std::unique_ptr<Backend> backend_;
  std::optional<Runner> runner_;  // after backend_: it goes first
  MemoryNeed need_;
  double load_seconds_ = 0;
};

/// Tokens of a prompt to read at once. On a CPU 512 are 2% faster than 256, for twice the memory of activations: 23 MB
/// of a Llama 1B.
constexpr int32_t default_rows(BackendKind kind) noexcept {
  return kind == BackendKind::kCuda ? 2048 : 256;
}

std::unique_ptr<Backend> make_backend(BackendKind kind, int threads);

/// "hybrid-108m": `general.name`, or the file's name without its extension. UTF-8, whatever the file says.
std::string model_name(const gguf::File& file);
/// Weights in the file, all tensors.
uint64_t parameter_count(const gguf::File& file);

}  // namespace tern
