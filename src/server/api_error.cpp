#include "server/api_error.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/scheduler.h"

namespace tern::server {
namespace {

constexpr const char* kInvalid = "invalid_request_error";

ApiError of_engine(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kContextFull:
      return {400, kInvalid, error.what(), "messages", "context_length_exceeded"};
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return {400, kInvalid, error.what()};
    case ErrorCode::kNotFound:
      return {404, "not_found_error", error.what()};
    case ErrorCode::kOutOfMemory:
      return {503, "unavailable_error", error.what()};
    case ErrorCode::kBadFile:
    case ErrorCode::kIo:
      break;
  }
  return {500, "server_error", error.what()};
}

}  // namespace

std::string json_reason(const Json::exception& error) {
  const std::string what = error.what();
  const size_t end = what.find("] ");
  return end == what.npos ? what : what.substr(end + 2);
}

ApiError bad_request(std::string param, const std::string& message) {
  return {400, kInvalid, message, std::move(param)};
}

ApiError current_error() noexcept {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const QueueFull& error) {
    ApiError full{503, "unavailable_error", error.what(), "", "queue_full"};
    full.retry_after = 1;
    return full;
  } catch (const Error& error) {
    return of_engine(error);
  } catch (const Json::exception& error) {  // a member that is of another type than every client sends
    return {400, kInvalid, "a field has the wrong type: " + json_reason(error)};
  } catch (const std::bad_alloc&) {
    return {503, "unavailable_error", "not enough memory for this request"};
  } catch (const std::exception& error) {
    spdlog::error("a request failed: {}", error.what());
  } catch (...) {
    spdlog::error("a request failed");
  }
  return {500, "server_error", "the server failed to answer this request"};
}

ApiError error_of(const Failure& failure) {
  if (failure.code) return of_engine(Error(*failure.code, failure.message));
  return {500, "server_error", failure.message};
}

Json openai_error(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json body{{"message", error.what()},
            {"type", error.type},
            {"code", error.code.empty() && error.status == 503 ? Json(503) : text_or_null(error.code)},
            {"param", text_or_null(error.param)}};
  body.update(error.details);
  return {{"error", std::move(body)}};
}

Json llamacpp_error(const ApiError& error) {
  const bool too_long = error.code == "context_length_exceeded";
  Json body{{"code", error.status},
            {"message", error.what()},
            {"type", too_long ? std::string("exceed_context_size_error") : error.type}};
  if (!error.param.empty()) body["param"] = error.param;
  body.update(error.details);
  return {{"error", std::move(body)}};
}

HttpResponse error_response(const ApiError& error, ErrorEnvelope envelope) {
  HttpResponse response = json_response(envelope(error), error.status);
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", fmt::format("{}", error.retry_after));
  return response;
}

HttpResponse json_response(const Json& json, int status) {
  return {.status = status, .body = dump(json)};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tern::server
