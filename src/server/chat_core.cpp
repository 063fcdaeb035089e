#include "server/chat_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "server/chat_rules.h"

namespace tern::server {
namespace {

/// The text of a message: a string, or the text parts of an array.
std::string text_of(const Json& content, const std::string& where) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    throw bad_request("messages", fmt::format("the content of {} must be a string or an array of parts", where));
  std::string text;
  for (const Json& part : content) {
    const bool typed = part.is_object() && part.contains("type") && part["type"].is_string();
    const std::string type = typed ? part["type"].get<std::string>() : "";
    if ((type == "text" || type == "input_text" || type == "output_text" || type == "refusal") &&
        part.contains("text") && part["text"].is_string()) {
      text += part["text"].get_ref<const std::string&>();
    } else {
      throw bad_request("messages", fmt::format("{} has a part of type '{}': this model reads text only", where, type));
    }
  }
  return text;
}

void require_calls(const Json& calls, const std::string& where) {
  const auto wrong = [&] {
    return bad_request("messages",
                       fmt::format("the tool_calls of {} must be an array of functions with a name", where));
  };
  if (!calls.is_array()) throw wrong();
  for (const Json& call : calls)
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !call["function"].contains("name") || !call["function"]["name"].is_string())
      throw wrong();
}

Json normal_message(const Json& message, size_t index, std::map<std::string, std::string>& names_of_calls) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
    throw bad_request("messages", fmt::format("{} must be an object with a role", where));
  Json out = message;
  std::string role = message["role"].get<std::string>();
  if (role == "developer") role = "system";
  out["role"] = role;
  out["content"] = text_of(message.value("content", Json(nullptr)), where);
  if (out.contains("tool_calls")) {
    if (out["tool_calls"].is_null() || out["tool_calls"].empty()) {
      out.erase("tool_calls");
    } else {
      require_calls(out["tool_calls"], where);
      for (const Json& call : out["tool_calls"])
        if (call.contains("id") && call["id"].is_string()) names_of_calls[call["id"]] = call["function"]["name"];
    }
  }
  if (role == "tool" && !out.contains("name") && out.contains("tool_call_id") && out["tool_call_id"].is_string())
    if (const auto it = names_of_calls.find(out["tool_call_id"]); it != names_of_calls.end()) out["name"] = it->second;
  for (const char* other : {"reasoning", "reasoning_text"})
    if (out.contains(other) && out[other].is_string() && !out.contains("reasoning_content")) {
      out["reasoning_content"] = out[other];
      out.erase(other);
    }
  return out;
}

/// For templates that want one system message in front: those in front become one; later ones speak as the user, joined
/// with a neighbour so that turns still alternate.
Json system_in_front(const Json& messages) {
  Json out = Json::array();
  const auto append = [](Json& message, const std::string& text) {
    std::string joined = message["content"].get<std::string>();
    if (!joined.empty() && !text.empty()) joined += "\n\n";
    message["content"] = joined + text;
  };
  for (const Json& message : messages) {
    const std::string role = message["role"];
    const std::string text = message["content"];
    if (role == "system" && out.empty()) {
      out.push_back(message);
    } else if (role == "system" && out.size() == 1 && out[0]["role"] == "system") {
      append(out[0], text);
    } else if ((role == "system" || role == "user") && !out.empty() && out.back()["role"] == "user") {
      append(out.back(), text);
    } else {
      out.push_back(message);
      if (role == "system") out.back()["role"] = "user";
    }
  }
  return out;
}

bool has_later_system(const Json& messages) {
  for (size_t i = 1; i < messages.size(); ++i)
    if (messages[i]["role"] == "system") return true;
  return false;
}

std::string render(const text::ChatTemplate& form, const Json& messages, const text::RenderOptions& options) {
  try {
    return form.render(messages, options);
  } catch (const Error& error) {
    // What one template may use is little: the request is too large, and trying it again would not help.
    if (error.code() == ErrorCode::kOutOfMemory) throw bad_request("messages", error.what());
    // Some templates refuse a system message that is not the first.
    if (!has_later_system(messages)) throw;
    return form.render(system_in_front(messages), options);
  }
}

Json checked_tools(const Json& tools) {
  for (const Json& tool : tools) {
    const bool function = tool.is_object() && tool.value("type", Json("function")) == "function" &&
                          tool.contains("function") && tool["function"].is_object() &&
                          tool["function"].contains("name") && tool["function"]["name"].is_string() &&
                          tool["function"]["name"] != "";
    if (!function)
      throw bad_request(
          "tools", R"(each of 'tools' must be {"type": "function", "function": {"name": ...}}: tern calls no others)");
  }
  return tools.empty() ? Json(nullptr) : tools;
}

/// `wanted`: the context that the request asks for; 0: all there is.
void require_room(const ServedModel& model, size_t tokens, int64_t wanted) {
  const int32_t served = model.scheduler->context();
  const bool less = wanted > 0 && wanted < served;
  const int64_t context = less ? wanted : served;
  if (static_cast<int64_t>(tokens) < context) return;
  ApiError error(400, "invalid_request_error",
                 fmt::format("the prompt has {} tokens, and the context of this {} holds {}, the answer included: "
                             "shorten it, or {}",
                             tokens, less ? "request" : "server", context,
                             less ? "ask for a larger one" : "serve with a larger -c"),
                 "messages", "context_length_exceeded");
  error.details = {{"n_prompt_tokens", tokens}, {"n_ctx", context}};
  throw error;
}

