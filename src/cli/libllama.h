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

/// A model and one context with an f32 KV cache, flash attention off.
class LlamaModel {
 public:
  /// kBadFile when the library refuses the file; its own words are then on stderr.
  LlamaModel(const Libllama& library, const std::string& path, int32_t context, int threads);
  ~LlamaModel();
  LlamaModel(const LlamaModel&) = delete;
  LlamaModel& operator=(const LlamaModel&) = delete;

  int32_t n_vocab() const noexcept { return n_vocab_; }
  std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  /// Forgets all tokens.
  void clear();
  /// Appends `tokens` in one batch and shows the logits behind each.
  void score(std::span<const int32_t> tokens, const std::function<void(size_t, std::span<const float>)>& visit);

 private:
  const Libllama::Api& api_;
  void* model_ = nullptr;
  void* context_ = nullptr;
  const void* vocabulary_ = nullptr;
  int32_t n_vocab_ = 0, position_ = 0;
};

}  // namespace tern::cli
