// HTTP/1.1 over TCP or TLS: thousands of connections on one thread, handlers on a few others. Keep-alive, pipelining,
// chunked bodies, 100-continue; everything a peer may do slowly, too large or not at all has a limit. A peer that
// closes its side while an answer is being made is gone: the answer's Source is destroyed at once.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http.h"

namespace tern::server {

struct HttpLimits {
  using Time = std::chrono::milliseconds;
  size_t header_bytes = 32 << 10;  // more: 431
  size_t body_bytes = 16 << 20;    // more: 413
  size_t connections = 4096;       // more are closed as they come
  Time header_time{10'000};        // from a request's first byte to the end of its headers, and for a TLS handshake
  Time body_time{60'000};          // for the body; 408
  Time idle_time{75'000};          // between two requests of a connection
  Time stall_time{30'000};         // that a peer may leave a write waiting
  Time comment_time{15'000};       // of silence before Source::idle() is sent
  Time grace_time{10'000};         // that requests in flight have after stop()
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8383;               // 0: any that is free
  std::string tls_cert{}, tls_key{};  // PEM files; both or none
  int handler_threads = 2;            // 0: handlers run on the thread of the connections
  /// Requests that are answered in no time, and on the thread of the connections: busy handlers do not delay them.
  std::function<bool(const HttpRequest&)> at_once{};
  std::function<void(int status)> answered{};  // told about every answer
  HttpLimits limits{};
};

class HttpServer {
 public:
  /// Binds and listens. kIo with the address and the reason ("in use") when that fails, kBadFile for a certificate or
  /// key that does not load, kInvalidArgument for a host that is no address.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();

  uint16_t port() const noexcept;
  /// Serves until stop(), or, when `signals`, until SIGINT or SIGTERM. Once.
  void run(bool signals);
  /// No more connections; requests in flight have HttpLimits::grace_time. Called again: they end now. From any thread.
  void stop();
  size_t connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether only this machine can connect to `host`.
bool is_loopback(const std::string& host);

}  // namespace tern::server