std::shared_ptr<Generation> begin(const Services& services, GenerationJob job, const GenerationOptions& options,
                                  std::string_view prefix) {
  if (job.request.prompt.empty()) throw bad_request("prompt", "the prompt is empty: there is nothing to continue");
  require_room(*job.model, job.request.prompt.size(), options.context);
  if (options.context > 0) {
    const int64_t room = options.context - static_cast<int64_t>(job.request.prompt.size());
    int64_t& most = job.request.max_tokens;
    most = most < 0 ? room : std::min(most, room);
  }
  if (options.choices > job.model->scheduler->capacity())
    throw bad_request("n", fmt::format("'n' is {}, and this server runs and queues at most {} answers: ask for fewer",
                                       options.choices, job.model->scheduler->capacity()));
  job.choices = options.choices;
  job.seed = options.seed.value_or(std::random_device{}());
  job.id = std::string(prefix) + random_id();
  return Generation::begin(std::move(job), services.metrics, services.running);
}

}  // namespace

Json normal_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    throw bad_request("messages", "'messages' must be an array of at least one");
  Json out = Json::array();
  std::map<std::string, std::string> names_of_calls;
  for (size_t i = 0; i < messages.size(); ++i) out.push_back(normal_message(messages[i], i, names_of_calls));
  return out;
}

ChatRequest read_chat(Body& body, const ServedModel& model) {
  ChatRequest request;
  const Json* messages = body.any("messages");
  request.messages = normal_messages(messages ? *messages : Json());
  if (const Json* tools = body.array("tools")) request.tools = checked_tools(*tools);
  read_tool_choice(body, request);
  read_reasoning(body, request);
  request.add_generation_prompt = body.boolean("add_generation_prompt").value_or(true);
  request.options = read_options(body, model);
  if (body.boolean("logprobs").value_or(false)) request.options.request.top_logprobs = 0;
  if (const auto top = body.integer("top_logprobs", 0, 20); top && *top > 0) {
    if (request.options.request.top_logprobs < 0)
      throw bad_request("top_logprobs", "'top_logprobs' needs \"logprobs\": true");
    request.options.request.top_logprobs = static_cast<int32_t>(*top);
  }
  if (const Json* modalities = body.array("modalities"); modalities && *modalities != Json::array({"text"}))
    throw bad_request("modalities", "only the modality text is served");
  return request;
}

ChatRequest read_chat(Json chat, const ServedModel& model) {
  Body body = Body::of(std::move(chat));
  ChatRequest request = read_chat(body, model);
  body.refuse_rest();
  return request;
}

ChatPrompt render_chat(const ServedModel& model, const ChatRequest& request) {
  if (!model.chat_template)
    throw bad_request("messages",
                      fmt::format("{} has no chat template: it cannot chat, only continue a text (/v1/completions), "
                                  "unless it is served with --chat-template-file",
                                  model.name));
  text::RenderOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.enable_thinking = request.enable_thinking;
  options.kwargs = request.template_variables;
  if (request.calls != ChatRequest::Calls::kNone) options.tools = request.tools;
  ChatPrompt prompt;
  prompt.text = render(*model.chat_template, request.messages, options);
  hold_answer(model, request, prompt);
  prompt.tokens = model.tokenizer().encode(
      prompt.text, {.add_special = !model.chat_template->starts_with_bos(prompt.text), .parse_special = true});
  return prompt;
}

std::shared_ptr<Generation> begin_chat(const Services& services, ServedPtr model, ChatRequest request,
                                       std::string_view prefix) {
  ChatPrompt prompt = render_chat(*model, request);
  GenerationJob job{.model = std::move(model), .request = std::move(request.options.request)};
  job.request.prompt = std::move(prompt.tokens);
  job.request.grammar = std::move(prompt.grammar);
  job.request.thinking = std::move(prompt.thinking);
  for (const int32_t token : prompt.banned)
    job.request.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  job.request.show_special = true;  // markup of calls and thinking may be control tokens; the parser takes it out
  job.reply = std::move(prompt.reply);
  job.parallel_calls = request.parallel_calls;
  return begin(services, std::move(job), request.options, prefix);
}

std::shared_ptr<Generation> begin_text(const Services& services, ServedPtr model, GenerationOptions options,
                                       std::vector<int32_t> prompt, std::string_view prefix) {
  GenerationJob job{.model = std::move(model), .request = options.request};
  job.request.prompt = std::move(prompt);
  return begin(services, std::move(job), options, prefix);
}

std::vector<int32_t> prompt_tokens(const ServedModel& model, const Json& prompt, std::string_view param) {
  const text::Tokenizer& tokenizer = model.tokenizer();
  if (prompt.is_string())
    return tokenizer.encode(prompt.get_ref<const std::string&>(), {.add_special = true, .parse_special = true});
  std::vector<int32_t> tokens;
  if (!prompt.is_array())
    throw bad_request(std::string(param), fmt::format("'{}' must be a string or an array of tokens", param));
  for (const Json& part : prompt) {
    if (part.is_string()) {
      const auto more =
          tokenizer.encode(part.get_ref<const std::string&>(), {.add_special = tokens.empty(), .parse_special = true});
      tokens.insert(tokens.end(), more.begin(), more.end());
    } else if (part.is_number_integer() && part >= 0 && part < tokenizer.n_vocab()) {
      tokens.push_back(part.get<int32_t>());
    } else {
      throw bad_request(std::string(param), fmt::format("{} of '{}' is no token: ids are 0..{}", part.dump(), param,
                                                        tokenizer.n_vocab() - 1));
    }
  }
  return tokens;
}

}  // namespace tern::server
