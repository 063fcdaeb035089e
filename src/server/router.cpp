#include "server/router.h"

#include <fmt/format.h>

namespace tern::server {

void Router::add(std::string method, std::string path, Handler handler, ErrorEnvelope errors) {
  constexpr std::string_view kOpen = "{id}";
  const bool open = path.ends_with(kOpen);
  if (open) path.resize(path.size() - kOpen.size());
  routes_.push_back({std::move(method), std::move(path), open, std::move(handler), errors});
}

std::string Router::methods(std::string_view path) const {
  std::string out;
  for (const Route& route : routes_)
    if (route.matches(path)) out += (out.empty() ? "" : ", ") + route.method;
  return out;
}

ErrorEnvelope Router::envelope(std::string_view path) const {
  for (const Route& route : routes_)
    if (route.matches(path)) return route.envelope;
  // Of what is not here, the words of its neighbours: who asks for /api/pull speaks as /api/chat does.
  const std::string_view folder = path.substr(0, path.find('/', 1) + 1);
  for (const Route& route : routes_)
    if (!folder.empty() && route.path.starts_with(folder)) return route.envelope;
  return openai_error;
}

Reply Router::operator()(HttpRequest& request) const noexcept {
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : routes_) {
    if (route.method != method || !route.matches(request.path)) continue;
    if (route.open) request.segment = request.path.substr(route.path.size());
    try {
      return route.handler(request);
    } catch (...) {
      return error_response(current_error(), route.envelope);
    }
  }
  const std::string allowed = methods(request.path);
  if (allowed.empty())
    return error_response({404, "not_found_error", fmt::format("there is no {}", request.path)},
                          envelope(request.path));
  HttpResponse response = error_response(
      {405, "invalid_request_error", fmt::format("{} takes {}, not {}", request.path, allowed, request.method)},
      envelope(request.path));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

}  // namespace tern::server
