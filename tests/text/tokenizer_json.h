// From the tokenizer.json of Hugging Face's library to the metadata of a vocabulary-only GGUF file, as llama.cpp's
// convert_hf_to_gguf.py writes it.
#pragma once
#include <string>

#include "gguf/file.h"

namespace tern::text {

struct VocabularySource {
  std::string folder;  // holds tokenizer.json and tokenizer_config.json
  std::string model;   // tokenizer.ggml.model: gpt2 or llama
  std::string pre;     // tokenizer.ggml.pre, for gpt2
};

/// Throws kNotFound saying "run make deps" when the folder is not there.
gguf::Metadata convert_tokenizer_json(const VocabularySource& source);

}  // namespace tern::text
