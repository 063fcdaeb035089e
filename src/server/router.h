// Paths to handlers. Whatever a handler throws becomes an answer in the envelope of its API.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "server/api_error.h"

namespace tern::server {

class Router {
 public:
  /// `path` may end in "/{id}", which stands for one or more segments. Handlers may throw.
  void add(std::string method, std::string path, Handler handler, ErrorEnvelope errors = openai_error);
  /// 404 and 405 are told in the envelope of the routes around a path, else in OpenAI's. HEAD is answered as GET.
  Reply operator()(HttpRequest& request) const noexcept;
  /// The methods of a path, for preflight and 405: "GET, POST"; empty when there is no such path.
  std::string methods(std::string_view path) const;
  /// The envelope in which errors about `path` are told.
  ErrorEnvelope envelope(std::string_view path) const;

 private:
  struct Route {
    std::string method, path;  // without "{id}"
    bool open;                 // the path goes on
    Handler handler;
    ErrorEnvelope envelope;
    bool matches(std::string_view p) const { return open ? p.starts_with(path) && p.size() > path.size() : p == path; }
  };
  std::vector<Route> routes_;
};

}  // namespace tern::server
