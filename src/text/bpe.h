// Byte-level BPE (`tokenizer.ggml.model` = gpt2).
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/tokenizer_merges.h"
#include "text/tokenizer_vocab.h"

namespace tern::text {

class ByteLevelBpe {
 public:
  /// `pre` as `tokenizer.ggml.pre` spells it. `vocabulary` must outlive this. kBadFile: tokenizer.ggml.merges is
  /// absent, or a merge is not two tokens whose concatenation is a token (its number and text are in the message).
  ByteLevelBpe(const gguf::Metadata& metadata, const Vocabulary& vocabulary, std::string_view pre);

  const PreTokenizerInfo& pre_tokenizer() const noexcept { return pre_tokenizer_.info(); }
  /// Appends the tokens of `text` (well-formed UTF-8, no special tokens in it). kBadFile when a byte has no token.
  void encode(std::string_view text, std::vector<int32_t>& out) const;

 private:
  void encode_piece(std::string_view piece, std::vector<int32_t>& symbols, MergeScratch& scratch) const;

  const Vocabulary* vocabulary_;
  PreTokenizer pre_tokenizer_;
  std::array<int32_t, 256> byte_ids_{};  // -1: none
  MergeTable merges_;
};

}  // namespace tern::text
