#include "server/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "server/transport.h"

namespace tern::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

constexpr size_t kReadAhead = 64 << 10;  // of pipelined requests, while an answer is being made
constexpr size_t kReadPiece = 8 << 10;
// Of a body that is read and dropped so that a refusal arrives before the reset: many clients send all of it first.
constexpr size_t kLingerBytes = 256 << 20;
constexpr auto kLingerTime = std::chrono::seconds(10);
constexpr HttpLimits::Time kLingerPause = std::chrono::seconds(1);  // without anything new
constexpr int kSendBuffer = 256 << 10;  // small, so that a peer that does not read is noticed
constexpr auto kNever = Clock::time_point::max();

std::string head_of(const HttpResponse& response, std::string_view length, bool keep) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status,
                                std::string_view(http::obsolete_reason(static_cast<http::status>(response.status))));
  if (!response.type.empty()) out += fmt::format("Content-Type: {}\r\n", response.type);
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  out += length;
  if (!keep) out += "Connection: close\r\n";
  return out += "\r\n";
}

HttpResponse refusal(int status, std::string_view message) {
  return {.status = status,
          .body = fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error","code":{},"param":null}}}})",
                              message, status)};
}

/// What the server has in common for all connections.
struct Shared {
  HttpLimits limits;
  Handler handler;
  std::function<bool(const HttpRequest&)> at_once;
  std::function<void(int)> answered;
  asio::io_context io{1};
  asio::thread_pool workers;
  asio::any_io_executor handling;
  bool stopping = false;
  Shared(const HttpOptions& options, Handler h)
      : limits(options.limits),
        handler(std::move(h)),
        at_once(options.at_once),
        answered(options.answered),
        workers(static_cast<size_t>(options.handler_threads)) {
    if (options.handler_threads > 0) {
      handling = workers.get_executor();
    } else {
      handling = io.get_executor();
    }
  }
};

