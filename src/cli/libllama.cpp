#include "cli/libllama.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace tern::cli {
namespace {

// Layouts of llama_model_params, llama_context_params and llama_batch (llama.cpp's include/llama.h, v0.5.0).
struct ModelParams {
  void* devices;
  void* tensor_buft_overrides;
  int32_t n_gpu_layers, split_mode, load_mode, lazy_mode, main_gpu;
  const float* tensor_split;
  void* progress_callback;
  void* progress_callback_data;
  void* kv_overrides;
  bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
};
struct ContextParams {
  uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq;
  int32_t n_threads, n_threads_batch;
  int32_t ctx_type, rope_scaling_type, pooling_type, attention_type, flash_attn_type;
  float rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  uint32_t yarn_orig_ctx;
  float defrag_thold;
  void* cb_eval;
  void* cb_eval_data;
  int32_t type_k, type_v;
  void* abort_callback;
  void* abort_callback_data;
  bool embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified;
  void* samplers;
  size_t n_samplers;
  void* other;
};
struct Batch {
  int32_t n_tokens;
  int32_t* token;
  float* embd;
  int32_t* pos;
  int32_t* n_seq_id;
  int32_t** seq_id;
  int8_t* logits;
};
static_assert(sizeof(ModelParams) == 80 && offsetof(ModelParams, vocab_only) == 72);
static_assert(sizeof(ContextParams) == 160 && offsetof(ContextParams, type_k) == 104 &&
              offsetof(ContextParams, n_threads) == 28);
static_assert(sizeof(Batch) == 56);

constexpr int32_t kTypeF16 = 1, kLogError = 4;
constexpr int32_t kFlashOff = 0;

void log_errors(int level, const char* text, void*) {
  if (level == kLogError) std::fputs(text, stderr);
}

/// The number of enum ggml_type. By name: a cache type that tern gains is an error here until libllama has it too.
int32_t ggml_type(KvType type) {
  constexpr std::array<std::pair<std::string_view, int32_t>, 4> kTypes{
      {{"f32", 0}, {"f16", kTypeF16}, {"q4_0", 2}, {"q8_0", 8}}};
  for (const auto& [name, number] : kTypes)
    if (name == kv_type_name(type)) return number;
  fail(ErrorCode::kUnsupported, "libllama has no cache of type {}: compare with f16", kv_type_name(type));
}

/// libllama.so, or the name with a version in it; libllama-common.so is another library.
std::string find_library(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libllama.") && name.find(".so") != std::string::npos) found.push_back(entry.path().string());
  }
  if (error) fail(ErrorCode::kNotFound, "cannot look for libllama in {}: {}", folder, error.message());
  if (found.empty()) fail(ErrorCode::kNotFound, "there is no libllama*.so in {}", folder);
  return *std::min_element(found.begin(), found.end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
}

}  // namespace

struct Libllama::Api {
  void* handle = nullptr;
  std::string path;

  void (*llama_backend_init)() = nullptr;
  void (*llama_log_set)(void (*)(int, const char*, void*), void*) = nullptr;
  ModelParams (*llama_model_default_params)() = nullptr;
  ContextParams (*llama_context_default_params)() = nullptr;
  void* (*llama_model_load_from_file)(const char*, ModelParams) = nullptr;
  void* (*llama_init_from_model)(void*, ContextParams) = nullptr;
  void (*llama_free)(void*) = nullptr;
  void (*llama_model_free)(void*) = nullptr;
  const void* (*llama_model_get_vocab)(const void*) = nullptr;
  int32_t (*llama_vocab_n_tokens)(const void*) = nullptr;
  int32_t (*llama_tokenize)(const void*, const char*, int32_t, int32_t*, int32_t, bool, bool) = nullptr;
  int32_t (*llama_decode)(void*, Batch) = nullptr;
  float* (*llama_get_logits_ith)(void*, int32_t) = nullptr;
  void* (*llama_get_memory)(const void*) = nullptr;
  void (*llama_memory_clear)(void*, bool) = nullptr;
  bool (*llama_memory_seq_rm)(void*, int32_t, int32_t, int32_t) = nullptr;
  void (*llama_set_n_threads)(void*, int32_t, int32_t) = nullptr;
  void (*llama_synchronize)(void*) = nullptr;
  const char* (*llama_version)() = nullptr;
  void (*ggml_backend_load_all_from_path)(const char*) = nullptr;

