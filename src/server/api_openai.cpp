// OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models.
#include <fmt/format.h>

#include <algorithm>

#include "engine/memory_need.h"
#include "server/apis.h"

namespace tern::server {
namespace {

constexpr const char* kFingerprint = "tern-" TERN_VERSION;

Json bytes_of(const std::string& text) {
  Json out = Json::array();
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

/// One token of `logprobs.content`.
Json chance(const text::Tokenizer& tokenizer, int32_t token, float logprob) {
  const std::string& piece = tokenizer.piece(token, true);
  return {{"token", piece}, {"logprob", logprob}, {"bytes", bytes_of(piece)}};
}

Json chat_logprobs(const text::Tokenizer& tokenizer, const TokenEvent& event) {
  Json out = chance(tokenizer, event.token, event.logprob);
  out["top_logprobs"] = Json::array();
  for (const TokenChance& other : event.top)
    out["top_logprobs"].push_back(chance(tokenizer, other.token, other.logprob));
  return out;
}

Json chat_logprobs(const text::Tokenizer& tokenizer, const std::vector<TokenEvent>& events) {
  Json content = Json::array();
  for (const TokenEvent& event : events) content.push_back(chat_logprobs(tokenizer, event));
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

/// The logprobs of /v1/completions: parallel arrays. `offset`: characters of the answer so far.
Json text_logprobs(const text::Tokenizer& tokenizer, const std::vector<TokenEvent>& events, size_t& offset) {
  Json out{{"tokens", Json::array()},
           {"token_logprobs", Json::array()},
           {"top_logprobs", Json::array()},
           {"text_offset", Json::array()}};
  for (const TokenEvent& event : events) {
    const std::string& piece = tokenizer.piece(event.token, true);
    out["tokens"].push_back(piece);
    out["token_logprobs"].push_back(event.logprob);
    Json top = Json::object();
    for (const TokenChance& other : event.top) top[tokenizer.piece(other.token, true)] = other.logprob;
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(offset);
    offset += characters(piece);
  }
  return out;
}

Json progress_json(const PromptProgress& progress) {
  return {{"total", progress.total},
          {"cache", progress.cached},
          {"processed", progress.processed},
          {"time_ms", progress.seconds * 1e3}};
}

struct Wishes {
  bool stream, include_usage;
  explicit Wishes(const GenerationOptions& options) : stream(options.stream), include_usage(options.include_usage) {}
};

/// What chat and completions share: the frame of chunks and of whole answers.
class OpenAiSource : public GenerationSource {
 public:
  OpenAiSource(std::shared_ptr<Generation> generation, const Wishes& wishes, bool progress)
      : GenerationSource(std::move(generation), wishes.stream), wishes_(wishes), progress_(progress) {}

 protected:
  Json frame(const char* object, Json choices) const {
    return {{"id", generation().id()},
            {"object", object},
            {"created", generation().created()},
            {"model", generation().model().name},
            {"system_fingerprint", kFingerprint},
            {"choices", std::move(choices)}};
  }
  /// Every chunk but the last of a choice.
  virtual void write_event(const GenerationEvent& event, std::string& out) = 0;
  virtual Json last_choice(size_t index) const = 0;
  virtual const char* chunk_object() const = 0;

  void event(const GenerationEvent& told, std::string& out) final {
    if (told.progress && progress_) {
      Json chunk = frame(chunk_object(), Json::array());
      chunk["prompt_progress"] = progress_json(*told.progress);
      out += sse(chunk);
    }
    write_event(told, out);
    if (!told.ended) return;
    const auto index = static_cast<size_t>(told.choice);
    const Choice& choice = generation().choices()[index];
    if (choice.ending.reason == EndReason::kFailed) {
      out += sse(openai_error(error_of(choice.ending.failure)));
      return;
    }
    Json chunk = frame(chunk_object(), Json::array({last_choice(index)}));
    chunk["timings"] = timings(choice.ending);
    out += sse(chunk);
  }
  void finish(std::string& out) final {
    if (wishes_.include_usage) {
      Json chunk = frame(chunk_object(), Json::array());
      chunk["usage"] = usage(generation());
      chunk["timings"] = timings(generation().choices().front().ending);
      out += sse(chunk);
    }
    out += "data: [DONE]\n\n";
  }
  HttpResponse complete_with(const char* object, Json choices) const {
    Json body = frame(object, std::move(choices));
    body["usage"] = usage(generation());
    body["timings"] = timings(generation().choices().front().ending);
    return json_response(body);
  }

 private:
  const Wishes wishes_;
  const bool progress_;
};

Json calls_json(const std::vector<ToolCall>& calls) {
  Json out = Json::array();
  for (const ToolCall& call : calls)
    out.push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return out;
}

class ChatSource final : public OpenAiSource {
 public:
  using OpenAiSource::OpenAiSource;

 private:
  static Json delta_json(const text::ReplyDelta& delta) {
    switch (delta.kind) {
      case text::ReplyDelta::Kind::kContent:
        return {{"content", delta.text}};
      case text::ReplyDelta::Kind::kReasoning:
        return {{"reasoning_content", delta.text}};
      case text::ReplyDelta::Kind::kToolCall:
        break;
    }
    Json call{{"index", delta.call}};
    if (!delta.name.empty()) {
      call["id"] = delta.id;
      call["type"] = "function";
      call["function"]["name"] = delta.name;
    }
    call["function"]["arguments"] = delta.text;
    return {{"tool_calls", Json::array({std::move(call)})}};
  }
  static Json choice_json(int32_t index, Json delta) {
    return {{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }
  const char* chunk_object() const override { return "chat.completion.chunk"; }

  void begin(std::string& out) override {
    for (size_t i = 0; i < generation().choices().size(); ++i)
      out += sse(frame(chunk_object(),
                       Json::array({choice_json(static_cast<int32_t>(i), {{"role", "assistant"}, {"content", ""}})})));
  }
  void write_event(const GenerationEvent& event, std::string& out) override {
    const bool logprobs = event.token && !generation().choices()[static_cast<size_t>(event.choice)].tokens.empty();
    std::vector<Json> deltas;
    for (const text::ReplyDelta& delta : event.deltas) deltas.push_back(delta_json(delta));
    if (logprobs && deltas.empty()) deltas.push_back(Json::object());
    for (size_t i = 0; i < deltas.size(); ++i) {
      Json choice = choice_json(event.choice, std::move(deltas[i]));
      if (logprobs && i == 0)
        choice["logprobs"] = chat_logprobs(generation().model().tokenizer(), std::vector{*event.token});
      out += sse(frame(chunk_object(), Json::array({std::move(choice)})));
    }
  }
  Json last_choice(size_t index) const override {
    Json choice = choice_json(static_cast<int32_t>(index), Json::object());
    choice["finish_reason"] = finish_reason(generation().choices()[index]);
    return choice;
  }
  HttpResponse complete() override {
    Json choices = Json::array();
    for (const Choice& choice : generation().choices()) {
      Json message{{"role", "assistant"}, {"content", choice.content}};
      if (choice.content.empty() && !choice.calls.empty()) message["content"] = nullptr;
      if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
      if (!choice.calls.empty()) message["tool_calls"] = calls_json(choice.calls);
      message["refusal"] = nullptr;
      const bool logprobs = !choice.tokens.empty();
      choices.push_back(
          {{"index", choices.size()},
           {"message", std::move(message)},
           {"logprobs", logprobs ? chat_logprobs(generation().model().tokenizer(), choice.tokens) : Json(nullptr)},
           {"finish_reason", finish_reason(choice)}});
    }
    return complete_with("chat.completion", std::move(choices));
  }
};

class TextSource final : public OpenAiSource {
 public:
  TextSource(std::shared_ptr<Generation> generation, const Wishes& wishes, bool progress, std::string echo)
      : OpenAiSource(std::move(generation), wishes, progress),
        echo_(std::move(echo)),
        offsets_(this->generation().choices().size()) {}

 private:
  static Json choice_json(size_t index, std::string text) {
    return {{"index", index}, {"text", std::move(text)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }
  const char* chunk_object() const override { return "text_completion"; }
  void begin(std::string& out) override {
    if (echo_.empty()) return;
    for (size_t i = 0; i < generation().choices().size(); ++i)
      out += sse(frame(chunk_object(), Json::array({choice_json(i, echo_)})));
  }
  void write_event(const GenerationEvent& event, std::string& out) override {
    const auto index = static_cast<size_t>(event.choice);
    const bool logprobs = event.token && !generation().choices()[index].tokens.empty();
    std::string text;
    for (const text::ReplyDelta& delta : event.deltas) text += delta.text;
    if (text.empty() && !logprobs) return;
    Json choice = choice_json(index, std::move(text));
    if (logprobs) choice["logprobs"] = text_logprobs(generation().model().tokenizer(), {*event.token}, offsets_[index]);
    out += sse(frame(chunk_object(), Json::array({std::move(choice)})));
  }
  Json last_choice(size_t index) const override {
    Json choice = choice_json(index, "");
    choice["finish_reason"] = finish_reason(generation().choices()[index]);
    return choice;
  }
  HttpResponse complete() override {
    Json choices = Json::array();
    for (const Choice& choice : generation().choices()) {
      size_t offset = 0;
      Json one = choice_json(choices.size(), echo_ + choice.content);
      if (!choice.tokens.empty())
        one["logprobs"] = text_logprobs(generation().model().tokenizer(), choice.tokens, offset);
      one["finish_reason"] = finish_reason(choice);
      choices.push_back(std::move(one));
    }
    return complete_with("text_completion", std::move(choices));
  }

  const std::string echo_;
  std::vector<size_t> offsets_;  // of each choice, see text_logprobs()
};

Reply chat_completions(const Services& services, HttpRequest& http) {
  Body body(http.body);
  ServedPtr model = services.models.find(body.string("model").value_or(""));
  ChatRequest request = read_chat(body, *model);
  body.neutral("prediction", nullptr);
  body.ignore({"verbosity"});
  body.refuse_rest();
  const Wishes wishes(request.options);
  const bool progress = request.options.return_progress;
  auto generation = begin_chat(services, std::move(model), std::move(request), "chatcmpl-");
  return reply_with(std::make_shared<ChatSource>(std::move(generation), wishes, progress), wishes.stream);
}

Reply completions(const Services& services, HttpRequest& http) {
  Body body(http.body);
  ServedPtr model = services.models.find(body.string("model").value_or(""));
  GenerationOptions options = read_options(body, *model);
  const Json& prompt = body.required("prompt");
  if (const auto top = body.integer("logprobs", 0, 20)) options.request.top_logprobs = static_cast<int32_t>(*top);
  const bool echo = body.boolean("echo").value_or(false);
  if (echo && options.request.top_logprobs >= 0) throw bad_request("echo", "'echo' with 'logprobs' is not supported");
  if (prompt.is_array() && prompt.size() != 1 && !prompt.empty() && !prompt[0].is_number())
    throw bad_request("prompt", "several prompts in one request are not supported: send one request each");
  body.integer("best_of", 1, options.choices);  // more than n would choose among answers nobody sees
  body.neutral("suffix", "");
  body.refuse_rest();
  const Json& one = prompt.is_array() && prompt.size() == 1 && !prompt[0].is_number() ? prompt[0] : prompt;
  std::vector<int32_t> tokens = prompt_tokens(*model, one, "prompt");
  const std::string echoed = !echo ? "" : one.is_string() ? one.get<std::string>() : model->tokenizer().decode(tokens);
  const Wishes wishes(options);
  const bool progress = options.return_progress;
  auto generation = begin_text(services, std::move(model), std::move(options), std::move(tokens), "cmpl-");
  return reply_with(std::make_shared<TextSource>(std::move(generation), wishes, progress, echoed), wishes.stream);
}

Json model_json(const Registry::Entry& entry) {
  Json out{{"id", entry.name},
           {"object", "model"},
           {"created", entry.model ? entry.model->created : 0},
           {"owned_by", "tern"},
           {"status", {{"value", state_name(entry.state)}}}};
  if (entry.state == Registry::State::kLoading) out["status"]["progress"] = entry.progress;
  if (!entry.error.empty()) out["status"]["error"] = entry.error;
  if (!entry.model) return out;
  const ServedModel& model = *entry.model;
  const int32_t context = model.scheduler->context();
  out["context_length"] = out["max_model_len"] = context;
  out["architecture"] = {{"input_modalities", Json::array({"text"})}, {"output_modalities", Json::array({"text"})}};
  out["meta"] = {{"n_ctx", context},
                 {"n_ctx_train", model.model->plan().n_context_train},
                 {"n_params", parameter_count(model.model->file())},
                 {"n_vocab", model.tokenizer().n_vocab()},
                 {"size", model.file_bytes},
                 {"architecture", model.model->plan().architecture},
                 {"vocab_type", model.tokenizer().description()}};
  return out;
}

Reply list_models(const Services& services) {
  Json data = Json::array();
  for (const Registry::Entry& entry : services.models.list()) data.push_back(model_json(entry));
  return json_response({{"object", "list"}, {"data", std::move(data)}});
}

Reply one_model(const Services& services, const std::string& name) {
  for (const Registry::Entry& entry : services.models.list())
    if (entry.name == name) return json_response(model_json(entry));
  throw ApiError(404, "not_found_error", fmt::format("there is no model '{}'", name), "model", "model_not_found");
}

}  // namespace

void add_openai_routes(Router& router, const Services& services) {
  for (const char* path : {"/v1/chat/completions", "/chat/completions"})  // of a base URL without /v1, as llama.cpp
    router.add("POST", path, [services](HttpRequest& r) { return chat_completions(services, r); });
  router.add("POST", "/v1/completions", [services](HttpRequest& r) { return completions(services, r); });
  for (const char* path : {"/v1/models", "/models"})
    router.add("GET", path, [services](HttpRequest&) { return list_models(services); });
  router.add("GET", "/v1/models/{id}", [services](HttpRequest& r) { return one_model(services, r.segment); });
}

}  // namespace tern::server
