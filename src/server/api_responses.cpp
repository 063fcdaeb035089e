// OpenAI's /v1/responses. What it asks is put into the words of chat completions, which chat_core reads; nothing is
// stored, so that a conversation comes whole with every request.
#include <fmt/format.h>

#include <array>

#include "server/apis.h"

namespace tern::server {
namespace {

using Kind = text::ReplyDelta::Kind;

// ---- What is asked ----

std::string string_in(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key) || !object[key].is_string())
    throw bad_request("input", fmt::format("{} must have a string '{}'", where, key));
  return object[key].get<std::string>();
}

/// The thoughts of a reasoning item, as far as they are there to read.
std::string reasoning_text(const Json& item) {
  std::string text;
  for (const char* key : {"content", "summary"}) {
    if (!text.empty() || !item.contains(key) || !item[key].is_array()) continue;
    for (const Json& part : item[key])
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// Items become messages: calls join the assistant's message before them, thoughts the one behind them.
class Conversation {
 public:
  void add(const Json& item, const std::string& where) {
    if (!item.is_object()) throw bad_request("input", fmt::format("{} must be an object", where));
    const std::string type = item.contains("type") ? string_in(item, "type", where) : "message";
    if (type == "message") {
      add_message(string_in(item, "role", where), item.value("content", Json()));
    } else if (type == "reasoning") {
      thoughts_ += reasoning_text(item);
    } else if (type == "function_call") {
      if (messages_.empty() || messages_.back()["role"] != "assistant" || !thoughts_.empty())
        add_message("assistant", "");
      messages_.back()["tool_calls"].push_back(
          {{"id", string_in(item, "call_id", where)},
           {"type", "function"},
           {"function",
            {{"name", string_in(item, "name", where)}, {"arguments", string_in(item, "arguments", where)}}}});
    } else if (type == "function_call_output") {
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", string_in(item, "call_id", where)},
                           {"content", item.value("output", Json())}});
    } else {
      throw bad_request("input", fmt::format("{} is of type '{}', which this model does not read", where, type));
    }
  }
  void add_message(const std::string& role, Json content) {
    Json message{{"role", role}, {"content", std::move(content)}};
    if (role == "assistant" && !thoughts_.empty()) message["reasoning_content"] = std::exchange(thoughts_, {});
    messages_.push_back(std::move(message));
  }
  Json take() { return std::move(messages_); }

 private:
  Json messages_ = Json::array();
  std::string thoughts_;
};

Json messages_of(Body& body) {
  Conversation conversation;
  if (const auto instructions = body.string("instructions")) conversation.add_message("system", *instructions);
  const Json& input = body.required("input");
  if (input.is_string()) {
    conversation.add_message("user", input);
  } else if (input.is_array() && !input.empty()) {
    for (size_t i = 0; i < input.size(); ++i) conversation.add(input[i], fmt::format("input[{}]", i));
  } else {
    throw bad_request("input", "'input' must be a string or an array of at least one item");
  }
  return conversation.take();
}

