#include "engine/model.h"

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <filesystem>

#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "models/registry.h"
#include "text/unicode.h"

namespace tern {
namespace {

/// What a run may take: the rest is for the tokenizer, the system and growth.
uint64_t memory_budget(BackendKind kind) {
  return (kind == BackendKind::kCuda ? cuda_free_memory() : available_memory()) / 100 * 95;
}

}  // namespace

Model::Model(const ModelOptions& options)
    : file_(gguf::File::open(options.path)),
      plan_(build_plan(file_)),
      tokenizer_(text::Tokenizer::from_metadata(file_.metadata())) {
  if (tokenizer_.n_vocab() > plan_.n_vocab)
    fail(ErrorCode::kBadFile, "the vocabulary has {} tokens, but the embedding {} rows: the file contradicts itself",
         tokenizer_.n_vocab(), plan_.n_vocab);
  for (const std::string_view key : {"tokens", "merges", "scores", "token_type"})  // the tokenizer has its own form
    file_.forget(fmt::format("tokenizer.ggml.{}", key));
  ::malloc_trim(0);
  const auto start = std::chrono::steady_clock::now();
  backend_ = make_backend(options.backend, options.threads);  // first: it knows whether there is such a device
  Runner::Limits limits = options.limits;
  if (limits.rows <= 0) limits.rows = default_rows(options.backend);
  const uint64_t budget = memory_budget(options.backend);
  if (limits.context <= 0) {
    limits.context = fitting_context(plan_, limits, budget);
    if (limits.context == 0) limits.context = kPageTokens;  // refused below, with the numbers
  }
  require_fits(plan_, limits, budget);
  need_ = memory_need(plan_, limits);
  backend_->load(plan_, file_, {.activations = options.activations, .progress = options.progress});
  runner_.emplace(plan_, *backend_, limits);
  load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string model_name(const gguf::File& file) {
  std::string storage;
  if (const auto name = file.metadata().get_string("general.name"); name && !name->empty())
    return std::string(text::valid_utf8(*name, storage));
  return std::filesystem::path(file.path()).stem().string();
}

uint64_t parameter_count(const gguf::File& file) {
  uint64_t count = 0;
  for (const gguf::TensorInfo& t : file.tensors()) count += static_cast<uint64_t>(t.elements());
  return count;
}

}  // namespace tern