/// One connection: a coroutine that everything else (reads, writes, the handler, the Source, the peer's leaving) wakes
/// through one signal. All of it runs on the thread of the io_context but Waker::wake.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Shared> shared, std::unique_ptr<Transport> transport)
      : shared_(std::move(shared)), transport_(std::move(transport)), timer_(shared_->io) {}

  asio::awaitable<void> run() {
    try {
      co_await serve();
    } catch (const std::exception& error) {
      spdlog::warn("a connection ended: {}", error.what());
    }
    transport_->close();
    // Reads and writes outstanding hold this object and its buffers; they end with an error.
  }

  /// The server stops: a connection without a request ends at once, others with their request.
  void stop() {
    if (!busy_) gone_ = true;
    wake();
  }
  void end_now() {
    gone_ = true;
    transport_->close();
    wake();
  }

 private:
  // ---- waiting: everything that happens calls wake()
  void wake() {
    signalled_ = true;
    timer_.cancel();
  }
  /// False when `deadline` came first.
  asio::awaitable<bool> wait(Clock::time_point deadline) {
    if (!signalled_) {
      timer_.expires_at(deadline);
      error_code ignored;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    co_return std::exchange(signalled_, false);
  }

  // ---- reading: at most one read outstanding, also while an answer is made, to see pipelined requests and the end
  void start_read() {
    if (reading_ || gone_) return;
    reading_ = true;
    transport_->read_some(asio::buffer(incoming_), [self = shared_from_this()](error_code error, size_t n) {
      self->reading_ = false;
      self->buffer_.commit(asio::buffer_copy(self->buffer_.prepare(n), asio::buffer(self->incoming_, n)));
      if (error) self->gone_ = true;
      self->wake();
    });
  }
  /// True when buffer_ has more than before; false when nothing came in time, or nothing will.
  asio::awaitable<bool> read_more(Clock::time_point deadline) {
    const size_t before = buffer_.size();
    start_read();
    while (reading_ && !gone_)
      if (!co_await wait(deadline) && reading_) co_return false;
    co_return buffer_.size() > before;
  }

  /// False when the peer is gone or did not read for too long. A peer that has only closed its own side may still read.
  asio::awaitable<bool> write(std::string bytes) {
    outgoing_ = std::move(bytes);
    for (size_t sent = 0; sent < outgoing_.size(); sent += wrote_) {
      writing_ = true;
      transport_->write_some(asio::buffer(outgoing_.data() + sent, outgoing_.size() - sent),
                             [self = shared_from_this()](error_code error, size_t n) {
                               self->writing_ = false;
                               self->wrote_ = error ? 0 : n;
                               if (error) self->write_failed_ = self->gone_ = true;
                               self->wake();
                             });
      const auto deadline = Clock::now() + shared_->limits.stall_time;
      while (writing_ && (co_await wait(deadline) || !writing_)) continue;
      if (writing_ || write_failed_) {
        end_now();
        co_return false;
      }
    }
    co_return true;
  }

  asio::awaitable<void> serve();
  asio::awaitable<std::optional<HttpRequest>> read_request();
  asio::awaitable<std::optional<HttpRequest>> refuse(HttpResponse response);
  asio::awaitable<bool> read_body(Parser& parser);
  asio::awaitable<Reply> handle(HttpRequest& request);
  asio::awaitable<bool> answer(HttpRequest request);
  asio::awaitable<bool> answer_whole(const HttpResponse& response, bool head_only);
  asio::awaitable<bool> answer_late(Reply& reply, bool head_only);
  asio::awaitable<bool> answer_stream(const HttpResponse& head, Source& source, bool head_only);
  void watch() {
    if (buffer_.size() < kReadAhead) start_read();
  }
  std::function<void()> waker();

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Transport> transport_;
  asio::steady_timer timer_;
  std::array<char, kReadPiece> incoming_;  // of the read outstanding
  boost::beast::flat_buffer buffer_;       // read and not used
  std::string outgoing_;                   // of the write outstanding
  size_t wrote_ = 0;
  bool signalled_ = false, reading_ = false, writing_ = false, write_failed_ = false, greeted_ = false;
  bool news_ = false;   // the Source has something; signals are also spent on waiting for writes
  bool gone_ = false;   // nothing more comes from the peer
  bool busy_ = false;   // with a request
  bool keep_ = true;    // the connection may serve another request
  bool chunks_ = true;  // the peer understands chunked bodies
};

/// Wakes this session from any thread, once for any number of calls between two looks.
std::function<void()> Session::waker() {
  struct Waker {
    std::weak_ptr<Session> session;
    std::weak_ptr<Shared> shared;
    std::atomic<bool> posted = false;
  };
  auto waker = std::make_shared<Waker>();
  waker->session = weak_from_this();
  waker->shared = shared_;
  return [waker] {
    const auto shared = waker->shared.lock();
    if (!shared || waker->posted.exchange(true)) return;
    asio::post(shared->io, [waker] {
      waker->posted = false;
      if (const auto session = waker->session.lock()) {
        session->news_ = true;
        session->wake();
      }
    });
  };
}

asio::awaitable<void> Session::serve() {
  transport_->handshake([self = shared_from_this()](error_code error, size_t) {
    self->greeted_ = !error;
    if (error) self->gone_ = true;
    self->wake();
  });
  const auto deadline = Clock::now() + shared_->limits.header_time;
  while (!greeted_ && !gone_)
    if (!co_await wait(deadline)) break;
  if (!greeted_) co_return;
  while (keep_ && !shared_->stopping) {
    busy_ = false;
    auto request = co_await read_request();
    if (!request) break;
    busy_ = true;
    if (!co_await answer(std::move(*request))) break;
  }
}

