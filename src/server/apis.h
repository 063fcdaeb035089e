// The APIs that clients speak: each file adds its routes over the shared core.
#pragma once
#include "server/chat_core.h"
#include "server/router.h"

namespace tern::server {

/// /v1/chat/completions, /v1/completions, /v1/models.
void add_openai_routes(Router& router, const Services& services);
/// /completion, /tokenize, /detokenize, /apply-template, /props, /slots, /models, /models/load, /models/unload,
/// /v1/cancel.
void add_llamacpp_routes(Router& router, const Services& services);
/// /v1/responses.
void add_responses_routes(Router& router, const Services& services);
/// /v1/embeddings, /api/embed, /api/embeddings.
void add_embedding_routes(Router& router, const Services& services);
/// /v1/messages, /v1/messages/count_tokens.
void add_anthropic_routes(Router& router, const Services& services);
/// /api/chat, /api/generate, /api/tags, /api/show, /api/ps, /api/version, /.
void add_ollama_routes(Router& router, const Services& services);

/// The body of a route that answers with a Generation.
inline Reply reply_with(std::shared_ptr<Source> source, bool streamed, std::string_view type = "text/event-stream") {
  if (!streamed) return Reply::late(std::move(source));
  HttpResponse head{.type = std::string(type)};
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};  // proxies pass events on at once
  return Reply::stream(std::move(head), std::move(source));
}

}  // namespace tern::server
