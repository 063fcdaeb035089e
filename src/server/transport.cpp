#include "server/transport.h"

#include <boost/asio/ssl/stream.hpp>

#include "base/error.h"

namespace tern::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

class Plain final : public Transport {
 public:
  explicit Plain(tcp::socket socket) : socket_(std::move(socket)) {}
  void handshake(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
  }
  void read_some(asio::mutable_buffer buffer, Done done) override { socket_.async_read_some(buffer, std::move(done)); }
  void write_some(asio::const_buffer buffer, Done done) override { socket_.async_write_some(buffer, std::move(done)); }
  void shutdown_send() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

class Tls final : public Transport {
 public:
  Tls(tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](error_code error) { done(error, 0); });
  }
  void read_some(asio::mutable_buffer buffer, Done done) override { stream_.async_read_some(buffer, std::move(done)); }
  void write_some(asio::const_buffer buffer, Done done) override { stream_.async_write_some(buffer, std::move(done)); }
  // The end of a body is known from its framing: a close_notify that waits for the peer's would gain nothing.
  void shutdown_send() override {
    error_code ignored;
    stream_.lowest_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(tcp::socket socket, asio::ssl::context* tls) {
  if (tls) return std::make_unique<Tls>(std::move(socket), *tls);
  return std::make_unique<Plain>(std::move(socket));
}

std::unique_ptr<asio::ssl::context> make_tls(const std::string& certificate, const std::string& key) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  error_code error;
  context->use_certificate_chain_file(certificate, error);
  if (error) fail(ErrorCode::kBadFile, "cannot use {} as the TLS certificate: {}", certificate, error.message());
  context->use_private_key_file(key, asio::ssl::context::pem, error);
  if (error) fail(ErrorCode::kBadFile, "cannot use {} as the key of {}: {}", key, certificate, error.message());
  return context;
}

}  // namespace tern::server
