#include "serve_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tern::bench {
namespace {

constexpr int kSilence = 60'000;  // milliseconds

int connect_to(const Address& server) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found); error != 0)
    fail(ErrorCode::kIo, "cannot look up {}: {}", server.host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  const int descriptor = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(descriptor, found->ai_addr, found->ai_addrlen) != 0) {
    ::close(descriptor);
    fail(ErrorCode::kIo, "cannot connect to {}:{}: {}", server.host, server.port, std::strerror(errno));
  }
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return descriptor;
}

void send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) fail(ErrorCode::kIo, "cannot send: {}", std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

std::string request_text(const Address& server, std::string_view method, std::string_view path, const Json& body) {
  const std::string text = body.is_null() ? "" : body.dump();
  return fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", method, path,
                     server.host, server.port, text.size(), text);
}

int64_t integer(const Json& object, const char* name) {
  return object.is_object() ? object.value(name, int64_t{0}) : 0;
}

}  // namespace

Address Address::of(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const size_t colon = url.rfind(':');
  if (!url.starts_with(kScheme) || colon < kScheme.size())
    fail(ErrorCode::kInvalidArgument, "'{}' is no http://HOST:PORT", url);
  std::string_view port = url.substr(colon + 1);
  if (port.ends_with('/')) port.remove_suffix(1);
  return {std::string(url.substr(kScheme.size(), colon - kScheme.size())), std::string(port)};
}

Json call(const Address& server, std::string_view method, std::string_view path, const Json& body) {
  const int descriptor = connect_to(server);
  send_all(descriptor, request_text(server, method, path, body));
  std::string answer;
  char piece[16384];
  for (ssize_t n; (n = ::recv(descriptor, piece, sizeof piece, 0)) > 0;) answer.append(piece, static_cast<size_t>(n));
  ::close(descriptor);
  const size_t head = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 200 ") || head == std::string::npos)
    fail(ErrorCode::kIo, "{} {} of {}:{} answered: {}", method, path, server.host, server.port, answer.substr(0, 500));
  return Json::parse(answer.substr(head + 4));
}

Stream::Stream(const Address& server, const Json& body) : descriptor_(connect_to(server)) {
  const std::string text = request_text(server, "POST", "/v1/completions", body);
  sent_ = Clock::now();
  send_all(descriptor_, text);
}

Stream::~Stream() {
  ::close(descriptor_);
}

void Stream::read() {
  char piece[65536];
  const ssize_t n = ::recv(descriptor_, piece, sizeof piece, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) fail(ErrorCode::kIo, "a stream ended without its end; last came: {}", buffer_.substr(0, 500));
  const auto now = Clock::now();
  buffer_.append(piece, static_cast<size_t>(n));
  if (!streams_) {
    if (buffer_.find("\r\n\r\n") == std::string::npos) return;
    if (!buffer_.starts_with("HTTP/1.1 200 ")) fail(ErrorCode::kIo, "a completion was refused: {}", buffer_);
    streams_ = true;
  }
  scan(now);
}

/// Whole lines. The sizes of chunks are lines of their own; tern writes no event in parts.
void Stream::scan(Clock::time_point now) {
  size_t at = 0;
  for (size_t end; !ended_ && (end = buffer_.find('\n', at)) != std::string::npos; at = end + 1)
    line(std::string_view(buffer_).substr(at, end - at), now);
  buffer_.erase(0, at);
}

void Stream::line(std::string_view text, Clock::time_point now) {
  constexpr std::string_view kData = "data: ";
  if (!text.starts_with(kData)) return;
  text.remove_prefix(kData.size());
  if (text.starts_with("[DONE]")) {
    ended_ = true;
  } else if (text.starts_with("{\"error\"")) {
    fail(ErrorCode::kIo, "a stream failed: {}", text);
  } else if (text.find("\"usage\":{") != std::string_view::npos) {
    const Json usage = Json::parse(text)["usage"];
    generated_ = integer(usage, "completion_tokens");
    prompt_ = integer(usage, "prompt_tokens");
    if (const auto details = usage.find("prompt_tokens_details"); details != usage.end())
      cached_ = integer(*details, "cached_tokens");
  } else if (text.find("\"text\":\"\"") == std::string_view::npos) {
    pieces_.push_back(now);
  }
}

void pump(const Streams& streams, const std::function<bool()>& enough) {
  std::vector<pollfd> waiting;
  std::vector<Stream*> whose;
  for (;;) {
    waiting.clear();
    whose.clear();
    for (const auto& stream : streams) {
      if (stream->ended()) continue;
      waiting.push_back({stream->descriptor(), POLLIN, 0});
      whose.push_back(stream.get());
    }
    if (waiting.empty()) return;
    const int ready = ::poll(waiting.data(), waiting.size(), kSilence);
    if (ready == 0) fail(ErrorCode::kIo, "{} streams have been silent for a minute", waiting.size());
    for (size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) whose[i]->read();
    if (enough()) return;
  }
}

OwnServer::OwnServer(const std::string& tern, const std::vector<std::string>& arguments) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) fail(ErrorCode::kIo, "no pipe: {}", std::strerror(errno));
  std::vector<std::string> words{tern, "serve", "--port", "0"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], std::strerror(errno));
    ::_exit(127);
  }
  ::close(pipe[1]);
  errors_ = pipe[0];
  std::string said;
  char piece[4096];
  while (said.find("loaded in") == std::string::npos) {
    const ssize_t n = ::read(errors_, piece, sizeof piece);
    if (n <= 0) {
      ::waitpid(process_, nullptr, 0);
      ::close(errors_);
      fail(ErrorCode::kIo, "the server did not start: {}", said);
    }
    said.append(piece, static_cast<size_t>(n));
  }
  const size_t url = said.find("http://");
  url_ = said.substr(url, said.find('\n', url) - url);
}

OwnServer::~OwnServer() {
  ::kill(process_, SIGTERM);
  ::waitpid(process_, nullptr, 0);
  ::close(errors_);
}

}  // namespace tern::bench
