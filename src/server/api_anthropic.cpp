// Anthropic's API: /v1/messages, /v1/messages/count_tokens. What it asks is put into OpenAI's words, which chat_core
// reads.
#include <fmt/format.h>

#include "server/apis.h"

namespace tern::server {
namespace {

Json anthropic_error(const ApiError& error) {
  std::string type = error.type;
  if (error.status == 413) type = "request_too_large";
  if (error.status == 429) type = "rate_limit_error";
  if (error.status == 500) type = "api_error";
  if (error.status == 503) type = "overloaded_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}};
}

std::string string_in(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string())
    throw bad_request(where, fmt::format("{} must have a string '{}'", where, key));
  return object[key].get<std::string>();
}

/// A string, or blocks that are all text.
std::string text_of(const Json& content, const std::string& where) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw bad_request(where, fmt::format("{} must be a string or an array of blocks", where));
  std::string text;
  for (const Json& block : content) {
    const std::string type = string_in(block, "type", where);
    if (type != "text")
      throw bad_request(where, fmt::format("{} has a block of type '{}': this model reads text only", where, type));
    text += string_in(block, "text", where);
  }
  return text;
}

/// Appends one message, as one or several of OpenAI's: results of tools come before what the user says with them.
void add_message(Json& out, const Json& message, const std::string& where) {
  const std::string role = string_in(message, "role", where);
  if (role != "user" && role != "assistant" && role != "system")  // some clients put reminders of the system in between
    throw bad_request(where, fmt::format("the role of {} must be user or assistant, not '{}'", where, role));
  const Json content = message.value("content", Json(nullptr));
  if (!content.is_array()) {
    out.push_back({{"role", role}, {"content", text_of(content, where)}});
    return;
  }
  std::string text, thinking;
  Json calls = Json::array();
  bool answers_tools = false;
  for (const Json& block : content) {
    const std::string type = string_in(block, "type", where);
    if (type == "text") {
      text += string_in(block, "text", where);
    } else if (type == "thinking" && role == "assistant") {
      thinking += string_in(block, "thinking", where);
    } else if (type == "tool_use" && role == "assistant") {
      calls.push_back(
          {{"id", string_in(block, "id", where)},
           {"type", "function"},
           {"function",
            {{"name", string_in(block, "name", where)}, {"arguments", dump(block.value("input", Json::object()))}}}});
    } else if (type == "tool_result" && role == "user") {
      answers_tools = true;
      out.push_back({{"role", "tool"},
                     {"tool_call_id", string_in(block, "tool_use_id", where)},
                     {"content", text_of(block.value("content", Json(nullptr)), where)}});
    } else {
      throw bad_request(where, fmt::format("{} has a block of type '{}', which this model does not read from the {}",
                                           where, type, role));
    }
  }
  if (answers_tools && text.empty()) return;
  Json one{{"role", role}, {"content", text}};
  if (!thinking.empty()) one["reasoning_content"] = thinking;
  if (!calls.empty()) one["tool_calls"] = std::move(calls);
  out.push_back(std::move(one));
}

Json messages_of(Body& body) {
  Json out = Json::array();
  if (const Json* system = body.any("system"))
    out.push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
  const Json* messages = body.array("messages");
  if (!messages || messages->empty()) throw bad_request("messages", "'messages' must be an array of at least one");
  for (size_t i = 0; i < messages->size(); ++i) add_message(out, (*messages)[i], fmt::format("messages[{}]", i));
  if (out.back()["role"] == "assistant")
    throw bad_request("messages", "the last message must be the user's: tern does not continue a begun answer");
  return out;
}

