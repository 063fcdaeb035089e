// Turns a stream of tokens into text without ever showing part of a character.
#pragma once
#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace tern::text {

/// One a generation. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(&tokenizer), special_(special) {}

  /// The text that `id` completes: valid UTF-8, often empty. Bytes that can no longer become a character come out as
  /// U+FFFD.
  std::string push(int32_t id);
  /// What is still held back, as U+FFFD; then ready for another stream.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string pending_;  // the head of an unfinished character, at most 3 bytes
};

}  // namespace tern::text
