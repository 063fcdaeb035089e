// What the answer of a chat is held to: that it calls a tool or takes a format, whether it thinks and how long.
#pragma once
#include "server/chat_core.h"

namespace tern::server {

// Fields of a request; ApiError names the one that is wrong.

/// tool_choice and parallel_tool_calls, when `tools` have been read.
void read_tool_choice(Body& body, ChatRequest& request);
/// reasoning_effort, enable_thinking, budgets of thinking, chat_template_kwargs.
void read_reasoning(Body& body, ChatRequest& request);

/// Fills `prompt`, whose text is the rendered conversation, but for its tokens: closes a thought that the template has
/// opened and nobody wants, makes the grammar, and says how the answer is taken apart.
void hold_answer(const ServedModel& model, const ChatRequest& request, ChatPrompt& prompt);

}  // namespace tern::server
