// llama.cpp's shared library, loaded at run time, as another engine to compare with. Knows the C ABI of v0.5.0 and
// refuses a library that does not have it: struct layouts are checked against the bytes the library itself writes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace tern::cli {

/// The library. One a process.
class Libllama {
 public:
  /// `folder` holds libllama*.so and its ggml backends. kNotFound, kUnsupported (another ABI) with what was found.
  explicit Libllama(const std::string& folder);
  ~Libllama();
  Libllama(const Libllama&) = delete;
  Libllama& operator=(const Libllama&) = delete;
  std::string version() const;

 private:
  friend class LlamaModel;
  struct Api;
  std::unique_ptr<Api> api_;
};

/// How a context is made.
struct LlamaSettings {
  KvType k = KvType::kF32, v = KvType::kF32;
  /// Batches, outputs and flash attention as the library has them by default, to measure it: append() but not score().
  /// Otherwise everything in one batch, a row of logits for each token, and no flash attention.
  bool defaults = false;
};

/// A model and one context.
class LlamaModel {
 public:
  /// kBadFile when the library refuses the file; its own words are then on stderr.
  LlamaModel(const Libllama& library, const std::string& path, int32_t context, int threads,
             const LlamaSettings& settings = {});
  ~LlamaModel();
  LlamaModel(const LlamaModel&) = delete;
  LlamaModel& operator=(const LlamaModel&) = delete;

  int32_t n_vocab() const noexcept { return n_vocab_; }
  /// Tokens in the cache.
  int32_t position() const noexcept { return position_; }
  std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  /// Forgets all tokens.
  void clear();
  /// Forgets the tokens behind `position`; all of them, and returns false, where the model can go back only to its
  /// start.
  bool rewind(int32_t position);
  /// Appends `tokens` in the library's own batches, with the logits of the last one; complete on return.
  void append(std::span<const int32_t> tokens);
  void set_threads(int threads);
  /// Appends `tokens` in one batch and shows the logits behind each.
  void score(std::span<const int32_t> tokens, const std::function<void(size_t, std::span<const float>)>& visit);

 private:
  const Libllama::Api& api_;
  void* model_ = nullptr;
  void* context_ = nullptr;
  const void* vocabulary_ = nullptr;
  int32_t n_vocab_ = 0, position_ = 0, batch_ = 0;
};

}  // namespace tern::cli