/// Sends a refusal of bytes that are no request, and reads on for a while: closing with unread bytes would reset the
/// connection before the peer has read why.
asio::awaitable<std::optional<HttpRequest>> Session::refuse(HttpResponse response) {
  keep_ = false;
  if (co_await answer_whole(response, false)) {
    transport_->shutdown_send();
    const auto end = Clock::now() + kLingerTime;
    const auto pause = std::min(shared_->limits.header_time, kLingerPause);
    for (size_t dropped = 0; dropped < kLingerBytes && !gone_ && !shared_->stopping;) {
      dropped += buffer_.size();
      buffer_.consume(buffer_.size());
      if (!co_await read_more(std::min<Clock::time_point>(end, Clock::now() + pause))) break;
    }
  }
  co_return std::nullopt;
}

HttpResponse refusal_of(error_code error, const HttpLimits& limits) {
  if (error == http::error::header_limit)
    return refusal(431, fmt::format("the headers exceed {} bytes", limits.header_bytes));
  if (error == http::error::body_limit)
    return refusal(413, fmt::format("the body exceeds {} bytes", limits.body_bytes));
  return refusal(400, fmt::format("this is no HTTP/1.1 request: {}", error.message()));
}

asio::awaitable<std::optional<HttpRequest>> Session::read_request() {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(shared_->limits.header_bytes));
  parser.body_limit(shared_->limits.body_bytes);
  const auto idle_until = Clock::now() + shared_->limits.idle_time;
  auto deadline = Clock::time_point{};  // of the headers, once they have begun
  while (!parser.is_header_done()) {
    while (!parser.got_some() && buffer_.size() >= 2 && std::memcmp(buffer_.data().data(), "\r\n", 2) == 0)
      buffer_.consume(2);  // some clients end a body with one
    if (buffer_.size() > 0) {
      if (deadline == Clock::time_point{}) deadline = Clock::now() + shared_->limits.header_time;
      busy_ = true;
      error_code error;
      buffer_.consume(parser.put(buffer_.data(), error));
      if (error && error != http::error::need_more) co_return co_await refuse(refusal_of(error, shared_->limits));
      if (parser.is_header_done()) break;
    }
    const bool begun = deadline != Clock::time_point{};
    if (gone_ || !co_await read_more(begun ? deadline : idle_until)) {
      if (begun && !gone_) co_return co_await refuse(refusal(408, "the headers took too long"));
      co_return std::nullopt;
    }
  }
  chunks_ = parser.get().version() >= 11;
  if (!co_await read_body(parser)) co_return std::nullopt;
  keep_ = chunks_ && parser.get().keep_alive();

  auto& message = parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  std::string_view target(message.target());
  if (target.starts_with("http://") || target.starts_with("https://"))  // as clients write it for a proxy
    target.remove_prefix(std::min(target.find('/', target.find("://") + 3), target.size()));
  const size_t query = std::min(target.find('?'), target.size());
  request.path = percent_decoded(target.substr(0, query));
  request.parameters = target.substr(std::min(target.size(), query + 1));
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.body = std::move(message.body());
  co_return request;
}