  template <typename F>
  void resolve(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (function == nullptr)
      fail(ErrorCode::kUnsupported, "{} has no {}: tern knows the ABI of llama.cpp v0.5.0", path, name);
  }

  void resolve_all() {
    resolve(llama_backend_init, "llama_backend_init");
    resolve(llama_log_set, "llama_log_set");
    resolve(llama_model_default_params, "llama_model_default_params");
    resolve(llama_context_default_params, "llama_context_default_params");
    resolve(llama_model_load_from_file, "llama_model_load_from_file");
    resolve(llama_init_from_model, "llama_init_from_model");
    resolve(llama_free, "llama_free");
    resolve(llama_model_free, "llama_model_free");
    resolve(llama_model_get_vocab, "llama_model_get_vocab");
    resolve(llama_vocab_n_tokens, "llama_vocab_n_tokens");
    resolve(llama_tokenize, "llama_tokenize");
    resolve(llama_decode, "llama_decode");
    resolve(llama_get_logits_ith, "llama_get_logits_ith");
    resolve(llama_get_memory, "llama_get_memory");
    resolve(llama_memory_clear, "llama_memory_clear");
    resolve(llama_memory_seq_rm, "llama_memory_seq_rm");
    resolve(llama_set_n_threads, "llama_set_n_threads");
    resolve(llama_synchronize, "llama_synchronize");
    resolve(llama_version, "llama_version");
    resolve(ggml_backend_load_all_from_path, "ggml_backend_load_all_from_path");
  }

  /// How many bytes a `*_default_params` writes: a struct of that size is returned through a pointer the caller passes.
  /// On x86-64 that pointer is the first argument, so the function can be called as one that takes it; elsewhere the
  /// defaults below have to do.
  void check_size(const char* name, size_t low, size_t high) const {
#if defined(__x86_64__) && defined(__unix__)
    constexpr unsigned char kUntouched = 0xAA;
    unsigned char buffer[512];
    std::memset(buffer, kUntouched, sizeof buffer);
    reinterpret_cast<void (*)(void*)>(dlsym(handle, name))(buffer);
    size_t written = sizeof buffer;
    while (written > 0 && buffer[written - 1] == kUntouched) --written;
    if (written < low || written > high)
      fail(ErrorCode::kUnsupported, "{}: {} writes {} bytes where the ABI of llama.cpp v0.5.0 has {}", path, name,
           written, high);
#else
    (void)name, (void)low, (void)high;
#endif
  }

  void check_abi() const {
    check_size("llama_model_default_params", offsetof(ModelParams, load_mtp) + 1, sizeof(ModelParams));
    check_size("llama_context_default_params", sizeof(ContextParams), sizeof(ContextParams));
    const ContextParams c = llama_context_default_params();
    const ModelParams m = llama_model_default_params();
    const bool expected = c.n_ctx == 512 && c.n_batch == 2048 && c.n_ubatch == 512 && c.type_k == kTypeF16 &&
                          c.type_v == kTypeF16 && c.pooling_type == -1 && c.rope_scaling_type == -1 && c.offload_kqv &&
                          m.n_gpu_layers == -1 && m.split_mode == 1 && m.use_extra_bufts && !m.vocab_only;
    if (!expected)
      fail(ErrorCode::kUnsupported,
           "{}: its default parameters are not those of llama.cpp v0.5.0, so its ABI is another", path);
  }
};

