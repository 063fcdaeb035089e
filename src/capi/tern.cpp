#include "tern/tern.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "engine/chat.h"
#include "engine/generate.h"
#include "engine/model.h"
#include "engine/sampler_settings.h"
#include "text/detokenizer.h"

struct tern_model {
  std::shared_ptr<tern::Model> model;
};
struct tern_sequence {
  std::shared_ptr<tern::Model> model;  // goes last
  tern::Sequence sequence;
};

namespace tern {
namespace {

thread_local std::string last_error;

constexpr int32_t kMostContext = 1 << 30, kMostSequences = 64;  // their pages are counted in 31 bits

tern_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return TERN_INVALID_ARGUMENT;
    case ErrorCode::kBadFile:
      return TERN_BAD_FILE;
    case ErrorCode::kUnsupported:
      return TERN_UNSUPPORTED;
    case ErrorCode::kNotFound:
      return TERN_NOT_FOUND;
    case ErrorCode::kIo:
      return TERN_IO;
    case ErrorCode::kOutOfMemory:
      return TERN_OUT_OF_MEMORY;
    case ErrorCode::kContextFull:
      return TERN_CONTEXT_FULL;
  }
  return TERN_INTERNAL;
}

tern_status failed(tern_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

/// Runs one call: nothing that is thrown leaves it.
template <typename Call>
tern_status guarded(Call&& call) noexcept {
  try {
    call();
    return TERN_OK;
  } catch (const Error& error) {
    return failed(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(TERN_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(TERN_INTERNAL, error.what());
  } catch (...) {
    return failed(TERN_INTERNAL, "an exception of a callback");
  }
}

void require(bool ok, const char* what) {
  if (!ok) fail(ErrorCode::kInvalidArgument, "{}", what);
}

/// Options of a caller who may know fewer fields than we do: those are zero.
template <typename Options>
Options known_fields(const Options& given, const char* what) {
  static_assert(std::is_trivially_copyable_v<Options>);
  if (given.size < sizeof given.size)
    fail(ErrorCode::kInvalidArgument, "{}.size is {}: begin with its initialiser", what, given.size);
  Options options{};
  std::memcpy(&options, &given, std::min(given.size, sizeof options));
  return options;
}

template <typename T, typename Items>
void hand_out(const Items& items, T* out, size_t capacity, size_t* count, const char* what) {
  require(count != nullptr && (out != nullptr || capacity == 0), what);
  *count = items.size();
  if (items.size() <= capacity) std::copy(items.begin(), items.end(), out);
}

std::span<const int32_t> token_list(const int32_t* tokens, size_t count) {
  require(tokens != nullptr && count > 0, "tokens is NULL or empty");
  return {tokens, count};
}

SamplerOptions recommended(const gguf::File& file) {
  SamplerOptions options;
  for (const auto& [setting, value] : file_sampling(file.metadata()).values) {
    try {
      setting->set(options, value);
    } catch (const Error& error) {
      fail(ErrorCode::kBadFile, "general.sampling.{} of the file: {}", setting->key, error.what());
    }
  }
  return options;
}

SamplerOptions sampler_options(const tern_sampling& s) {
  return {.temperature = s.temperature,
          .top_k = s.top_k,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .repeat_penalty = s.repeat_penalty,
          .presence_penalty = s.presence_penalty,
          .frequency_penalty = s.frequency_penalty,
          .repeat_last_n = s.repeat_last_n,
          .seed = s.seed};
}

void generate_into(tern_sequence& s, std::span<const int32_t> prompt, const SamplerOptions& sampling,
                   int32_t max_tokens, tern_on_token on_token, void* user, tern_finish* finish) {
  const text::Tokenizer& tokenizer = s.model->tokenizer();
  text::StreamDecoder decoder(tokenizer);
  const auto emit = [&](int32_t token, const std::string& text) {
    return on_token == nullptr || on_token(token, text.data(), text.size(), user);
  };
  const Generated generated = generate(s.model->runner(), s.sequence, prompt,
                                       {.sampling = sampling,
                                        .max_tokens = max_tokens,
                                        .ends = [&](int32_t token) { return tokenizer.is_end_of_generation(token); },
                                        .on_token = [&](int32_t token) { return emit(token, decoder.push(token)); }});
  if (const std::string rest = decoder.finish(); !rest.empty()) emit(-1, rest);
  if (finish == nullptr) return;
  *finish = generated.reason == FinishReason::kEndOfText ? TERN_FINISH_END
            : generated.reason == FinishReason::kLength  ? TERN_FINISH_LENGTH
                                                         : TERN_FINISH_STOPPED;
}

}  // namespace
}  // namespace tern

using namespace tern;  // the functions below are C's, outside every namespace

const char* tern_version(void) {
  return TERN_VERSION;
}
const char* tern_last_error(void) {
  return last_error.c_str();
}

tern_status tern_model_load(const char* path, const tern_model_options* options, tern_model** model) {
  return guarded([&] {
    require(path != nullptr && model != nullptr, "path or model is NULL");
    const tern_model_options o =
        options == nullptr ? tern_model_options TERN_MODEL_OPTIONS : known_fields(*options, "tern_model_options");
    require(o.context >= 0 && o.sequences >= 0 && o.batch >= 0 && o.threads >= 0,
            "tern_model_options: a number is negative");
    require(o.context <= kMostContext && o.sequences <= kMostSequences,
            "tern_model_options: at most 2^30 tokens of context and 64 sequences");
    ModelOptions load{.path = path, .threads = o.threads};
    load.limits.context = o.context;
    if (o.sequences > 0) load.limits.sequences = o.sequences;
    if (o.batch > 0) load.limits.rows = o.batch;
    if (o.progress != nullptr) load.progress = [&](uint64_t done, uint64_t total) { o.progress(done, total, o.user); };
    *model = new tern_model{std::make_shared<Model>(load)};
  });
}

void tern_model_free(tern_model* model) {
  delete model;
}

int32_t tern_model_vocabulary(const tern_model* model) {
  return model == nullptr ? 0 : static_cast<int32_t>(model->model->plan().n_vocab);
}
int32_t tern_model_context(const tern_model* model) {
  return model == nullptr ? 0 : model->model->runner().limits().context;
}

tern_status tern_tokenize(const tern_model* model, const char* text, size_t length, uint32_t flags, int32_t* tokens,
                          size_t capacity, size_t* count) {
  return guarded([&] {
    require(model != nullptr && (text != nullptr || length == 0), "model or text is NULL");
    require(flags <= (TERN_TOKENIZE_BEGIN | TERN_TOKENIZE_SPECIAL), "flags has bits that mean nothing");
    const text::Tokenizer& tokenizer = model->model->tokenizer();
    const bool special = (flags & TERN_TOKENIZE_SPECIAL) != 0;
    const std::string_view words(length == 0 ? "" : text, length);
    const bool has_bos = special && tokenizer.bos() && words.starts_with(tokenizer.token_text(*tokenizer.bos()));
    hand_out(tokenizer.encode(
                 words, {.add_special = (flags & TERN_TOKENIZE_BEGIN) != 0 && !has_bos, .parse_special = special}),
             tokens, capacity, count, "tokens or count is NULL");
  });
}

tern_status tern_detokenize(const tern_model* model, const int32_t* tokens, size_t count, char* text, size_t capacity,
                            size_t* length) {
  return guarded([&] {
    require(model != nullptr && (tokens != nullptr || count == 0), "model or tokens is NULL");
    hand_out(model->model->tokenizer().decode({tokens, count}), text, capacity, length, "text or length is NULL");
  });
}

bool tern_is_end_of_generation(const tern_model* model, int32_t token) {
  return model != nullptr && token >= 0 && token < model->model->tokenizer().n_vocab() &&
         model->model->tokenizer().is_end_of_generation(token);
}

tern_status tern_chat_prompt(const tern_model* model, const tern_message* messages, size_t count, char* text,
                             size_t capacity, size_t* length) {
  return guarded([&] {
    require(model != nullptr && (messages != nullptr || count == 0), "model or messages is NULL");
    const auto form = chat_template(model->model->file(), model->model->tokenizer());
    if (!form) fail(ErrorCode::kUnsupported, "the model has no chat template");
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < count; ++i) {
      require(messages[i].role != nullptr && messages[i].content != nullptr, "a message's role or content is NULL");
      list.push_back({{"role", messages[i].role}, {"content", messages[i].content}});
    }
    hand_out(form->render(list), text, capacity, length, "text or length is NULL");
  });
}