void put_tools(Body& body, Json& chat) {
  if (const Json* tools = body.array("tools"))
    for (const Json& tool : *tools) {
      if (tool.is_object() && tool.value("type", Json("custom")) != "custom")
        throw bad_request("tools", "'tools' may have custom tools only: tern runs none itself");
      Json function{{"name", string_in(tool, "name", "tools")}};
      if (tool.contains("description")) function["description"] = tool["description"];
      function["parameters"] = tool.value("input_schema", Json::object());
      chat["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  const Json* choice = body.object("tool_choice");
  if (!choice) return;
  const std::string type = string_in(*choice, "type", "tool_choice");
  if (type == "tool")
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", string_in(*choice, "name", "tool_choice")}}}};
  else if (type == "auto" || type == "any" || type == "none")
    chat["tool_choice"] = type == "any" ? "required" : type;
  else
    throw bad_request("tool_choice", "the type of 'tool_choice' must be auto, any, tool or none");
  if (const Json one = choice->value("disable_parallel_tool_use", Json(false)); one.is_boolean())
    chat["parallel_tool_calls"] = !one.get<bool>();
  else
    throw bad_request("tool_choice", "'disable_parallel_tool_use' must be true or false");
}

/// What messages and count_tokens have in common.
Json conversation(Body& body) {
  Json chat{{"messages", messages_of(body)}};
  put_tools(body, chat);
  if (const Json* thinking = body.object("thinking")) {
    const std::string type = string_in(*thinking, "type", "thinking");
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      throw bad_request("thinking", "the type of 'thinking' must be enabled, adaptive or disabled");
    chat["enable_thinking"] = type != "disabled";
    if (thinking->contains("budget_tokens")) chat["thinking_budget"] = (*thinking)["budget_tokens"];
  }
  body.ignore({"metadata", "service_tier", "cache_control"});
  return chat;
}

class MessagesSource final : public GenerationSource {
 public:
  using GenerationSource::GenerationSource;

 private:
  using Kind = text::ReplyDelta::Kind;

  ErrorEnvelope envelope() const override { return anthropic_error; }
  std::string idle() override { return typed_sse({{"type", "ping"}}); }

  const Choice& choice() const { return generation().choices().front(); }

  Json usage_json() const {
    const int64_t cached = choice().ending.cached_tokens;
    return {{"input_tokens", generation().prompt_tokens() - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", choice().ended ? choice().ending.generated_tokens : choice().generated}};
  }
  Json message(Json content) const {
    return {{"id", generation().id()},       {"type", "message"},
            {"role", "assistant"},           {"model", generation().model().name},
            {"content", std::move(content)}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr},      {"usage", usage_json()}};
  }
  /// Sets stop_reason and stop_sequence. An answer that was cancelled has no reason.
  void put_end(Json& out) const {
    const std::string_view reason = finish_reason(choice());
    const std::string& stop = choice().ending.stop;
    if (reason == "length") out["stop_reason"] = "max_tokens";
    if (reason == "tool_calls") out["stop_reason"] = "tool_use";
    if (reason == "stop") out["stop_reason"] = stop.empty() ? "end_turn" : "stop_sequence";
    if (reason == "stop" && !stop.empty()) out["stop_sequence"] = stop;
  }

  void close_block(std::string& out) {
    if (open_) out += typed_sse({{"type", "content_block_stop"}, {"index", index_}});
    open_ = false;
  }
  void open_block(const text::ReplyDelta& delta, std::string& out) {
    if (open_ && kind_ == delta.kind && call_ == delta.call) return;
    close_block(out);
    open_ = true;
    kind_ = delta.kind;
    call_ = delta.call;
    Json block{{"type", "text"}, {"text", ""}};
    if (kind_ == Kind::kReasoning) block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    if (kind_ == Kind::kToolCall)
      block = {{"type", "tool_use"}, {"id", delta.id}, {"name", delta.name}, {"input", Json::object()}};
    out += typed_sse({{"type", "content_block_start"}, {"index", ++index_}, {"content_block", std::move(block)}});
  }

  void begin(std::string& out) override {
    out += typed_sse({{"type", "message_start"}, {"message", message(Json::array())}});
    out += typed_sse({{"type", "ping"}});
  }
  void event(const GenerationEvent& event, std::string& out) override {
    for (const text::ReplyDelta& delta : event.deltas) {
      open_block(delta, out);
      if (delta.text.empty()) continue;
      Json change{{"type", "text_delta"}, {"text", delta.text}};
      if (kind_ == Kind::kReasoning) change = {{"type", "thinking_delta"}, {"thinking", delta.text}};
      if (kind_ == Kind::kToolCall) change = {{"type", "input_json_delta"}, {"partial_json", delta.text}};
      out += typed_sse({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(change)}});
    }
  }
  void finish(std::string& out) override {
    close_block(out);
    if (choice().ending.reason == EndReason::kFailed) {
      out += typed_sse(anthropic_error(error_of(choice().ending.failure)));
      return;
    }
    Json delta{{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
    put_end(delta);
    out += typed_sse({{"type", "message_delta"}, {"delta", std::move(delta)}, {"usage", usage_json()}});
    out += typed_sse({{"type", "message_stop"}});
  }
  HttpResponse complete() override {
    Json content = Json::array();
    const Choice& answer = choice();
    if (!answer.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", ""}});
    if (!answer.content.empty()) content.push_back({{"type", "text"}, {"text", answer.content}});
    for (const ToolCall& call : answer.calls) {
      Json input = Json::parse(call.arguments, nullptr, false);
      if (input.is_discarded()) continue;  // cut by max_tokens: nobody may run half a call
      content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
    }
    Json out = message(std::move(content));
    put_end(out);
    return json_response(out);
  }

  bool open_ = false;
  Kind kind_ = Kind::kContent;
  int32_t call_ = -1, index_ = -1;
};

Reply messages(const Services& services, HttpRequest& http) {
  Body body(http.body);
  ServedPtr model = services.models.find(body.string("model").value_or(""));
  Json chat = conversation(body);
  const auto most = body.integer("max_tokens", 1, INT32_MAX);
  if (!most) throw bad_request("max_tokens", "'max_tokens' is missing");
  chat["max_tokens"] = *most;
  for (const char* same : {"temperature", "top_p", "top_k"})
    if (const Json* value = body.any(same)) chat[same] = *value;
  if (const Json* stops = body.array("stop_sequences")) chat["stop"] = *stops;
  const bool streamed = body.boolean("stream").value_or(false);
  body.refuse_rest();
  ChatRequest request = read_chat(std::move(chat), *model);
  auto generation = begin_chat(services, std::move(model), std::move(request), "msg_");
  return reply_with(std::make_shared<MessagesSource>(std::move(generation), streamed), streamed);
}

Reply count_tokens(const Services& services, HttpRequest& http) {
  Body body(http.body);
  const ServedPtr model = services.models.find(body.string("model").value_or(""));
  Json chat = conversation(body);
  body.refuse_rest();
  return json_response({{"input_tokens", render_chat(*model, read_chat(std::move(chat), *model)).tokens.size()}});
}

}  // namespace

void add_anthropic_routes(Router& router, const Services& services) {
  router.add(
      "POST", "/v1/messages", [services](HttpRequest& r) { return messages(services, r); }, anthropic_error);
  router.add(
      "POST", "/v1/messages/count_tokens", [services](HttpRequest& r) { return count_tokens(services, r); },
      anthropic_error);
}

}  // namespace tern::server
