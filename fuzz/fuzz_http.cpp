// Any bytes as those of a connection: they end in answers or in silence, nothing else, within the limits. The first
// byte says how they come: in pieces of how many bytes (0: all at once), and whether the peer hangs up behind them or
// stays.
#include <boost/asio/post.hpp>
#include <cctype>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "server/body.h"
#include "server/http_server.h"
#include "server/router.h"
#include "server/transport.h"

namespace {

using namespace tern;
using namespace tern::server;
namespace asio = boost::asio;

constexpr size_t kHeaderBytes = 2048, kBodyBytes = 4096;

/// A peer in memory.
class Memory final : public Transport {
 public:
  struct Peer {
    std::string_view says;
    size_t piece = 0;
    bool stays = false;
    std::string hears{};
  };
  Memory(asio::any_io_executor executor, Peer& peer) : executor_(std::move(executor)), peer_(peer) {}
  void handshake(Done done) override { finish(std::move(done), {}, 0); }
  void read_some(asio::mutable_buffer buffer, Done done) override {
    const size_t most = peer_.piece == 0 ? buffer.size() : std::min(buffer.size(), peer_.piece);
    const std::string_view piece = peer_.says.substr(0, most);
    peer_.says.remove_prefix(piece.size());
    asio::buffer_copy(buffer, asio::buffer(piece));
    if (!piece.empty()) return finish(std::move(done), {}, piece.size());
    if (!peer_.stays || closed_) return finish(std::move(done), asio::error::eof, 0);
    waiting_ = std::move(done);
  }
  void write_some(asio::const_buffer buffer, Done done) override {
    if (closed_) return finish(std::move(done), asio::error::broken_pipe, 0);
    const size_t n = peer_.piece == 0 ? buffer.size() : std::min(buffer.size(), peer_.piece);
    peer_.hears.append(static_cast<const char*>(buffer.data()), n);
    finish(std::move(done), {}, n);
  }
  void shutdown_send() override {}
  void close() override {
    closed_ = true;
    if (waiting_) finish(std::exchange(waiting_, {}), asio::error::operation_aborted, 0);
  }

 private:
  void finish(Done done, boost::system::error_code error, size_t n) {
    asio::post(executor_, [done = std::move(done), error, n] { done(error, n); });
  }
  asio::any_io_executor executor_;
  Peer& peer_;
  Done waiting_;
  bool closed_ = false;
};

/// An answer of a few pieces.
class Pieces final : public Source {
 public:
  void start(std::function<void()> wake) override { (wake_ = std::move(wake))(); }
  Piece next() override {
    wake_();
    return {.bytes = "data: 1\n\n", .end = ++told_ == 3};
  }
  HttpResponse whole() override { return {.body = "whole"}; }

 private:
  std::function<void()> wake_;
  int told_ = 0;
};

Reply read_body(HttpRequest& request) {
  Body body(request.body);
  Json out{{"text", body.string("text").value_or("")},
           {"count", body.integer("count", -5, 5).value_or(0)},
           {"number", body.number("number").value_or(0)},
           {"yes", body.boolean("yes").value_or(false)},
           {"texts", body.strings("texts")},
           {"parameter", request.parameter("name")}};
  if (const Json* array = body.array("array")) out["array"] = *array;
  body.ignore({"user"});
  body.neutral("store", false);
  body.refuse_rest();
  return json_response(out);
}

Router make_router() {
  Router router;
  router.add("POST", "/json", read_body);
  router.add("GET", "/stream/{id}", [](HttpRequest& request) {
    CHECK(!request.segment.empty(), "a route without its segment");
    return Reply::stream({.type = "text/event-stream"}, std::make_shared<Pieces>());
  });
  router.add(
      "POST", "/late", [](HttpRequest&) { return Reply::late(std::make_shared<Pieces>()); }, llamacpp_error);
  return router;
}

void check_request(const HttpRequest& request) {
  CHECK(!request.method.empty(), "a request without a method");
  CHECK(request.body.size() <= kBodyBytes, "a body of {} bytes", request.body.size());
  size_t bytes = 0;
  for (const auto& [name, value] : request.headers) {
    bytes += name.size() + value.size();
    for (const unsigned char c : name) CHECK(std::tolower(c) == c, "the header {} is not in lower case", name);
    CHECK(value.find_first_of("\r\n") == std::string::npos, "the header {} has several lines", name);
  }
  CHECK(bytes <= kHeaderBytes, "headers of {} bytes", bytes);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Router router = make_router();
  if (size == 0) return 0;
  Memory::Peer peer{.says = std::string_view(reinterpret_cast<const char*>(data), size).substr(1),
                    .piece = data[0] & 0x7fu,
                    .stays = (data[0] & 0x80u) != 0};
  HttpOptions options{.handler_threads = 0};
  options.limits = {.header_bytes = kHeaderBytes, .body_bytes = kBodyBytes};
  options.limits.header_time = options.limits.body_time = options.limits.idle_time = std::chrono::milliseconds(1);
  const Handler handler = [](HttpRequest& request) {
    check_request(request);
    return router(request);
  };
  serve_connection(options, handler,
                   [&](const asio::any_io_executor& executor) { return std::make_unique<Memory>(executor, peer); });
  CHECK(peer.hears.empty() || peer.hears.starts_with("HTTP/1.1 "), "what was sent is no HTTP");
  return 0;
}
