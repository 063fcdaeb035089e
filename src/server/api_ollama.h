// What the two files of Ollama's API share.
#pragma once
#include <chrono>
#include <string>

#include "server/apis.h"

namespace tern::server {

Json ollama_error(const ApiError& error);  // {"error": message}
int64_t nanoseconds(double seconds);
/// "2026-11-30T08:44:15.123456Z".
std::string ollama_time(std::chrono::system_clock::time_point time);
/// The `model` of a request (old clients say `name`), without the ":latest" that clients add.
std::string ollama_name(const Services& services, Body& body);
/// Whether its template knows of thinking.
bool ollama_thinks(const ServedModel& model);
/// Reads `options`: sampling is put into `chat` in the names that chat_core knows; returns the context that is asked
/// for. ApiError, with both numbers, when it is more than what is served.
int64_t ollama_options(Body& body, const ServedModel& model, Json& chat);

void add_ollama_model_routes(Router& router, const Services& services);

}  // namespace tern::server
