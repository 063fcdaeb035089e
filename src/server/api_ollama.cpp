// Ollama's API: /api/chat, /api/generate; the routes about models are in api_ollama_models.cpp. What is asked is put
// into OpenAI's words, which chat_core reads; what is told is a JSON object a line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "server/api_ollama.h"
#include "server/load_source.h"

namespace tern::server {
namespace {

constexpr const char* kLines = "application/x-ndjson";

// ---- What is asked ----

void put_thinking(Body& body, const ServedModel& model, Json& chat) {
  const Json* think = body.any("think");
  if (!think) return;
  if (!think->is_string() && !think->is_boolean())
    throw bad_request("think", "'think' must be true, false or an effort such as \"low\"");
  if (*think != false && !ollama_thinks(model))
    throw bad_request("think", fmt::format("{} does not think", model.name));
  chat[think->is_string() ? "reasoning_effort" : "enable_thinking"] = *think;
}

void put_format(Body& body, Json& chat) {
  const Json* format = body.any("format");
  if (!format || *format == "") return;
  if (*format == "json") {
    chat["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    chat["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *format}}}};
  } else {
    throw bad_request("format", "'format' must be \"json\" or a JSON Schema");
  }
}

/// What both routes take and what is theirs to refuse.
int64_t put_common(Body& body, const ServedModel& model, Json& chat) {
  put_format(body, chat);
  if (const Json* grammar = body.any("grammar")) chat["grammar"] = *grammar;  // tern's own, as on every route
  body.boolean("truncate");                                                   // what does not fit is refused either way
  body.neutral("shift", false);
  body.neutral("logprobs", false);
  body.neutral("top_logprobs", 0);
  return ollama_options(body, model, chat);
}

void refuse_images(const Json& holder) {
  if (const auto images = holder.find("images"); images != holder.end() && !images->is_null() && !images->empty())
    throw bad_request("images", "'images' cannot be read: this model reads text only");
}

/// Calls of earlier turns have no ids in Ollama's form, while templates may want them, and beside the results too.
Json openai_messages(const Json& messages) {
  Json out = Json::array();
  std::deque<std::pair<std::string, std::string>> open;  // id and name of calls without a result
  int32_t calls = 0;
  for (Json message : messages) {
    if (!message.is_object()) throw bad_request("messages", "'messages' must be objects");
    refuse_images(message);
    message.erase("images");
    if (message.contains("thinking")) message["reasoning_content"] = std::move(message["thinking"]);
    message.erase("thinking");
    if (message.contains("tool_calls") && message["tool_calls"].is_array())
      for (Json& call : message["tool_calls"]) {
        if (!call.is_object() || !call.contains("function")) continue;  // refused by who reads it
        call["type"] = "function";
        if (!call.contains("id")) call["id"] = fmt::format("call{:05}", ++calls);
        open.emplace_back(call["id"].is_string() ? call["id"].get<std::string>() : "",
                          call["function"].is_object() ? call["function"].value("name", "") : "");
      }
    if (message.value("role", Json()) == "tool" && !message.contains("tool_call_id") && !open.empty()) {
      const std::string name = message.contains("tool_name") ? message["tool_name"].get<std::string>() : "";
      auto call = std::find_if(open.begin(), open.end(), [&](const auto& c) { return c.second == name; });
      if (call == open.end()) call = open.begin();
      message["tool_call_id"] = call->first;
      open.erase(call);
    }
    if (message.contains("tool_name")) message["name"] = std::move(message["tool_name"]);
    message.erase("tool_name");
    out.push_back(std::move(message));
  }
  return out;
}

// ---- What is told ----

enum class Route : uint8_t { kChat, kGenerate };

