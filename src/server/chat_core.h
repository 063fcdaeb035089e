// From what a client asks to what the engine gets, one path for every API: messages, tools and options in OpenAI's
// words become a prompt in the model's own template, an engine's Request, and a way to read the answer.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/body.h"
#include "server/generation.h"
#include "server/registry.h"

namespace tern::server {

/// How an answer is drawn and what ends it. `request` has all but the prompt.
struct GenerationOptions {
  Request request{};
  int32_t choices = 1;
  std::optional<uint64_t> seed{};
  std::string grammar_text{};  // of request.grammar, in GBNF
  bool own_grammar = false;    // it came as GBNF, not as a format of JSON
  int64_t context = 0;         // where the answer ends, counted with its prompt; 0: max_tokens alone says
  bool stream = false, include_usage = false, return_progress = false;
};

struct ChatRequest {
  Json messages = Json::array();
  Json tools = nullptr;  // as in OpenAI's API
  enum class Calls : uint8_t { kAuto, kNone, kRequired } calls = Calls::kAuto;
  std::string call_name{};  // the tool that is required; empty: any
  bool parallel_calls = true;
  std::optional<bool> enable_thinking{};
  int64_t thinking_budget = -1;  // tokens; < 0: any number
  Json template_variables = Json::object();
  bool add_generation_prompt = true;
  GenerationOptions options{};
};

/// A conversation as the model reads it.
struct ChatPrompt {
  std::string text;
  std::vector<int32_t> tokens;
  text::ReplyOptions reply;  // how to take the answer apart
  // What it is held to.
  std::shared_ptr<const text::Grammar> grammar{};
  std::optional<Thinking> thinking{};
  std::vector<int32_t> banned{};
};

/// The fields that OpenAI's chat, its completions and llama.cpp's endpoints share: sampling, limits, stops, biases,
/// grammars, streaming. `model` has the defaults. Throws ApiError naming the field.
GenerationOptions read_options(Body& body, const ServedModel& model);
/// All fields of /v1/chat/completions but `model`.
ChatRequest read_chat(Body& body, const ServedModel& model);
/// The same of a request of another API, put into OpenAI's words: nothing may be left over.
ChatRequest read_chat(Json chat, const ServedModel& model);

/// Brings messages of any client into the form templates expect: parts of text joined, "developer" as "system", null
/// content as an empty one, names of tools beside their results. ApiError for what is no conversation, or has images.
Json normal_messages(const Json& messages);

/// Renders and tokenises. ApiError when the model has no template, or the conversation fills the context.
ChatPrompt render_chat(const ServedModel& model, const ChatRequest& request);

/// What the routes of all APIs share.
struct Services {
  Registry& models;
  Metrics& metrics;
  Running& running;
};

/// Submits a chat. `prefix` of the id that clients see ("chatcmpl-").
std::shared_ptr<Generation> begin_chat(const Services& services, ServedPtr model, ChatRequest request,
                                       std::string_view prefix);
/// Submits a prompt as it stands: its answer is text.
std::shared_ptr<Generation> begin_text(const Services& services, ServedPtr model, GenerationOptions options,
                                       std::vector<int32_t> prompt, std::string_view prefix);

/// A text, tokens, or a mixed array of both as a prompt; texts are read with BOS and control tokens.
std::vector<int32_t> prompt_tokens(const ServedModel& model, const Json& prompt, std::string_view param);

}  // namespace tern::server
