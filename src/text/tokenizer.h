// Text to token ids and back, for the vocabulary a model file carries.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"

namespace tern::text {

struct EncodeOptions {
  /// BOS in front and EOS behind where the model asks for them. A text that already begins with the BOS token (as many
  /// chat templates do; needs parse_special) gets no second one.
  bool add_special = true;
  /// Control tokens spelled out in the text (`<|im_start|>`) become their ids. Leave it off for what a user typed.
  bool parse_special = false;
};

/// Immutable; every const member may be called from any number of threads. Cheap to move, not to make.
class Tokenizer {
 public:
  /// Reads `tokenizer.ggml.*`. kUnsupported naming the model or pre-tokenizer and the known ones; kBadFile naming the
  /// key and the numbers for anything missing, out of range or inconsistent.
  static Tokenizer from_metadata(const gguf::Metadata& metadata);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Never fails on ill-formed UTF-8: each ill-formed sequence is read as U+FFFD.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The bytes of one token, possibly part of a UTF-8 sequence. A control or unknown token has its name when `special`,
  /// else nothing. kInvalidArgument when `id` is not a token.
  std::string piece(int32_t id, bool special = false) const;
  /// The text of all of them in valid UTF-8 (U+FFFD for what is not), without the blank an SPM encoder puts in front.
  std::string decode(std::span<const int32_t> ids, bool special = false) const;

  int32_t n_vocab() const noexcept;
  std::optional<int32_t> bos() const noexcept;
  std::optional<int32_t> eos() const noexcept;
  std::optional<int32_t> eot() const noexcept;  // ends a turn of a chat; found by name where the file has no key
  /// The text is read in normalisation form C (llama.cpp leaves that out).
  bool normalises() const noexcept;
  bool add_bos() const noexcept;
  bool add_eos() const noexcept;
  /// Ends an answer: EOS, EOT, EOM and the tokens known to mean the same.
  bool is_end_of_generation(int32_t id) const;
  /// A control or unknown token: not text.
  bool is_special(int32_t id) const;
  /// The id of a token as the file spells it.
  std::optional<int32_t> find(std::string_view token) const;
  /// The token as the file spells it. kInvalidArgument when `id` is not a token.
  std::string token_text(int32_t id) const;
  /// "gpt2/qwen2", "llama": for listings.
  const std::string& description() const noexcept;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tern::text