tern_status tern_sequence_create(tern_model* model, tern_sequence** sequence) {
  return guarded([&] {
    require(model != nullptr && sequence != nullptr, "model or sequence is NULL");
    *sequence = new tern_sequence{model->model, model->model->runner().start()};
  });
}

void tern_sequence_free(tern_sequence* sequence) {
  delete sequence;
}

int32_t tern_sequence_position(const tern_sequence* sequence) {
  return sequence == nullptr ? 0 : sequence->sequence.position();
}

tern_status tern_sequence_rewind(tern_sequence* sequence, int32_t position, int32_t* reached) {
  return guarded([&] {
    require(sequence != nullptr && position >= 0, "sequence is NULL or position negative");
    const int32_t at = sequence->sequence.rewind(position);
    if (reached != nullptr) *reached = at;
  });
}

tern_status tern_eval(tern_sequence* sequence, const int32_t* tokens, size_t count, const float** logits) {
  return guarded([&] {
    require(sequence != nullptr, "sequence is NULL");
    const std::span<const float> last = sequence->model->runner().prefill(
        sequence->sequence, token_list(tokens, count), {}, logits == nullptr ? kBestToken : Wanted{});
    if (logits != nullptr) *logits = last.data();
  });
}

tern_status tern_sampling_init(const tern_model* model, tern_sampling* sampling) {
  return guarded([&] {
    require(model != nullptr && sampling != nullptr, "model or sampling is NULL");
    const SamplerOptions o = recommended(model->model->file());
    *sampling = {.size = sizeof *sampling,
                 .temperature = o.temperature,
                 .top_k = o.top_k,
                 .top_p = o.top_p,
                 .min_p = o.min_p,
                 .repeat_penalty = o.repeat_penalty,
                 .repeat_last_n = o.repeat_last_n,
                 .seed = o.seed,
                 .presence_penalty = o.presence_penalty,
                 .frequency_penalty = o.frequency_penalty};
  });
}

tern_status tern_generate(tern_sequence* sequence, const int32_t* prompt, size_t count, const tern_sampling* sampling,
                          int32_t max_tokens, tern_on_token on_token, void* user, tern_finish* finish) {
  return guarded([&] {
    require(sequence != nullptr, "sequence is NULL");
    require(max_tokens >= -1, "max_tokens is below -1");
    const SamplerOptions options = sampling == nullptr ? recommended(sequence->model->file())
                                                       : sampler_options(known_fields(*sampling, "tern_sampling"));
    generate_into(*sequence, token_list(prompt, count), options, max_tokens, on_token, user, finish);
  });
}
