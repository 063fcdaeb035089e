// The tokenizer of llama.cpp, loaded from the libllama of the npm package the tests pin.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::test {

/// A vocabulary as libllama reads it.
class LlamaVocabulary {
 public:
  /// Throws with what to do when the library is absent, and when it refuses the file.
  explicit LlamaVocabulary(const std::string& gguf_path);
  ~LlamaVocabulary();
  LlamaVocabulary(const LlamaVocabulary&) = delete;
  LlamaVocabulary& operator=(const LlamaVocabulary&) = delete;

  std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string piece(int32_t id, bool special) const;
  bool is_end_of_generation(int32_t id) const;

 private:
  void* model_ = nullptr;
  const void* vocabulary_ = nullptr;
};

}  // namespace tern::test
