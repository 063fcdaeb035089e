#include "engine/model.h"

#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "models/registry.h"
#include "text/unicode.h"

namespace tern {

Model::Model(const ModelOptions& options)
    : file_(gguf::File::open(options.path)),
      plan_(build_plan(file_)),
      tokenizer_(text::Tokenizer::from_metadata(file_.metadata())) {
  if (tokenizer_.n_vocab() > plan_.n_vocab)
    fail(ErrorCode::kBadFile, "the vocabulary has {} tokens, but the embedding {} rows: the file contradicts itself",
         tokenizer_.n_vocab(), plan_.n_vocab);
  plan_.n_tokens = tokenizer_.n_vocab();
  for (const std::string_view key : {"tokens", "merges", "scores", "token_type"})  // the tokenizer has its own form
    file_.forget(fmt::format("tokenizer.ggml.{}", key));
  ::malloc_trim(0);
  const auto start = std::chrono::steady_clock::now();
  auto device = make_backend(options.backend, options.threads);  // first: it knows whether there is such a device
  placement_ = place(plan_, {.backend = options.backend, .gpu_layers = options.gpu_layers, .limits = options.limits},
                     memory_budget(options.backend));
  need_ = placement_.need();
  backend_ = make_backend(placement_, std::move(device), options.backend, options.threads);
  backend_->load(plan_, file_, {.activations = options.activations, .progress = options.progress});
  runner_.emplace(plan_, *backend_, placement_.limits);
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
