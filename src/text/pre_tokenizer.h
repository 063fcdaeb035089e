// Cuts text into the pieces that byte-level BPE may not merge across. Which patterns: `tokenizer.ggml.pre`.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tern::text {

/// One way of cutting and what goes with it.
struct PreTokenizerInfo {
  std::span<const std::string_view> names;  // values of `tokenizer.ggml.pre`; the first is ours, the others llama.cpp's
  /// Applied one after the other: each cuts every piece so far into its matches and what lies between them.
  std::span<const std::string_view> patterns;
  bool nfc = false;            // the text is normalised first
  bool ignore_merges = false;  // a piece that is a token stays whole even where no merge makes it
  bool add_bos = false;        // when the file does not say
};

class PreTokenizer {
 public:
  /// kUnsupported listing the known names when `name` is not one of them.
  explicit PreTokenizer(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  const PreTokenizerInfo& info() const noexcept { return *info_; }
  /// Fills `pieces` with non-empty views that cover `text` (well-formed UTF-8) in order. Any number of threads.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  class Pattern;
  const PreTokenizerInfo* info_;
  std::vector<Pattern> patterns_;
};

/// Every known pre-tokenizer.
std::span<const PreTokenizerInfo> pre_tokenizers() noexcept;

}  // namespace tern::text
