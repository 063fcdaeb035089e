#include "text/libllama.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

namespace tern::test {
namespace {

/// struct llama_model_params of llama.cpp as of the pinned package: 80 bytes, of which the tests touch one flag.
struct ModelParams {
  unsigned char head[72];
  bool vocab_only;
  unsigned char tail[7];
};
static_assert(sizeof(ModelParams) == 80);

struct Library {
  void (*log_set)(void (*)(int, const char*, void*), void*);
  ModelParams (*default_params)();
  void* (*load)(const char*, ModelParams);
  void (*free)(void*);
  const void* (*vocabulary)(const void*);
  int32_t (*tokenize)(const void*, const char*, int32_t, int32_t*, int32_t, bool, bool);
  int32_t (*piece)(const void*, int32_t, char*, int32_t, int32_t, bool);
  bool (*is_eog)(const void*, int32_t);

  Library() {
    const std::string path =
        TERN_SOURCE_DIR "/tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libllama.v0.5.0.so";
    if (!std::filesystem::exists(path)) throw std::runtime_error(path + " is not installed: run make deps");
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(std::string("cannot load libllama: ") + dlerror());
    resolve(log_set, "llama_log_set");
    resolve(default_params, "llama_model_default_params");
    resolve(load, "llama_model_load_from_file");
    resolve(free, "llama_model_free");
    resolve(vocabulary, "llama_model_get_vocab");
    resolve(tokenize, "llama_tokenize");
    resolve(piece, "llama_token_to_piece");
    resolve(is_eog, "llama_vocab_is_eog");
    log_set([](int, const char*, void*) {}, nullptr);
  }

 private:
  template <typename F>
  void resolve(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(std::string("libllama has no ") + name);
  }
  void* handle_;
};

const Library& library() {
  static const Library lib;
  return lib;
}

}  // namespace

LlamaVocabulary::LlamaVocabulary(const std::string& gguf_path) {
  ModelParams params = library().default_params();
  params.vocab_only = true;
  model_ = library().load(gguf_path.c_str(), params);
  if (model_ == nullptr) throw std::runtime_error("libllama refuses " + gguf_path);
  vocabulary_ = library().vocabulary(model_);
}

LlamaVocabulary::~LlamaVocabulary() {
  library().free(model_);
}

std::vector<int32_t> LlamaVocabulary::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  std::vector<int32_t> ids(text.size() + 8);
  const auto capacity = static_cast<int32_t>(ids.size());
  const int32_t n = library().tokenize(vocabulary_, text.data(), static_cast<int32_t>(text.size()), ids.data(),
                                       capacity, add_special, parse_special);
  if (n < 0) throw std::runtime_error("libllama wants room for " + std::to_string(-n) + " tokens");
  ids.resize(static_cast<size_t>(n));
  return ids;
}

std::string LlamaVocabulary::piece(int32_t id, bool special) const {
  std::string out(1024, '\0');
  const int32_t n = library().piece(vocabulary_, id, out.data(), static_cast<int32_t>(out.size()), 0, special);
  if (n < 0) throw std::runtime_error("libllama wants room for " + std::to_string(-n) + " bytes");
  out.resize(static_cast<size_t>(n));
  return out;
}

bool LlamaVocabulary::is_end_of_generation(int32_t id) const {
  return library().is_eog(vocabulary_, id);
}

}  // namespace tern::test
