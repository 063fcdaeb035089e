// Takes an answer apart while it streams: what the model thought, what it says, which tools it calls. The form is
// probed from the model's own chat template, never from the name a model is served under.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace tern::text {

/// How a model writes tool calls.
enum class ToolSyntax : uint8_t {
  kNone,
  kHermesJson,      // <tool_call>{"name": ..., "arguments": ...}</tool_call>
  kQwenXml,         // <tool_call><function=...><parameter=...>
  kLlama3,          // {"name": ..., "parameters": ...}
  kMistral,         // [TOOL_CALLS] and a list in JSON
  kMistralArgs,     // [TOOL_CALLS]name[ARGS]{...}
  kHarmony,         // channels of gpt-oss
  kDeepSeek,        // <｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}
  kDeepSeekFenced,  // the same with ```json around the arguments
  kPlainJson        // {"name": ..., "arguments": ...}
};

struct ReplyFormat {
  ToolSyntax tools = ToolSyntax::kNone;
  std::string think_open, think_close;  // "<think>", "</think>"; empty: the model has no such block
};
/// From the source of a template and what it renders for probe conversations.
ReplyFormat probe_reply_format(const ChatTemplate& chat_template, std::string_view source);

/// A piece of an answer. Pieces of one tool call share `call`; the first has id and name, all arguments concatenated
/// are the JSON text of an object.
struct ReplyDelta {
  enum class Kind : uint8_t { kContent, kReasoning, kToolCall } kind = Kind::kContent;
  std::string text{};        // of content and reasoning; the arguments of a call
  int32_t call = -1;         // index of the call, from 0
  std::string id{}, name{};  // of a call, in its first piece
};

struct ReplyOptions {
  bool in_reasoning = false;  // the prompt ended inside an open thinking block
  bool parse_tools = true;    // false: markup of calls is content
  bool call_forced = false;   // a grammar asks for a call (call_grammar.h)
  /// Tools of the request, as in OpenAI's API: types of parameters decide how XML values are read. May be null.
  nlohmann::ordered_json tools = nullptr;
  uint64_t id_seed = 0;  // makes the ids of calls
};

/// One an answer. Never fails: what is no well-formed call comes out as content, whole.
class ReplyParser {
 public:
  ReplyParser(const ReplyFormat& format, const ReplyOptions& options);
  ~ReplyParser();
  ReplyParser(ReplyParser&&) noexcept;
  /// `text`: valid UTF-8, control tokens spelled out.
  std::vector<ReplyDelta> push(std::string_view text);
  /// `cut`: the answer did not end by itself (its length, a cancel). A call that is still open then stays open, its
  /// arguments no whole JSON, so that nobody runs half of one; otherwise what is missing is closed.
  std::vector<ReplyDelta> finish(bool cut = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::text
