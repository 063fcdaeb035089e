// llama.cpp as an oracle of whole models: the libllama of the npm package the tests pin, loaded at run time, driven
// with one thread, f32 KV and no flash attention. Struct layouts: llama.cpp's include/llama.h as of the pinned package
// (v0.5.0).
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tern::test {

namespace llama {

struct ModelParams {  // llama_model_params
  void *devices, *buffer_overrides;
  int32_t n_gpu_layers, split_mode, load_mode, lazy_mode, main_gpu;
  const float* tensor_split;
  void *progress, *progress_data, *kv_overrides;
  bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
};
struct ContextParams {  // llama_context_params
  uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq;
  int32_t n_threads, n_threads_batch;
  int32_t ctx_type, rope_scaling_type, pooling_type, attention_type, flash_attn_type;
  float rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  uint32_t yarn_orig_ctx;
  float defrag_thold;
  void *cb_eval, *cb_eval_data;
  int32_t type_k, type_v;
  void *abort, *abort_data;
  bool embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified;
  void* samplers;
  size_t n_samplers;
  void* ctx_other;
};
struct Batch {  // llama_batch
  int32_t n_tokens;
  int32_t* token;
  float* embd;
  int32_t* pos;
  int32_t* n_seq_id;
  int32_t** seq_id;
  int8_t* logits;
};
static_assert(sizeof(ModelParams) == 80 && sizeof(ContextParams) == 160 && sizeof(Batch) == 56);

/// The functions used, resolved once a process.
struct Library {
  void (*llama_log_set)(void (*)(int, const char*, void*), void*);
  ModelParams (*llama_model_default_params)();
  ContextParams (*llama_context_default_params)();
  void* (*llama_model_load_from_file)(const char*, ModelParams);
  void* (*llama_init_from_model)(void*, ContextParams);
  void (*llama_free)(void*);
  void (*llama_model_free)(void*);
  const void* (*llama_model_get_vocab)(const void*);
  int32_t (*llama_vocab_n_tokens)(const void*);
  int32_t (*llama_decode)(void*, Batch);
  float* (*llama_get_logits_ith)(void*, int32_t);
  void (*ggml_backend_load_all_from_path)(const char*);

  /// Throws with what to do when the package is absent or is another version.
  static const Library& get() {
    static const Library library;
    return library;
  }

 private:
  Library() {
    const std::string folder = TERN_SOURCE_DIR "/tests/npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64";
    const std::string path = folder + "/libllama.v0.5.0.so";
    if (!std::filesystem::exists(path)) throw std::runtime_error(path + " is not installed: run make deps");
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(std::string("cannot load libllama: ") + dlerror());
#define TERN_RESOLVE(name) resolve(name, #name)
    TERN_RESOLVE(llama_log_set);
    TERN_RESOLVE(llama_model_default_params);
    TERN_RESOLVE(llama_context_default_params);
    TERN_RESOLVE(llama_model_load_from_file);
    TERN_RESOLVE(llama_init_from_model);
    TERN_RESOLVE(llama_free);
    TERN_RESOLVE(llama_model_free);
    TERN_RESOLVE(llama_model_get_vocab);
    TERN_RESOLVE(llama_vocab_n_tokens);
    TERN_RESOLVE(llama_decode);
    TERN_RESOLVE(llama_get_logits_ith);
    TERN_RESOLVE(ggml_backend_load_all_from_path);
#undef TERN_RESOLVE
    constexpr int kErrorLevel = 4;
    llama_log_set(
        [](int level, const char* text, void*) {
          if (level == kErrorLevel) std::fputs(text, stderr);
        },
        nullptr);
    const ContextParams c = llama_context_default_params();
    if (c.n_ctx != 512 || c.n_batch != 2048 || c.type_k != 1 || c.pooling_type != -1)
      throw std::runtime_error("this libllama has other structs than v0.5.0");
    ggml_backend_load_all_from_path(folder.c_str());
  }
  template <typename F>
  void resolve(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(std::string("libllama has no ") + name);
  }
  void* handle_;
};

}  // namespace llama

/// One sequence of a model in llama.cpp.
class LlamaModel {
 public:
  /// Throws with the path when libllama refuses the file.
  LlamaModel(const std::string& path, uint32_t context) : lib_(llama::Library::get()) {
    llama::ModelParams mp = lib_.llama_model_default_params();
    mp.n_gpu_layers = 0;
    mp.lazy_mode = 0;
    mp.use_extra_bufts = false;  // no repacked weights: the plain kernels are the ones with known rules
    model_ = lib_.llama_model_load_from_file(path.c_str(), mp);
    if (model_ == nullptr) throw std::runtime_error("libllama refuses " + path);
    llama::ContextParams cp = lib_.llama_context_default_params();
    cp.n_ctx = cp.n_batch = cp.n_ubatch = context;
    cp.n_threads = cp.n_threads_batch = 1;  // its barriers spin
    cp.n_outputs_max = 0;
    cp.n_outputs_max_per_seq = context;
    cp.type_k = cp.type_v = 0;  // f32
    cp.flash_attn_type = 0;
    cp.no_perf = true;
    context_ = lib_.llama_init_from_model(model_, cp);
    if (context_ == nullptr) throw std::runtime_error("libllama makes no context for " + path);
  }
  ~LlamaModel() {
    if (context_ != nullptr) lib_.llama_free(context_);
    lib_.llama_model_free(model_);
  }
  LlamaModel(const LlamaModel&) = delete;
  LlamaModel& operator=(const LlamaModel&) = delete;

  int32_t n_vocab() const { return lib_.llama_vocab_n_tokens(lib_.llama_model_get_vocab(model_)); }

  /// Appends the tokens; logits [tokens, n_vocab].
  std::vector<float> run(std::vector<int32_t> tokens) {
    const auto n = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> position(tokens.size()), counts(tokens.size(), 1);
    for (int32_t& p : position) p = past_++;
    int32_t sequence = 0;
    std::vector<int32_t*> sequences(tokens.size(), &sequence);
    std::vector<int8_t> wanted(tokens.size(), 1);
    if (lib_.llama_decode(context_, {n, tokens.data(), nullptr, position.data(), counts.data(), sequences.data(),
                                     wanted.data()}) != 0)
      throw std::runtime_error("llama_decode failed");
    std::vector<float> logits;
    for (int32_t i = 0; i < n; ++i) {
      const float* row = lib_.llama_get_logits_ith(context_, i);
      logits.insert(logits.end(), row, row + n_vocab());
    }
    return logits;
  }

 private:
  const llama::Library& lib_;
  void* model_ = nullptr;
  void* context_ = nullptr;
  int32_t past_ = 0;
};

}  // namespace tern::test
