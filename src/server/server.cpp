#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "server/apis.h"
#include "server/metrics.h"

namespace tern::server {
namespace {

/// Takes as long for any key of this length.
bool same_key(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i % std::max<size_t>(b.size(), 1)]);
  return difference == 0 && !b.empty();
}

/// "http://localhost:3000" -> "localhost:3000"; empty when it is no origin.
std::string_view origin_host(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  return {};
}

bool is_local_origin(std::string_view origin) {
  std::string_view host = origin_host(origin);
  if (host.starts_with("[::1]"))
    host = host.substr(5);
  else if (host.starts_with("localhost"))
    host = host.substr(9);
  else if (host.starts_with("127.0.0.1"))
    host = host.substr(9);
  else
    return false;
  return host.empty() ||
         (host[0] == ':' && std::all_of(host.begin() + 1, host.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

/// Of ASCII, whatever the case.
bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool wants_to_resume(const HttpRequest& request) {
  const std::string_view said = request.header("x-resumable-stream");
  return !said.empty() && said != "0" && !same_word(said, "false");
}

bool is_public(std::string_view path) {
  return path == "/health" || path == "/v1/health";
}

void require_safe(const ServerOptions& options) {
  if (options.api_keys.empty() && !is_loopback(options.http.host))
    fail(ErrorCode::kInvalidArgument,
         "--host {} lets others in: give an --api-key, or listen on 127.0.0.1 behind something that checks who asks",
         options.http.host);
  for (const std::string& origin : options.cors_origins)
    if (origin_host(origin).empty() || origin.find_first_of("*/", origin.find("://") + 3) != origin.npos)
      fail(ErrorCode::kInvalidArgument,
           "--cors-origin {} is not exact: give scheme, host and port as browsers send them, "
           "such as https://chat.example",
           origin);
  if (options.http.tls_cert.empty() != options.http.tls_key.empty())
    fail(ErrorCode::kInvalidArgument, "--tls-cert and --tls-key go together");
}

uint64_t event_number(std::string_view text) {
  uint64_t number = 0;
  if (text.empty()) return 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw bad_request("Last-Event-ID", fmt::format("'{}' is no number of an event", text));
  return number;
}

}  // namespace

struct Server::Impl {
  ServerOptions options;
  // In the order of who needs whom: the HTTP server, which ends first, holds the Sources, they hold generations.
  Metrics metrics;
  Running running;
  Registry models;
  Streams streams;
  Router router;
  std::unique_ptr<HttpServer> http;

  explicit Impl(ServerOptions o) : options(std::move(o)), models(options.models), streams(options.streams) {
    const Services services{models, metrics, running};
    add_openai_routes(router, services);
    add_llamacpp_routes(router, services);
    add_responses_routes(router, services);
    add_anthropic_routes(router, services);
    add_ollama_routes(router, services);
    add_embedding_routes(router, services);
    add_own_routes();
    options.http.at_once = [](const HttpRequest& request) { return is_public(request.path); };
    options.http.answered = [this](int status) { metrics.answered(status); };
    http = std::make_unique<HttpServer>(options.http, [this](HttpRequest& request) { return answer(request); });
  }

  void add_own_routes() {
    for (const char* path : {"/health", "/v1/health"})
      router.add(
          "GET", path, [this](HttpRequest&) { return health(); }, llamacpp_error);
    router.add("GET", "/metrics", [this](HttpRequest&) {
      return HttpResponse{.type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = metrics.text(models, http->connections())};
    });
    router.add("GET", "/v1/stream/{id}", [this](HttpRequest& request) {
      constexpr std::string_view kPoll = "/events";
      if (request.segment.ends_with(kPoll))
        return streams.poll(request.segment.substr(0, request.segment.size() - kPoll.size()),
                            event_number(request.parameter("after")));
      const std::string_view last = request.header("last-event-id");
      return streams.resume(request.segment, event_number(last));
    });
  }

  /// Ready when a model is and none fails at every step; otherwise why not, and how far it is.
  Reply health() const {
    const std::vector<Registry::Entry> entries = models.list();
    const auto in = [&](Registry::State state) {
      return std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.state == state; });
    };
    const bool ready =
        std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.model != nullptr; });
    if (const auto loading = in(Registry::State::kLoading); !ready && loading != entries.end()) {
      ApiError error(503, "unavailable_error", "Loading model");
      error.retry_after = 1;
      error.details = {{"model", loading->name}, {"progress", loading->progress}};
      throw error;
    }
    if (const auto failed = in(Registry::State::kFailed); !ready && failed != entries.end())
      throw ApiError(503, "unavailable_error",
                     fmt::format("the model '{}' could not be loaded: {}", failed->name, failed->error));
    for (const Registry::Entry& entry : entries) {
      const std::string failing = entry.model ? entry.model->scheduler->stats().failing : "";
      if (!failing.empty())
        throw ApiError(503, "unavailable_error",
                       fmt::format("the model '{}' answers nothing: {}", entry.name, failing));
    }
    return json_response({{"status", "ok"}});
  }

  /// Pages of this machine, of the given origins, and, where a key is asked for anyway, of this server's own address
  /// (without one, a page that resolves its name to this machine would pass as such).
  bool may_ask(std::string_view origin, std::string_view host) const {
    const auto& exact = options.cors_origins;
    return is_local_origin(origin) || std::find(exact.begin(), exact.end(), origin) != exact.end() ||
           (!options.api_keys.empty() && !host.empty() && origin_host(origin) == host);
  }

  bool has_key(const HttpRequest& request) const {
    if (options.api_keys.empty()) return true;
    constexpr std::string_view kBearer = "bearer ";
    std::string_view given = request.header("authorization");
    given = same_word(given.substr(0, kBearer.size()), kBearer) ? given.substr(kBearer.size())
                                                                : request.header("x-api-key");
    bool found = false;
    for (const std::string& key : options.api_keys) found |= same_key(given, key);
    return found;
  }

  Reply preflight(const HttpRequest& request) const {
    HttpResponse response{.status = 204, .type = ""};
    response.headers = {{"Access-Control-Allow-Methods", router.methods(request.path)},
                        {"Access-Control-Max-Age", "600"}};
    if (const auto wanted = request.header("access-control-request-headers"); !wanted.empty())
      response.headers.emplace_back("Access-Control-Allow-Headers", wanted);
    return response;
  }

  Reply checked(HttpRequest& request) {
    if (request.method == "OPTIONS" && !router.methods(request.path).empty()) return preflight(request);
    if (!is_public(request.path) && !has_key(request))
      return error_response({401, "authentication_error", "this server needs an API key: 'Authorization: Bearer KEY'",
                             "", "invalid_api_key"},
                            router.envelope(request.path));
    Reply reply = router(request);
    if (!wants_to_resume(request) || !reply.streamed || reply.head.type != "text/event-stream") return reply;
    try {
      return streams.record(std::move(reply));
    } catch (const ApiError& error) {
      return error_response(error, router.envelope(request.path));
    }
  }

  Reply answer(HttpRequest& request) {
    const std::string_view origin = request.header("origin");
    if (origin.empty()) return checked(request);
    if (!may_ask(origin, request.header("host")))
      return error_response({403, "permission_error",
                             fmt::format("pages of {} may not ask this server: --cors-origin allows them", origin)},
                            router.envelope(request.path));
    const std::string allowed(origin);
    Reply reply = checked(request);
    reply.head.headers.emplace_back("Access-Control-Allow-Origin", allowed);
    reply.head.headers.emplace_back("Access-Control-Expose-Headers", "X-Stream-Id, Retry-After");
    reply.head.headers.emplace_back("Vary", "Origin");
    return reply;
  }
};

Server::Server(ServerOptions options) {
  require_safe(options);
  impl_ = std::make_unique<Impl>(std::move(options));
}
Server::~Server() = default;

Registry& Server::models() noexcept {
  return impl_->models;
}
uint16_t Server::port() const noexcept {
  return impl_->http->port();
}
void Server::run(bool signals) {
  impl_->http->run(signals);
}
void Server::stop() {
  impl_->http->stop();
}

}  // namespace tern::server
