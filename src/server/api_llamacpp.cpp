// llama.cpp's own endpoints, and tern's few: /completion, /tokenize, /detokenize, /apply-template, /props, /slots,
// /models/load, /models/unload, /v1/cancel.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "engine/sampler_settings.h"
#include "server/apis.h"
#include "server/load_source.h"

namespace tern::server {
namespace {

/// A piece of a token: text, or its bytes where they are no text.
Json piece_json(const std::string& piece) {
  try {
    (void)Json(piece).dump();
    return piece;
  } catch (const Json::exception&) {
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    return bytes;
  }
}

Json probability(const text::Tokenizer& tokenizer, int32_t token, float logprob) {
  return {{"id", token}, {"token", tokenizer.piece(token, true)}, {"logprob", logprob}};
}

Json probabilities(const text::Tokenizer& tokenizer, const std::vector<TokenEvent>& events) {
  Json out = Json::array();
  for (const TokenEvent& event : events) {
    Json one = probability(tokenizer, event.token, event.logprob);
    one["top_logprobs"] = Json::array();
    for (const TokenChance& other : event.top)
      one["top_logprobs"].push_back(probability(tokenizer, other.token, other.logprob));
    out.push_back(std::move(one));
  }
  return out;
}

std::string_view stop_type(EndReason reason) {
  switch (reason) {
    case EndReason::kEndOfText:
    case EndReason::kStopToken:
      return "eos";
    case EndReason::kStopString:
      return "word";
    case EndReason::kLength:
      return "limit";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kFailed:
      break;
  }
  return "error";
}

struct CompletionWishes {
  bool stream, tokens, progress;
  Json settings;
};

class CompletionSource final : public GenerationSource {
 public:
  CompletionSource(std::shared_ptr<Generation> generation, CompletionWishes wishes)
      : GenerationSource(std::move(generation), wishes.stream), wishes_(std::move(wishes)) {}

 private:
  void event(const GenerationEvent& told, std::string& out) override {
    const Choice& choice = generation().choices()[static_cast<size_t>(told.choice)];
    if (told.progress && wishes_.progress)
      out += sse({{"index", told.choice},
                  {"content", ""},
                  {"stop", false},
                  {"prompt_progress",
                   {{"total", told.progress->total},
                    {"cache", told.progress->cached},
                    {"processed", told.progress->processed},
                    {"time_ms", told.progress->seconds * 1e3}}}});
    if (told.ended && choice.ending.reason == EndReason::kFailed) {
      out += sse(llamacpp_error(error_of(choice.ending.failure)));
      return;
    }
    std::string text;
    for (const text::ReplyDelta& delta : told.deltas) text += delta.text;
    if (told.token && (!text.empty() || wishes_.tokens || !choice.tokens.empty())) {
      Json chunk{{"index", told.choice},
                 {"content", text},
                 {"tokens", Json::array({told.token->token})},
                 {"stop", false},
                 {"id", generation().id()},
                 {"tokens_predicted", choice.generated},
                 {"tokens_evaluated", generation().prompt_tokens()}};
      if (!choice.tokens.empty())
        chunk["completion_probabilities"] = probabilities(generation().model().tokenizer(), {*told.token});
      out += sse(chunk);
    }
    if (told.ended) out += sse(last(told.choice, choice, text));
  }
  void finish(std::string&) override {}

  Json last(int32_t index, const Choice& choice, const std::string& content) const {
    const Ending& ending = choice.ending;
    return {{"index", index},
            {"id", generation().id()},
            {"content", content},
            {"stop", true},
            {"model", generation().model().name},
            {"tokens_predicted", ending.generated_tokens},
            {"tokens_evaluated", ending.prompt_tokens},
            {"tokens_cached", ending.cached_tokens},
            {"generation_settings", wishes_.settings},
            {"truncated", false},
            {"stop_type", stop_type(ending.reason)},
            {"stopping_word", ending.stop},
            {"timings", timings(ending)}};
  }
  HttpResponse complete() override {
    Json answers = Json::array();
    for (const Choice& choice : generation().choices()) {
      Json one = last(static_cast<int32_t>(answers.size()), choice, choice.content);
      if (!choice.tokens.empty())
        one["completion_probabilities"] = probabilities(generation().model().tokenizer(), choice.tokens);
      answers.push_back(std::move(one));
    }
    return json_response(answers.size() == 1 ? answers[0] : answers);
  }
  ErrorEnvelope envelope() const override { return llamacpp_error; }

