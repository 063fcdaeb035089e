// A request that cannot be answered, before it is put into the envelope of the API it came by.
#pragma once
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "server/http.h"

namespace tern {
struct Failure;
}

namespace tern::server {

using Json = nlohmann::ordered_json;

struct ApiError : std::runtime_error {
  ApiError(int http_status, std::string error_type, const std::string& message, std::string parameter = {},
           std::string error_code = {})
      : std::runtime_error(message),
        status(http_status),
        type(std::move(error_type)),
        param(std::move(parameter)),
        code(std::move(error_code)) {}
  int status;
  std::string type;   // in OpenAI's words: "invalid_request_error", "not_found_error", "unavailable_error"...
  std::string param;  // the parameter that is wrong; may be empty
  std::string code;   // "context_length_exceeded"; may be empty
  Json details = Json::object();  // further members of the error
  int retry_after = 0;            // seconds; 0: no such header
};

/// 400 about one parameter (or none when it is empty).
ApiError bad_request(std::string param, const std::string& message);

/// What the JSON library says of its failure, without the number it gives it ("[json.exception.parse_error.101] ...").
std::string json_reason(const Json::exception& error);

/// What the exception being handled means to a client. Of the world's failures the message is told, of others only that
/// something failed.
ApiError current_error() noexcept;
/// The same of an answer that failed after it had begun.
ApiError error_of(const Failure& failure);

/// The body of an error in the envelope of one API.
using ErrorEnvelope = Json (*)(const ApiError& error);
Json openai_error(const ApiError& error);    // {"error": {message, type, code, param}}
Json llamacpp_error(const ApiError& error);  // {"error": {code (the status), message, type}}

HttpResponse error_response(const ApiError& error, ErrorEnvelope envelope);
HttpResponse json_response(const Json& json, int status = 200);
/// On one line; bytes that are no UTF-8 become U+FFFD.
std::string dump(const Json& json);

}  // namespace tern::server
