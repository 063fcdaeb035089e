// A byte-level BPE tokenizer trained on a small text and padded to a vocabulary.
#pragma once
#include <cstdint>
#include <string_view>

#include "gguf/file.h"

namespace tern::synth {

/// Sets `tokenizer.*`: the 256 bytes, merges learnt from the text that comes with the library (as many as it has, at
/// most what fits), four control tokens, then unused tokens up to `size`. Deterministic. kInvalidArgument when `size`
/// is too small for bytes and control tokens.
void set_vocabulary(gguf::Metadata& metadata, std::string_view pre, int64_t size);

}  // namespace tern::synth