void put_tools(Body& body, Json& chat) {
  if (const Json* tools = body.array("tools"))
    for (const Json& tool : *tools) {
      if (!tool.is_object() || tool.value("type", Json()) != "function")
        throw bad_request("tools", "'tools' may have functions only: tern runs none itself");
      Json function = tool;
      function.erase("type");
      function.erase("strict");
      chat["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  if (const Json* choice = body.any("tool_choice")) {
    chat["tool_choice"] = *choice;
    if (choice->is_object() && choice->contains("name"))
      chat["tool_choice"] = {{"type", choice->value("type", Json())}, {"function", {{"name", (*choice)["name"]}}}};
  }
}

void put_text_and_reasoning(Body& body, Json& chat) {
  if (const Json* text = body.object("text"); text && text->contains("format")) {
    Json format = (*text)["format"];
    if (format.is_object() && format.value("type", Json()) == "json_schema")
      format = {{"type", "json_schema"}, {"schema", format.value("schema", Json())}};
    chat["response_format"] = std::move(format);
  }
  if (const Json* reasoning = body.object("reasoning"); reasoning && reasoning->contains("effort"))
    chat["reasoning_effort"] = (*reasoning)["effort"];
}

/// The request in the words of chat completions.
Json chat_of(Body& body) {
  Json chat{{"messages", messages_of(body)}};
  put_tools(body, chat);
  put_text_and_reasoning(body, chat);
  if (const auto most = body.integer("max_output_tokens", 1, INT32_MAX)) chat["max_tokens"] = *most;
  for (const char* same :
       {"parallel_tool_calls", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty",
        "frequency_penalty", "repeat_penalty", "enable_thinking", "thinking_budget", "chat_template_kwargs", "grammar"})
    if (const Json* value = body.any(same)) chat[same] = *value;
  if (const Json* include = body.array("include"))
    for (const Json& what : *include)  // thoughts are told in the open
      if (what != "reasoning.encrypted_content")
        throw bad_request("include", fmt::format("'include' may not ask for {}", what.dump()));
  for (const char* kept : {"previous_response_id", "conversation", "prompt"})
    if (body.any(kept))
      throw bad_request(kept, fmt::format("'{}' refers to what was stored, and this server stores nothing: send the "
                                          "whole conversation as 'input'",
                                          kept));
  body.neutral("store", false);
  body.neutral("background", false);
  body.neutral("truncation", "disabled");
  body.neutral("top_logprobs", 0);
  body.ignore({"metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier",
               "stream_options", "max_tool_calls"});
  return chat;
}

/// The parameter here that became one of chat completions.
std::string own_name(const std::string& param) {
  constexpr std::array<std::pair<std::string_view, const char*>, 4> kNames{{{"messages", "input"},
                                                                            {"max_tokens", "max_output_tokens"},
                                                                            {"response_format", "text"},
                                                                            {"reasoning_effort", "reasoning"}}};
  for (const auto& [theirs, ours] : kNames)
    if (param == theirs) return ours;
  return param;
}

// ---- What is told ----

/// What of the request a response repeats.
Json echo(Body& body, const ChatRequest& request) {
  const auto given = [&](const char* key, Json otherwise) {
    const Json* value = body.any(key);
    return value ? *value : std::move(otherwise);
  };
  const SamplerOptions& sampling = request.options.request.sampling;
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", request.parallel_calls},
          {"previous_response_id", nullptr},
          {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", false},
          {"temperature", given("temperature", sampling.temperature)},
          {"text", given("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", Json::array())},
          {"top_p", given("top_p", sampling.top_p)},
          {"truncation", "disabled"}};
}

/// One item of the output.
struct Item {
  Kind kind = Kind::kContent;
  std::string id{}, call_id{}, name{}, text{};
  int32_t call = -1;
};

Json part_json(const Item& item) {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"}, {"text", item.text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

/// `begun`: with its parts, else as it is announced.
Json item_json(const Item& item, const char* status, bool begun) {
  const Json parts = begun ? Json::array({part_json(item)}) : Json::array();
  switch (item.kind) {
    case Kind::kReasoning:
      return {
          {"id", item.id}, {"type", "reasoning"}, {"status", status}, {"summary", Json::array()}, {"content", parts}};
    case Kind::kToolCall:
      return {{"id", item.id},           {"type", "function_call"}, {"status", status},
              {"call_id", item.call_id}, {"name", item.name},       {"arguments", item.text}};
    case Kind::kContent:
      break;
  }
  return {{"id", item.id}, {"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", parts}};
}

class ResponsesSource final : public GenerationSource {
 public:
  ResponsesSource(std::shared_ptr<Generation> generation, bool streamed, Json echo)
      : GenerationSource(std::move(generation), streamed), echo_(std::move(echo)) {}

 private:
  const Choice& choice() const { return generation().choices().front(); }

  std::string told(const char* type, Json data) {
    Json event{{"type", type}, {"sequence_number", sequence_++}};
    event.update(data);
    return typed_sse(event);
  }
  /// Of a part of the open item.
  std::string told_of_item(const char* type, Json data, bool of_part = true) {
    Json all{{"item_id", item_->id}, {"output_index", output_.size()}};
    if (of_part) all["content_index"] = 0;
    all.update(data);
    return told(type, std::move(all));
  }

  Json response(const char* status) const {
    Json out{{"id", generation().id()},
             {"object", "response"},
             {"created_at", generation().created()},
             {"status", status},
             {"error", nullptr},
             {"incomplete_details", nullptr},
             {"model", generation().model().name},
             {"output", output_}};
    out.update(echo_);
    out["usage"] = nullptr;
    return out;
  }
  /// The response at its end, when all items are in `output_`.
  Json ended() const {
    const std::string_view reason = finish_reason(choice());
    Json out = response(reason == "length"      ? "incomplete"
                        : reason == "error"     ? "failed"
                        : reason == "cancelled" ? "cancelled"
                                                : "completed");
    if (reason == "length") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (reason == "error") {
      const ApiError error = error_of(choice().ending.failure);
      out["error"] = {{"code", error.status == 400 ? "invalid_prompt" : "server_error"}, {"message", error.what()}};
    }
    const Json used = usage(generation());
    out["usage"] = {{"input_tokens", used["prompt_tokens"]},
                    {"input_tokens_details", used["prompt_tokens_details"]},
                    {"output_tokens", used["completion_tokens"]},
                    {"output_tokens_details", used["completion_tokens_details"]},
                    {"total_tokens", used["total_tokens"]}};
    return out;
  }
  std::string item_id(Kind kind) const {
    const char* prefix = kind == Kind::kContent ? "msg" : kind == Kind::kReasoning ? "rs" : "fc";
    return fmt::format("{}_{}_{}", prefix, generation().id().substr(5), output_.size());
  }

  void open(const text::ReplyDelta& delta, std::string& out) {
    if (item_ && item_->kind == delta.kind && item_->call == delta.call) return;
    close("completed", out);
    item_ = Item{
        .kind = delta.kind, .id = item_id(delta.kind), .call_id = delta.id, .name = delta.name, .call = delta.call};
    out += told("response.output_item.added",
                {{"output_index", output_.size()}, {"item", item_json(*item_, "in_progress", false)}});
    if (item_->kind != Kind::kToolCall)
      out += told_of_item("response.content_part.added", {{"part", part_json(*item_)}});
  }
  void close(const char* status, std::string& out) {
    if (!item_) return;
    if (item_->kind == Kind::kToolCall) {
      out += told_of_item("response.function_call_arguments.done", {{"arguments", item_->text}}, false);
    } else {
      const bool thought = item_->kind == Kind::kReasoning;
      Json data{{"text", item_->text}};
      if (!thought) data["logprobs"] = Json::array();
      out += told_of_item(thought ? "response.reasoning_text.done" : "response.output_text.done", std::move(data));
      out += told_of_item("response.content_part.done", {{"part", part_json(*item_)}});
    }
    Json item = item_json(*item_, status, true);
    out += told("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    item_.reset();
  }

  void begin(std::string& out) override {
    for (const char* type : {"response.created", "response.in_progress"})
      out += told(type, {{"response", response("in_progress")}});
  }
  void event(const GenerationEvent& event, std::string& out) override {
    for (const text::ReplyDelta& delta : event.deltas) {
      open(delta, out);
      if (delta.text.empty()) continue;
      item_->text += delta.text;
      Json data{{"delta", delta.text}};
      if (item_->kind == Kind::kToolCall) {
        out += told_of_item("response.function_call_arguments.delta", std::move(data), false);
      } else if (item_->kind == Kind::kReasoning) {
        out += told_of_item("response.reasoning_text.delta", std::move(data));
      } else {
        data["logprobs"] = Json::array();
        out += told_of_item("response.output_text.delta", std::move(data));
      }
    }
  }
  void finish(std::string& out) override {
    const std::string_view reason = finish_reason(choice());
    const bool whole = reason == "stop" || reason == "tool_calls";
    close(whole ? "completed" : "incomplete", out);
    out += told(whole               ? "response.completed"
                : reason == "error" ? "response.failed"
                                    : "response.incomplete",
                {{"response", ended()}});
  }
  HttpResponse complete() override {
    const Choice& answer = choice();
    const auto add = [&](Item item, bool last) {
      item.id = item_id(item.kind);
      const bool cut = last && answer.ending.reason == EndReason::kLength;
      output_.push_back(item_json(item, cut ? "incomplete" : "completed", true));
    };
    const bool says = !answer.content.empty();
    if (!answer.reasoning.empty())
      add({.kind = Kind::kReasoning, .text = answer.reasoning}, !says && answer.calls.empty());
    if (says) add({.kind = Kind::kContent, .text = answer.content}, answer.calls.empty());
    for (const ToolCall& call : answer.calls)
      add({.kind = Kind::kToolCall, .call_id = call.id, .name = call.name, .text = call.arguments},
          &call == &answer.calls.back());
    return json_response(ended());
  }

  const Json echo_;
  Json output_ = Json::array();  // items that have ended
  std::optional<Item> item_;
  int64_t sequence_ = 0;
};

Reply responses(const Services& services, HttpRequest& http) {
  Body body(http.body);
  ServedPtr model = services.models.find(body.string("model").value_or(""));
  Json chat = chat_of(body);
  const bool stream = body.boolean("stream").value_or(false);
  body.refuse_rest();
  try {
    ChatRequest request = read_chat(std::move(chat), *model);
    Json repeated = echo(body, request);
    auto generation = begin_chat(services, std::move(model), std::move(request), "resp_");
    return reply_with(std::make_shared<ResponsesSource>(std::move(generation), stream, std::move(repeated)), stream);
  } catch (...) {
    ApiError error = current_error();
    error.param = own_name(error.param);
    throw error;
  }
}

}  // namespace

void add_responses_routes(Router& router, const Services& services) {
  router.add("POST", "/v1/responses", [services](HttpRequest& r) { return responses(services, r); });
}

}  // namespace tern::server