/// False when there is none to come; then a refusal has been sent where there was somebody to read it.
asio::awaitable<bool> Session::read_body(Parser& parser) {
  const auto deadline = Clock::now() + shared_->limits.body_time;
  const std::string_view expect(parser.get()[http::field::expect]);
  if (!expect.empty() && !parser.is_done()) {
    if (!boost::beast::iequals(expect, "100-continue")) {
      co_await refuse(refusal(417, "only 'Expect: 100-continue' is understood"));
      co_return false;
    }
    if (buffer_.size() == 0 && !co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  parser.eager(true);
  while (!parser.is_done()) {
    error_code error;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
    if (error && error != http::error::need_more) {
      co_await refuse(refusal_of(error, shared_->limits));
      co_return false;
    }
    if (parser.is_done()) break;
    if (!co_await read_more(deadline)) {
      if (!gone_) co_await refuse(refusal(408, "the body took too long"));
      co_return false;
    }
  }
  co_return true;
}

/// Runs the handler, on a worker unless it is answered at once.
asio::awaitable<Reply> Session::handle(HttpRequest& request) {
  std::optional<Reply> reply;
  bool done = false;  // on this thread
  // Waited for whatever else happens, so that the frame outlives what refers to it.
  const bool at_once = shared_->at_once && shared_->at_once(request);
  const asio::any_io_executor thread = at_once ? shared_->io.get_executor() : shared_->handling;
  asio::post(thread, [&, self = shared_from_this()] {
    try {
      reply.emplace(shared_->handler(request));
    } catch (...) {
      reply.emplace(refusal(500, "the request could not be answered"));
    }
    asio::post(shared_->io, [&done, self] {
      done = true;
      self->wake();
    });
  });
  while (!done) co_await wait(kNever);
  co_return std::move(*reply);
}

asio::awaitable<bool> Session::answer(HttpRequest request) {
  const auto began = Clock::now();
  const bool head_only = request.method == "HEAD";
  Reply reply = co_await handle(request);
  if (shared_->stopping) keep_ = false;
  bool go_on = false;
  if (!reply.source) {
    go_on = co_await answer_whole(reply.head, head_only);
  } else {
    reply.source->start(waker());
    go_on = reply.streamed ? co_await answer_stream(reply.head, *reply.source, head_only)
                           : co_await answer_late(reply, head_only);
  }
  if (shared_->answered) shared_->answered(reply.head.status);
  spdlog::info("{} {} {} {:.1f} ms{}", request.method, one_line(request.path), reply.head.status,
               std::chrono::duration<double, std::milli>(Clock::now() - began).count(), go_on ? "" : ", closed");
  co_return go_on&& keep_;
}

asio::awaitable<bool> Session::answer_whole(const HttpResponse& response, bool head_only) {
  const bool bodiless = response.status == 204 || response.status == 304;
  std::string out =
      head_of(response, bodiless ? "" : fmt::format("Content-Length: {}\r\n", response.body.size()), keep_);
  if (!head_only && !bodiless) out += response.body;
  co_return co_await write(std::move(out));
}

asio::awaitable<bool> Session::answer_late(Reply& reply, bool head_only) {
  Source& source = *reply.source;
  while (!source.next().end) {
    do {
      watch();
      if (gone_) co_return false;
      co_await wait(kNever);
    } while (!std::exchange(news_, false));
  }
  HttpResponse whole = source.whole();
  whole.headers.insert(whole.headers.end(), reply.head.headers.begin(), reply.head.headers.end());
  reply.head.status = whole.status;  // what is logged
  co_return co_await answer_whole(whole, head_only);
}

asio::awaitable<bool> Session::answer_stream(const HttpResponse& head, Source& source, bool head_only) {
  if (!chunks_) keep_ = false;
  if (!co_await write(head_of(head, chunks_ ? "Transfer-Encoding: chunked\r\n" : "", keep_))) co_return false;
  if (head_only) co_return true;
  const auto framed = [&](const std::string& bytes, bool end) {
    if (!chunks_) return bytes;
    return fmt::format("{}{}", bytes.empty() ? "" : fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes),
                       end ? "0\r\n\r\n" : "");
  };
  auto spoken = Clock::now();
  for (;;) {
    const Source::Piece piece = source.next();
    if (!piece.bytes.empty() || piece.end) {
      if (!co_await write(framed(piece.bytes, piece.end))) co_return false;
      spoken = Clock::now();
    }
    if (piece.end) co_return true;
    while (!std::exchange(news_, false)) {
      watch();
      if (gone_) co_return false;
      if (co_await wait(spoken + shared_->limits.comment_time)) continue;
      const std::string comment = source.idle();
      if (!comment.empty() && !co_await write(framed(comment, false))) co_return false;
      spoken = Clock::now();
    }
    if (gone_) co_return false;
  }
}

}  // namespace

struct HttpServer::Impl {
  std::shared_ptr<Shared> shared;
  std::unique_ptr<asio::ssl::context> tls;
  tcp::acceptor acceptor;
  asio::steady_timer pause, grace;
  std::optional<asio::signal_set> signals;
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::atomic<size_t> count = 0;
  uint16_t port = 0;

