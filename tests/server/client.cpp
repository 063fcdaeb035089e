#include "server/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

namespace tern::test {

Client::Client(uint16_t port, int receive_buffer) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const timeval minute{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof minute);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << "port " << port;
}

Client::~Client() {
  close();
}

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Client::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void Client::close_sending() {
  ::shutdown(fd_, SHUT_WR);
}

void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the server may have hung up already: its answer tells
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

bool Client::fill() {
  char piece[16384];
  ssize_t n = 0;
  do {
    n = ::recv(fd_, piece, sizeof piece, 0);
  } while (n < 0 && errno == EINTR);  // the process was stopped and goes on
  EXPECT_FALSE(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) << "nothing came for a minute";
  if (n > 0) buffer_.append(piece, static_cast<size_t>(n));
  return n > 0;
}

std::string Client::take(size_t n) {
  std::string out = buffer_.substr(0, n);
  buffer_.erase(0, out.size());
  return out;
}

std::string Client::read_until(std::string_view mark) {
  size_t at = buffer_.find(mark);
  while (at == std::string::npos) {
    if (!fill()) return take(buffer_.size());
    at = buffer_.find(mark);
  }
  return take(at + mark.size());
}

std::string Client::read_to_end() {
  while (fill()) continue;
  return take(buffer_.size());
}

Answer Client::read(bool head_only) {
  Answer answer;
  const std::string head = read_until("\r\n\r\n");
  if (!head.ends_with("\r\n\r\n") || !head.starts_with("HTTP/1.1 ")) return answer;
  answer.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
    const size_t end = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    answer.headers[name] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  answer.complete = true;
  if (head_only || answer.status / 100 == 1 || answer.status == 204) return answer;
  if (answer.headers.contains("content-length")) {
    const size_t length = std::stoul(answer.headers["content-length"]);
    while (buffer_.size() < length && fill()) continue;
    answer.body = take(length);
    answer.complete = answer.body.size() == length;
  } else if (answer.headers["transfer-encoding"] == "chunked") {
    for (;;) {
      const std::string line = read_until("\r\n");
      const size_t length = line.empty() ? 0 : std::stoul(line, nullptr, 16);
      while (buffer_.size() < length + 2 && fill()) continue;
      answer.body += take(length);
      answer.complete = take(2) == "\r\n" && !line.empty();
      if (length == 0 || !answer.complete) break;
    }
  } else {
    answer.body = read_to_end();
  }
  return answer;
}

std::string http_request(std::string_view method, std::string_view path, std::string_view body,
                         const std::vector<std::string>& headers) {
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\n", method, path);
  for (const std::string& header : headers) out += header + "\r\n";
  if (!body.empty() || method == "POST") out += fmt::format("Content-Length: {}\r\n", body.size());
  return out + "\r\n" + std::string(body);
}

Answer ask(uint16_t port, std::string_view method, std::string_view path, std::string_view body,
           const std::vector<std::string>& headers) {
  Client client(port);
  client.send(http_request(method, path, body, headers));
  return client.read(method == "HEAD");
}

std::vector<std::string> sse_data(std::string_view stream) {
  constexpr std::string_view kData = "data: ";
  std::vector<std::string> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = std::min(stream.find('\n', at), stream.size());
    const std::string_view line = stream.substr(at, end - at);
    if (line.starts_with(kData)) out.emplace_back(line.substr(kData.size()));
    at = end + 1;
  }
  return out;
}

}  // namespace tern::test