Json part(Route route, const std::string& model, const std::string& content, const std::string& thinking) {
  Json out{{"model", model}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
  Json said = route == Route::kChat ? Json{{"role", "assistant"}, {"content", content}} : Json{{"response", content}};
  if (!thinking.empty()) said["thinking"] = thinking;
  if (route == Route::kChat) {
    out["message"] = std::move(said);
  } else {
    out.update(said);
  }
  out["done"] = false;
  return out;
}

class OllamaSource final : public GenerationSource {
 public:
  OllamaSource(std::shared_ptr<Generation> generation, bool streamed, Route route)
      : GenerationSource(std::move(generation), streamed), route_(route) {}

 private:
  ErrorEnvelope envelope() const override { return ollama_error; }
  std::string idle() override { return {}; }  // there is no line that says nothing

  const Choice& choice() const { return generation().choices().front(); }
  Json say(const std::string& content, const std::string& thinking) const {
    return part(route_, generation().model().name, content, thinking);
  }
  /// Arguments are objects here, so calls are told whole, at the end.
  Json calls() const {
    Json out = Json::array();
    for (const ToolCall& call : choice().calls) {
      Json arguments = Json::parse(call.arguments, nullptr, false);
      if (arguments.is_discarded()) continue;  // cut by num_predict: nobody may run half a call
      out.push_back({{"id", call.id},
                     {"function", {{"index", out.size()}, {"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
    return out;
  }
  void put_end(Json& out) const {
    const Ending& ending = choice().ending;
    const std::string_view reason = finish_reason(choice());
    out["done"] = true;
    out["done_reason"] = reason == "tool_calls" ? "stop" : reason;
    const bool began = ending.first_token_seconds > 0;
    out["total_duration"] = nanoseconds(began ? ending.first_token_seconds + ending.decode_seconds
                                              : ending.queue_seconds + ending.prompt_seconds);
    out["load_duration"] = nanoseconds(ending.queue_seconds);  // the wait before anything of it ran
    out["prompt_eval_count"] = ending.prompt_tokens;
    out["prompt_eval_duration"] = nanoseconds(ending.prompt_seconds);
    out["eval_count"] = ending.generated_tokens;
    out["eval_duration"] = nanoseconds(ending.decode_seconds);
  }

  void event(const GenerationEvent& event, std::string& out) override {
    std::string content, thinking;
    for (const text::ReplyDelta& delta : event.deltas) {
      if (delta.kind == text::ReplyDelta::Kind::kContent) content += delta.text;
      if (delta.kind == text::ReplyDelta::Kind::kReasoning) thinking += delta.text;
    }
    if (!content.empty() || !thinking.empty()) out += dump(say(content, thinking)) + "\n";
  }
  void finish(std::string& out) override {
    if (choice().ending.reason == EndReason::kFailed) {
      out += dump(ollama_error(error_of(choice().ending.failure))) + "\n";
      return;
    }
    if (Json made = calls(); !made.empty()) {
      Json line = say("", "");
      line["message"]["tool_calls"] = std::move(made);
      out += dump(line) + "\n";
    }
    Json last = say("", "");
    put_end(last);
    out += dump(last) + "\n";
  }
  HttpResponse complete() override {
    Json out = say(choice().content, choice().reasoning);
    if (Json made = calls(); !made.empty()) out["message"]["tool_calls"] = std::move(made);
    put_end(out);
    return json_response(out);
  }

  const Route route_;
};

/// Durations ("5m", "-1") and seconds. Models stay until they are unloaded, so that all that matters is whether it is
/// 0.
bool keeps_nothing(Body& body) {
  const Json* keep = body.any("keep_alive");
  if (!keep) return false;
  if (keep->is_number()) return *keep == 0;
  const std::string text = keep->is_string() ? keep->get<std::string>() : "";
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str())
    throw bad_request("keep_alive", R"('keep_alive' must be seconds or a duration such as "5m")");
  return number == 0;
}

/// A request without a question is about the model: it loads it, or unloads it when it is to be kept for no time.
Reply change_model(const Services& services, Body& body, Route route) {
  std::string name = ollama_name(services, body);
  if (name.empty()) name = services.models.find("")->name;
  const bool unload = keeps_nothing(body);
  // Of a question, which is not asked. What is none of a question's is a slip of the pen, and not a wish to load.
  body.ignore({"messages", "prompt", "stream", "options", "format", "grammar", "tools", "think", "system", "template",
               "suffix", "images", "context", "raw", "truncate", "shift", "logprobs", "top_logprobs"});
  body.refuse_rest();
  Json out = part(route, name, "", "");
  out["done"] = true;
  out["done_reason"] = unload ? "unload" : "load";
  bool ready = false;
  for (const Registry::Entry& entry : services.models.list()) ready |= entry.name == name && entry.model != nullptr;
  if (unload)
    services.models.unload(name);
  else if (!ready)
    return load_model(services.models, name, json_response(out), ollama_error);
  return json_response(out);
}

Reply begin(const Services& services, ServedPtr model, Json chat, int64_t context, bool stream, Route route) {
  ChatRequest request = read_chat(std::move(chat), *model);
  request.options.context = context;
  auto generation = begin_chat(services, std::move(model), std::move(request), "ollama-");
  return reply_with(std::make_shared<OllamaSource>(std::move(generation), stream, route), stream, kLines);
}

Reply chat(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const Json* messages = body.array("messages");
  if (!messages || messages->empty()) return change_model(services, body, Route::kChat);
  ServedPtr model = services.models.find(ollama_name(services, body));
  Json chat{{"messages", openai_messages(*messages)}};
  if (const Json* tools = body.array("tools")) chat["tools"] = *tools;
  const int64_t context = put_common(body, *model, chat);
  put_thinking(body, *model, chat);
  const bool stream = body.boolean("stream").value_or(true);
  keeps_nothing(body);
  body.refuse_rest();
  return begin(services, std::move(model), std::move(chat), context, stream, Route::kChat);
}

Reply generate(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const std::string prompt = body.string("prompt").value_or("");
  if (prompt.empty()) return change_model(services, body, Route::kGenerate);
  ServedPtr model = services.models.find(ollama_name(services, body));
  Json chat = Json::object();
  const int64_t context = put_common(body, *model, chat);
  const bool stream = body.boolean("stream").value_or(true);
  const bool raw = body.boolean("raw").value_or(false);
  const std::string system = body.string("system").value_or("");
  body.neutral("template", "");  // Go's language, where models bring Jinja
  body.neutral("suffix", "");
  body.neutral("images", Json::array());
  body.neutral("context", Json::array());
  keeps_nothing(body);
  if (!raw) {
    put_thinking(body, *model, chat);
    body.refuse_rest();
    chat["messages"] = Json::array();
    if (!system.empty()) chat["messages"].push_back({{"role", "system"}, {"content", system}});
    chat["messages"].push_back({{"role", "user"}, {"content", prompt}});
    return begin(services, std::move(model), std::move(chat), context, stream, Route::kGenerate);
  }
  body.neutral("think", false);
  if (!system.empty()) throw bad_request("system", "'system' has no place in a raw prompt");
  body.refuse_rest();
  Body words = Body::of(std::move(chat));
  GenerationOptions options = read_options(words, *model);
  words.refuse_rest();
  options.context = context;
  std::vector<int32_t> tokens = prompt_tokens(*model, prompt, "prompt");
  auto generation = begin_text(services, std::move(model), std::move(options), std::move(tokens), "ollama-");
  return reply_with(std::make_shared<OllamaSource>(std::move(generation), stream, Route::kGenerate), stream, kLines);
}

}  // namespace

int64_t ollama_options(Body& body, const ServedModel& model, Json& chat) {
  const int32_t served = model.scheduler->context();
  const Json* given = body.object("options");
  if (!given) return served;
  Body options = Body::of(*given);
  for (const char* same :
       {"temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
        "frequency_penalty", "seed", "stop", "mirostat", "mirostat_tau", "mirostat_eta"})
    if (const Json* value = options.any(same)) chat[same] = *value;
  const auto most = options.integer("num_predict", -2, INT32_MAX);
  if (most == 0) throw bad_request("num_predict", "'num_predict' must be at least 1, or -1 for what fits");
  if (most && *most > 0) chat["max_tokens"] = *most;
  const int64_t context = options.integer("num_ctx", 1, INT32_MAX).value_or(served);
  if (context > served)
    throw ApiError(400, "invalid_request_error",
                   fmt::format("'num_ctx' is {}, and the context of this server holds {} tokens: ask for at most that, "
                               "or serve with -c {}",
                               context, served, context),
                   "num_ctx", "context_length_exceeded");
  options.neutral("tfs_z", 1);
  options.neutral("penalize_newline", true);
  // How the server runs a model is its operator's to say; nothing here ever shifts a context.
  options.ignore({"num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv",
                  "logits_all", "vocab_only", "use_mmap", "use_mlock", "embedding_only"});
  options.refuse_rest();
  return context;
}

int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

Json ollama_error(const ApiError& error) {
  return {{"error", error.what()}};
}

void add_ollama_routes(Router& router, const Services& services) {
  router.add(
      "POST", "/api/chat", [services](HttpRequest& r) { return chat(services, r); }, ollama_error);
  router.add(
      "POST", "/api/generate", [services](HttpRequest& r) { return generate(services, r); }, ollama_error);
  add_ollama_model_routes(router, services);
}

}  // namespace tern::server