  Impl(const HttpOptions& options, Handler handler)
      : shared(std::make_shared<Shared>(options, std::move(handler))),
        acceptor(shared->io),
        pause(shared->io),
        grace(shared->io) {
    if (!options.tls_cert.empty()) tls = make_tls(options.tls_cert, options.tls_key);
    listen(options);
  }

  void listen(const HttpOptions& options) {
    error_code error;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error)
      fail(ErrorCode::kInvalidArgument, "--host {} is no address to listen on: give one, such as 127.0.0.1 or 0.0.0.0",
           options.host);
    const tcp::endpoint endpoint(address, options.port);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      fail(ErrorCode::kIo, "cannot listen on {}:{}: {}{}", options.host, options.port, error.message(),
           error == asio::error::address_in_use ? "; end what listens there or choose another with --port" : "");
    port = acceptor.local_endpoint().port();
  }

  asio::awaitable<void> accept() {
    for (;;) {
      error_code error;
      tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (shared->stopping) co_return;
      if (error) {  // out of descriptors, mostly: some will be given back
        spdlog::warn("cannot accept a connection: {}", error.message());
        pause.expires_after(std::chrono::milliseconds(100));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      if (sessions.size() >= shared->limits.connections) continue;  // closes it
      socket.set_option(tcp::no_delay(true), error);
      socket.set_option(asio::socket_base::send_buffer_size(kSendBuffer), error);
      asio::co_spawn(shared->io, serve(std::make_shared<Session>(shared, make_transport(std::move(socket), tls.get()))),
                     asio::detached);
    }
  }

  asio::awaitable<void> serve(std::shared_ptr<Session> session) {
    sessions.insert(session);
    count = sessions.size();
    co_await session->run();
    sessions.erase(session);
    count = sessions.size();
    if (shared->stopping && sessions.empty()) finish();
  }

  void listen_for_signals() {
    signals->async_wait([this](error_code error, int) {
      if (error) return;
      listen_for_signals();  // first: stop() may end this wait, and nothing may keep run() after that
      stop();
    });
  }

  /// On the thread of the io_context.
  void stop() {
    if (std::exchange(shared->stopping, true)) return end_all();
    error_code ignored;
    acceptor.close(ignored);
    pause.cancel();
    for (const auto& session : sessions) session->stop();
    if (sessions.empty()) return finish();
    grace.expires_after(shared->limits.grace_time);
    grace.async_wait([this](error_code error) {
      if (!error) end_all();
    });
  }
  void end_all() {
    for (const auto& session : sessions) session->end_now();
  }
  void finish() {
    grace.cancel();
    if (signals) signals->cancel();
  }
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const noexcept {
  return impl_->port;
}
size_t HttpServer::connections() const {
  return impl_->count;
}

void HttpServer::run(bool signals) {
  if (signals) {
    impl_->signals.emplace(impl_->shared->io, SIGINT, SIGTERM);
    impl_->listen_for_signals();
  }
  asio::co_spawn(impl_->shared->io, impl_->accept(), asio::detached);
  impl_->shared->io.run();
  impl_->shared->workers.join();
}

void HttpServer::stop() {
  asio::post(impl_->shared->io, [impl = impl_.get()] { impl->stop(); });
}

void serve_connection(const HttpOptions& options, Handler handler,
                      const std::function<std::unique_ptr<Transport>(const asio::any_io_executor&)>& make) {
  const auto shared = std::make_shared<Shared>(options, std::move(handler));
  const auto session = std::make_shared<Session>(shared, make(shared->io.get_executor()));
  asio::co_spawn(shared->io, session->run(), asio::detached);
  shared->io.run();
  shared->workers.join();
}

bool is_loopback(const std::string& host) {
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  return host == "localhost" || (!error && address.is_loopback());
}

}  // namespace tern::server