  const CompletionWishes wishes_;
};

/// The effective values, in llama.cpp's names.
Json settings_json(const SamplerOptions& sampling) {
  Json out = Json::object();
  for (const SamplerSetting& setting : sampler_settings()) {
    std::string name(setting.name() == "temp" ? "temperature" : setting.name());
    std::replace(name.begin(), name.end(), '-', '_');
    out[name] = setting.value(sampling);
  }
  return out;
}

Reply completion(const Services& services, HttpRequest& http) {
  Body body(http.body);
  ServedPtr model = services.models.find(body.string("model").value_or(""));
  GenerationOptions options = read_options(body, *model);
  const Json& prompt = body.required("prompt");
  if (const auto n = body.integer("n_probs", 0, 20); n && *n > 0)
    options.request.top_logprobs = static_cast<int32_t>(*n);
  CompletionWishes wishes{.stream = options.stream,
                          .tokens = body.boolean("return_tokens").value_or(false),
                          .progress = options.return_progress,
                          .settings = settings_json(options.request.sampling)};
  wishes.settings["n_predict"] = options.request.max_tokens;
  if (!options.seed) options.seed = std::random_device{}();  // here, so that it can be told
  wishes.settings["seed"] = *options.seed;
  body.neutral("n_keep", 0);
  body.neutral("min_keep", 0);
  body.neutral("post_sampling_probs", false);
  body.refuse_rest();
  auto tokens = prompt_tokens(*model, prompt, "prompt");
  auto generation = begin_text(services, std::move(model), std::move(options), std::move(tokens), "cmpl-");
  const bool stream = wishes.stream;
  return reply_with(std::make_shared<CompletionSource>(std::move(generation), std::move(wishes)), stream);
}

Reply tokenize(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const ServedPtr model = services.models.find(body.string("model").value_or(""));
  const auto content = body.string("content");
  if (!content) throw bad_request("content", "'content' is missing");
  const bool pieces = body.boolean("with_pieces").value_or(false);
  const auto ids = model->tokenizer().encode(*content, {.add_special = body.boolean("add_special").value_or(false),
                                                        .parse_special = body.boolean("parse_special").value_or(true)});
  body.refuse_rest();
  Json tokens = Json::array();
  for (const int32_t id : ids)
    tokens.push_back(pieces ? Json{{"id", id}, {"piece", piece_json(model->tokenizer().piece(id, true))}} : Json(id));
  return json_response({{"tokens", std::move(tokens)}});
}

Reply detokenize(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const ServedPtr model = services.models.find(body.string("model").value_or(""));
  const Json* tokens = body.array("tokens");
  if (!tokens) throw bad_request("tokens", "'tokens' is missing");
  body.refuse_rest();
  return json_response({{"content", model->tokenizer().decode(prompt_tokens(*model, *tokens, "tokens"), true)}});
}

Reply apply_template(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const ServedPtr model = services.models.find(body.string("model").value_or(""));
  const ChatRequest request = read_chat(body, *model);
  body.refuse_rest();
  return json_response({{"prompt", render_chat(*model, request).text}});
}

Reply props(const Services& services, HttpRequest& http) {
  const ServedPtr model = services.models.find(http.parameter("model"));
  const text::Tokenizer& tokenizer = model->tokenizer();
  const auto text_of = [&](std::optional<int32_t> id) { return id ? tokenizer.token_text(*id) : std::string(); };
  const int32_t context = model->scheduler->context();
  return json_response(
      {{"default_generation_settings", {{"params", settings_json(model->sampling)}, {"n_ctx", context}}},
       {"total_slots", model->model->runner().limits().sequences},
       {"model_alias", model->name},
       {"n_ctx", context},
       {"chat_template", model->template_source},
       {"bos_token", text_of(tokenizer.bos())},
       {"eos_token", text_of(tokenizer.eos())},
       {"modalities", {{"vision", false}, {"audio", false}}},
       {"build_info", "tern-" TERN_VERSION}});
}

Reply slots(const Services& services, HttpRequest& http) {
  const ServedPtr model = services.models.find(http.parameter("model"));
  const int32_t context = model->scheduler->context();
  Json out = Json::array();
  for (const SlotInfo& slot : model->scheduler->stats().slots) {
    constexpr const char* kStates[] = {"queued", "prompt", "decode"};
    out.push_back({{"id", slot.id},
                   {"state", kStates[static_cast<size_t>(slot.state)]},
                   {"is_processing", slot.state != SlotInfo::State::kQueued},
                   {"queue_position", slot.queue_position},
                   {"n_ctx", context},
                   {"n_prompt_tokens", slot.prompt_tokens},
                   {"n_prompt_tokens_processed", slot.processed},
                   {"n_decoded", slot.generated}});
  }
  return json_response(out);
}

/// {"model": "name"} of /models/load and /models/unload.
Reply change_model(Registry& models, HttpRequest& http, bool load) {
  Body body(http.body);
  const auto name = body.string("model");
  if (!name) throw bad_request("model", "'model' is missing");
  body.refuse_rest();
  HttpResponse changed = json_response({{"success", true}, {"model", *name}});
  if (load) return load_model(models, *name, std::move(changed), openai_error);
  models.unload(*name);
  return changed;
}

Reply cancel(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const auto id = body.string("id");
  if (!id) throw bad_request("id", "'id' is missing: the id of an answer in flight");
  body.refuse_rest();
  if (!services.running.cancel(*id))
    throw ApiError(404, "not_found_error", fmt::format("no answer '{}' is in flight", *id), "id");
  return json_response({{"cancelled", true}, {"id", *id}});
}

}  // namespace

void add_llamacpp_routes(Router& router, const Services& services) {
  const auto add = [&](const char* method, const char* path, Reply (*answer)(const Services&, HttpRequest&)) {
    router.add(
        method, path, [services, answer](HttpRequest& r) { return answer(services, r); }, llamacpp_error);
  };
  add("POST", "/completion", completion);
  add("POST", "/completions", completion);
  add("POST", "/tokenize", tokenize);
  add("POST", "/detokenize", detokenize);
  add("POST", "/apply-template", apply_template);
  add("GET", "/props", props);
  add("GET", "/slots", slots);
  Registry& models = services.models;
  router.add("POST", "/models/load", [&models](HttpRequest& r) { return change_model(models, r, true); });
  router.add("POST", "/models/unload", [&models](HttpRequest& r) { return change_model(models, r, false); });
  router.add("POST", "/v1/cancel", [services](HttpRequest& r) { return cancel(services, r); });
}

}  // namespace tern::server
