#include "server/chat_rules.h"

#include <fmt/format.h>

#include <random>

#include "base/error.h"
#include "text/call_grammar.h"
#include "text/json_schema.h"

namespace tern::server {
namespace {

using Calls = ChatRequest::Calls;
using text::ToolSyntax;

/// The tools that a forced call may be of.
Json callable(const ChatRequest& request) {
  if (request.call_name.empty()) return request.tools;
  Json out = Json::array();
  for (const Json& tool : request.tools)
    if (tool["function"]["name"] == request.call_name) out.push_back(tool);
  return out;
}

bool forced(const ChatRequest& request) {
  return request.calls == Calls::kRequired;
}

bool may_call(const ChatRequest& request) {
  return !request.tools.is_null() && request.calls != Calls::kNone;
}

/// A call, a format, or either where both may be; null when nothing was asked for.
std::shared_ptr<const text::Grammar> grammar_of(const ServedModel& model, const ChatRequest& request) {
  const ToolSyntax syntax = model.reply_format.tools;
  const text::Tokenizer& tokenizer = model.tokenizer();
  const GenerationOptions& options = request.options;
  if (forced(request) && options.own_grammar)
    throw bad_request("grammar", "'grammar' and a 'tool_choice' that asks for a call cannot both hold: leave one out");
  const auto calls = [&] {
    const Json tools = callable(request);
    return text::gbnf_of_calls(text::syntax_of_forced_calls(syntax), tools, request.parallel_calls, tokenizer);
  };
  try {
    if (forced(request)) return text::Grammar::from_gbnf(calls().append(text::gbnf_common_rules()), "calls");
  } catch (const Error& error) {
    throw bad_request("tools", error.what());
  }
  if (!options.request.grammar) return nullptr;
  const bool either = may_call(request) && !options.own_grammar && syntax != ToolSyntax::kNone;
  if (!either && syntax != ToolSyntax::kHarmony) return options.request.grammar;
  std::string rules = options.grammar_text + "\nanswer ::= " + text::gbnf_of_content(syntax, "root", tokenizer);
  try {
    if (either) rules += " | calls\n" + calls();
  } catch (const Error& error) {
    throw bad_request("tools", error.what());
  }
  return text::Grammar::from_gbnf(rules, "answer");
}

bool ends_inside_thinking(const std::string& text, const text::ReplyFormat& format) {
  if (format.think_open.empty()) return false;
  const size_t last = text.find_last_not_of(" \n\r\t");
  return last != text.npos && std::string_view(text).substr(0, last + 1).ends_with(format.think_open);
}

std::vector<int32_t> tokens_of(const text::Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

/// Thoughts of gpt-oss are messages of their own.
Thinking channel_thinking(const ServedModel& model, const ChatRequest& request, bool held) {
  const text::Tokenizer& tokenizer = model.tokenizer();
  Thinking out{.open = "<|channel|>analysis<|message|>", .close = "<|end|>"};
  out.open_tokens = tokens_of(tokenizer, out.open);
  // What follows is the grammar's; without one it is the answer, unless it may be a call.
  std::string end = out.close;
  if (!held) end += may_call(request) ? "<|start|>assistant" : "<|start|>assistant<|channel|>final<|message|>";
  out.close_tokens = tokens_of(tokenizer, end);
  if (held) out.start = Thinking::Start::kForced;
  return out;
}

/// Nothing when nobody needs to know where a thought ends.
std::optional<Thinking> thinking_of(const ServedModel& model, const ChatRequest& request, const ChatPrompt& prompt) {
  const text::ReplyFormat& format = model.reply_format;
  const text::Tokenizer& tokenizer = model.tokenizer();
  const bool harmony = format.tools == ToolSyntax::kHarmony, held = prompt.grammar != nullptr;
  const bool off = request.enable_thinking == false;
  if (!held && request.thinking_budget < 0 && !(off && harmony)) return std::nullopt;
  if (off && (held || !harmony)) return std::nullopt;  // the prompt has closed it, or its token is banned
  Thinking out;
  if (harmony) {
    out = channel_thinking(model, request, held);
  } else {
    if (format.think_close.empty()) return std::nullopt;
    out.open = format.think_open;
    out.close = format.think_close;
    out.close_tokens = tokens_of(tokenizer, "\n" + out.close + "\n\n");
    if (const auto token = tokenizer.find(out.open)) out.open_tokens = {*token};
    for (const char* blank : {"\n", "\n\n"})
      if (const auto tokens = tokens_of(tokenizer, blank); tokens.size() == 1) out.gap_tokens.push_back(tokens[0]);
    if (prompt.reply.in_reasoning) out.start = Thinking::Start::kInside;
    // A thought that does not begin with one token cannot be told from what the grammar holds.
    if (held && !prompt.reply.in_reasoning && out.open_tokens.empty()) return std::nullopt;
  }
  out.budget = off ? 0 : request.thinking_budget;
  return out;
}

}  // namespace

void read_tool_choice(Body& body, ChatRequest& request) {
  request.parallel_calls = body.boolean("parallel_tool_calls").value_or(true);
  const Json* choice = body.any("tool_choice");
  if (!choice || *choice == "auto") return;
  if (*choice == "none") {
    request.calls = Calls::kNone;
    return;
  }
  request.calls = Calls::kRequired;
  if (choice->is_object() && choice->value("type", Json()) == "function") {
    const Json& named = choice->contains("function") ? (*choice)["function"] : *choice;
    if (named.is_object() && named.contains("name") && named["name"].is_string()) request.call_name = named["name"];
  }
  if (request.call_name.empty() && *choice != "required" && *choice != "any")
    throw bad_request(
        "tool_choice",
        R"('tool_choice' may be auto, none, required or {"type": "function", "function": {"name": ...}})");
  if (request.tools.is_null())
    throw bad_request("tool_choice", "'tool_choice' asks for a call, and there are no 'tools'");
  if (callable(request).empty())
    throw bad_request("tool_choice",
                      fmt::format("'tool_choice' names '{}', which is none of the tools", request.call_name));
}

void read_reasoning(Body& body, ChatRequest& request) {
  if (const auto effort = body.string("reasoning_effort")) {
    request.enable_thinking = *effort != "none";
    if (*effort != "none") request.template_variables["reasoning_effort"] = *effort;
  }
  if (const auto think = body.boolean("enable_thinking")) request.enable_thinking = *think;
  if (const Json* variables = body.object("chat_template_kwargs"))
    for (const auto& [key, value] : variables->items()) {
      request.template_variables[key] = value;
      if (key == "enable_thinking" && value.is_boolean()) request.enable_thinking = value.get<bool>();
    }
  for (const char* name : {"thinking_budget", "thinking_budget_tokens", "reasoning_budget"})
    if (const auto budget = body.integer(name, -1, INT32_MAX)) request.thinking_budget = *budget;
  if (request.thinking_budget == 0) request.enable_thinking = false;
  if (const auto format = body.string("reasoning_format"); format && *format != "auto" && *format != "deepseek")
    throw bad_request("reasoning_format",
                      "'reasoning_format' must be auto or deepseek: thinking is told as reasoning_content");
}

void hold_answer(const ServedModel& model, const ChatRequest& request, ChatPrompt& prompt) {
  const text::ReplyFormat& format = model.reply_format;
  const bool off = request.enable_thinking == false;
  bool inside = ends_inside_thinking(prompt.text, format);
  if (inside && off) {  // a template that knows no other way: an empty thought, as others write it
    prompt.text += prompt.text.ends_with('\n') ? "\n" + format.think_close + "\n\n" : format.think_close;
    inside = false;
  }
  if (const auto open = off ? model.tokenizer().find(format.think_open) : std::nullopt) prompt.banned.push_back(*open);
  prompt.reply = {.in_reasoning = inside,
                  .parse_tools = may_call(request),
                  .call_forced = forced(request),
                  .tools = may_call(request) ? request.tools : Json(nullptr),
                  .id_seed = std::random_device{}()};
  prompt.grammar = grammar_of(model, request);
  prompt.thinking = thinking_of(model, request, prompt);
}

}  // namespace tern::server