Libllama::Libllama(const std::string& folder) : api_(std::make_unique<Api>()) {
  api_->path = find_library(folder);
  api_->handle = dlopen(api_->path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (api_->handle == nullptr) fail(ErrorCode::kUnsupported, "cannot load {}: {}", api_->path, dlerror());
  api_->resolve_all();
  api_->check_abi();
  api_->llama_log_set(log_errors, nullptr);
  api_->ggml_backend_load_all_from_path(folder.c_str());
  api_->llama_backend_init();
}

// The library stays loaded: its backends keep threads and thread-local state that outlive any handle.
Libllama::~Libllama() = default;

std::string Libllama::version() const {
  return api_->llama_version();
}

LlamaModel::LlamaModel(const Libllama& library, const std::string& path, int32_t context, int threads,
                       const LlamaSettings& settings)
    : api_(*library.api_) {
  ModelParams model = api_.llama_model_default_params();
  model.lazy_mode = 0;
  model_ = api_.llama_model_load_from_file(path.c_str(), model);
  if (model_ == nullptr) fail(ErrorCode::kBadFile, "libllama cannot load {}", path);
  vocabulary_ = api_.llama_model_get_vocab(model_);
  n_vocab_ = api_.llama_vocab_n_tokens(vocabulary_);
  ContextParams c = api_.llama_context_default_params();
  c.n_ctx = static_cast<uint32_t>((context + 255) / 256 * 256);
  c.n_threads = c.n_threads_batch = threads;
  c.type_k = ggml_type(settings.k);
  c.type_v = ggml_type(settings.v);
  if (!settings.defaults) {
    c.n_batch = c.n_ctx;
    c.n_ubatch = std::min<uint32_t>(512, c.n_batch);
    c.n_outputs_max = 0;
    c.n_outputs_max_per_seq = c.n_batch;
    c.flash_attn_type = kFlashOff;
  }
  c.no_perf = true;
  batch_ = static_cast<int32_t>(c.n_batch);
  context_ = api_.llama_init_from_model(model_, c);
  if (context_ == nullptr) {
    api_.llama_model_free(model_);
    fail(ErrorCode::kOutOfMemory, "libllama cannot make a context of {} tokens for {}", c.n_ctx, path);
  }
}

LlamaModel::~LlamaModel() {
  api_.llama_free(context_);
  api_.llama_model_free(model_);
}

std::vector<int32_t> LlamaModel::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  std::vector<int32_t> ids(text.size() + 8);
  const auto call = [&] {
    return api_.llama_tokenize(vocabulary_, text.data(), static_cast<int32_t>(text.size()), ids.data(),
                               static_cast<int32_t>(ids.size()), add_special, parse_special);
  };
  int32_t n = call();
  if (n < 0) {  // the room it wants, negated
    ids.resize(static_cast<size_t>(-n));
    n = call();
  }
  ids.resize(static_cast<size_t>(std::max(n, 0)));
  return ids;
}

void LlamaModel::clear() {
  api_.llama_memory_clear(api_.llama_get_memory(context_), true);
  position_ = 0;
}

bool LlamaModel::rewind(int32_t position) {
  if (position >= position_) return true;
  if (position > 0 && api_.llama_memory_seq_rm(api_.llama_get_memory(context_), 0, position, -1)) {
    position_ = position;
    return true;
  }
  clear();
  return position == 0;
}

void LlamaModel::append(std::span<const int32_t> tokens) {
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  for (size_t done = 0; done < ids.size();) {
    const size_t n = std::min(ids.size() - done, static_cast<size_t>(batch_));
    Batch batch{};  // no positions, sequences or outputs named: behind the cache, of sequence 0, the last
    batch.n_tokens = static_cast<int32_t>(n);
    batch.token = ids.data() + done;
    const int32_t code = api_.llama_decode(context_, batch);
    if (code != 0) fail(ErrorCode::kUnsupported, "libllama's llama_decode of {} tokens failed with {}", n, code);
    done += n;
    position_ += batch.n_tokens;
  }
  api_.llama_synchronize(context_);
}

void LlamaModel::set_threads(int threads) {
  api_.llama_set_n_threads(context_, threads, threads);
}

void LlamaModel::score(std::span<const int32_t> tokens,
                       const std::function<void(size_t, std::span<const float>)>& visit) {
  std::vector<int32_t> ids(tokens.begin(), tokens.end()), positions(tokens.size()), counts(tokens.size(), 1);
  int32_t sequence = 0;
  std::vector<int32_t*> sequences(tokens.size(), &sequence);
  std::vector<int8_t> wanted(tokens.size(), 1);
  for (int32_t& position : positions) position = position_++;
  const int32_t code = api_.llama_decode(context_, {.n_tokens = static_cast<int32_t>(ids.size()),
                                                    .token = ids.data(),
                                                    .embd = nullptr,
                                                    .pos = positions.data(),
                                                    .n_seq_id = counts.data(),
                                                    .seq_id = sequences.data(),
                                                    .logits = wanted.data()});
  if (code != 0) fail(ErrorCode::kUnsupported, "libllama's llama_decode of {} tokens failed with {}", ids.size(), code);
  for (size_t i = 0; i < ids.size(); ++i)
    visit(i, {api_.llama_get_logits_ith(context_, static_cast<int32_t>(i)), static_cast<size_t>(n_vocab_)});
}

}  // namespace tern::cli
