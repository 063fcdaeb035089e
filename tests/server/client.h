// A client that does on purpose what clients do by accident: bytes by hand over a socket. Whatever it waits for longer
// than a minute fails the test.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tern::test {

struct Answer {
  int status = 0;                                // 0: the connection ended before there was one
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};                            // chunks joined
  bool complete = false;
};

class Client {
 public:
  /// `receive_buffer` in bytes when not 0: small ones make a reader that stalls early.
  explicit Client(uint16_t port, int receive_buffer = 0);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// For what speaks another protocol over this connection.
  int descriptor() const { return fd_; }
  void send(std::string_view bytes);
  void close_sending();
  void close();
  /// Hangs up so that the server sees an error in place of the end.
  void reset();
  /// One answer; those behind it stay for the next call. Interim ones (100) are answers too.
  Answer read(bool head_only = false);
  /// What comes up to and with `mark`; all there is when the connection ends before it.
  std::string read_until(std::string_view mark);
  std::string read_to_end();

 private:
  bool fill();  // false at the end
  std::string take(size_t n);

  int fd_ = -1;
  std::string buffer_;
};

/// "POST /path HTTP/1.1..." with what a body needs.
std::string http_request(std::string_view method, std::string_view path, std::string_view body = "",
                         const std::vector<std::string>& headers = {});
/// One request on a connection of its own.
Answer ask(uint16_t port, std::string_view method, std::string_view path, std::string_view body = "",
           const std::vector<std::string>& headers = {});

/// The `data:` of server-sent events, in order.
std::vector<std::string> sse_data(std::string_view stream);

}  // namespace tern::test
