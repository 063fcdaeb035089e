// https: with a certificate made for the test, and a client that checks it.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/error.h"
#include "gguf/temp_folder.h"
#include "server/client.h"
#include "server/http_server.h"

namespace tern::server {
namespace {

using test::Client;
using test::http_request;

/// A certificate of 127.0.0.1 that signs itself, and its key.
struct Certificate {
  gguf::testing::TempFolder folder;
  std::string cert = folder / "cert.pem", key = folder / "key.pem";
  Certificate() {
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=tern-test "
        "-addext subjectAltName=IP:127.0.0.1 -out '" +
        cert + "' -keyout '" + key + "' 2>/dev/null";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("openssl made no certificate");
  }
};

struct TlsServer {
  Certificate files;
  HttpServer server;
  std::thread thread;

  explicit TlsServer(const HttpLimits& limits = {})
      : server({.port = 0, .tls_cert = files.cert, .tls_key = files.key, .limits = limits},
               [](HttpRequest& r) { return HttpResponse{.type = "text/plain", .body = r.path + " " + r.body}; }),
        thread([this] { server.run(false); }) {}
  ~TlsServer() {
    server.stop();
    server.stop();
    thread.join();
  }
  uint16_t port() const { return server.port(); }
};

/// TLS over a Client's socket.
class TlsClient {
 public:
  /// Trusts `authority` alone, for 127.0.0.1; nobody when it is empty.
  TlsClient(uint16_t port, const std::string& authority) : client_(port), context_(SSL_CTX_new(TLS_client_method())) {
    if (!authority.empty()) {
      EXPECT_EQ(SSL_CTX_load_verify_locations(context_.get(), authority.c_str(), nullptr), 1);
    }
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    ssl_.reset(SSL_new(context_.get()));
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), "127.0.0.1");
    SSL_set_fd(ssl_.get(), client_.descriptor());
    connected_ = SSL_connect(ssl_.get()) == 1;
    ERR_clear_error();
  }
  bool connected() const { return connected_; }
  const char* version() const { return SSL_get_version(ssl_.get()); }
  void send(const std::string& bytes) {
    size_t sent = 0;
    EXPECT_EQ(SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent), 1);
    EXPECT_EQ(sent, bytes.size());
  }
  /// Up to and with `mark`, or to the end.
  std::string read_until(std::string_view mark) {
    std::string out;
    char piece[16384];
    for (size_t n = 0; !out.ends_with(mark) && SSL_read_ex(ssl_.get(), piece, sizeof piece, &n) == 1;)
      out.append(piece, n);
    return out;
  }

 private:
  template <auto Free>
  struct Deleter {
    void operator()(auto* object) const { Free(object); }
  };
  Client client_;
  std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Deleter<SSL_free>> ssl_;
  bool connected_ = false;
};

TEST(Tls, AClientThatChecksTheCertificateIsServedManyTimes) {
  TlsServer server;
  TlsClient client(server.port(), server.files.cert);
  ASSERT_TRUE(client.connected());
  EXPECT_STREQ(client.version(), "TLSv1.3");
  client.send(http_request("GET", "/one"));
  EXPECT_TRUE(client.read_until("/one ").starts_with("HTTP/1.1 200 "));
  const std::string body = std::string(1 << 20, 'x') + "end";
  client.send(http_request("POST", "/two", body));
  const std::string answer = client.read_until("end");
  EXPECT_TRUE(answer.ends_with("/two " + body)) << answer.size();
}

TEST(Tls, AClientThatDoesNotTrustTheCertificateLeavesAndHarmsNobody) {
  TlsServer server;
  EXPECT_FALSE(TlsClient(server.port(), "").connected());
  EXPECT_TRUE(TlsClient(server.port(), server.files.cert).connected());
}

TEST(Tls, PlainHttpIsHungUpOnWithoutAnAnswer) {
  TlsServer server;
  Client plain(server.port());
  plain.send(http_request("GET", "/one"));
  const std::string said = plain.read_to_end();
  EXPECT_EQ(said.find("/one"), std::string::npos);
  EXPECT_FALSE(said.starts_with("HTTP/")) << said;
  EXPECT_TRUE(TlsClient(server.port(), server.files.cert).connected());
}

TEST(Tls, AHandshakeThatDoesNotComeIsCutOff) {
  TlsServer server(HttpLimits{.header_time = HttpLimits::Time(50)});
  Client silent(server.port());
  EXPECT_EQ(silent.read_to_end(), "");
}

TEST(Tls, AKeyOfAnotherCertificateAndAMissingFileAreNamed) {
  const Certificate one, other;
  const auto message = [](const std::string& cert, const std::string& key) -> std::string {
    try {
      HttpServer({.port = 0, .tls_cert = cert, .tls_key = key}, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(one.cert, other.key).find(other.key), std::string::npos);
  EXPECT_NE(message(one.cert + ".none", one.key).find(one.cert + ".none"), std::string::npos);
}

}  // namespace
}  // namespace tern::server
