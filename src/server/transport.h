// Bytes to and from one peer, plain or through TLS. Only http_server.cpp and transport.cpp know of Asio.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "server/http.h"

namespace tern::server {

struct HttpOptions;

/// At most one read and one write at a time; handlers run on the executor of the socket.
class Transport {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;
  virtual ~Transport() = default;
  virtual void handshake(Done done) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, Done done) = 0;
  virtual void write_some(boost::asio::const_buffer buffer, Done done) = 0;
  /// Says that nothing more is sent; reading goes on.
  virtual void shutdown_send() = 0;
  /// Ends everything outstanding with an error.
  virtual void close() = 0;
};

/// Through TLS when `tls` is not null; it outlives the Transport.
std::unique_ptr<Transport> make_transport(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls);

/// kBadFile, with what OpenSSL says, when the files do not load or do not belong together.
std::unique_ptr<boost::asio::ssl::context> make_tls(const std::string& certificate, const std::string& key);

/// Serves one connection that no socket brought, and returns at its end; of `options` without the address. `make` gets
/// the executor of that connection. A test seam.
void serve_connection(const HttpOptions& options, Handler handler,
                      const std::function<std::unique_ptr<Transport>(const boost::asio::any_io_executor&)>& make);

}  // namespace tern::server
