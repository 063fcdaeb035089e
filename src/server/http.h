// What handlers see of HTTP: plain requests, answers, and answers that take time. Nothing here knows of sockets.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tern::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;      // "GET"
  std::string path;        // decoded, without the query
  std::string parameters;  // behind the '?', as sent
  Headers headers{};       // names in lower case
  std::string body{};
  std::string segment{};  // what stood for `{id}` in the path of the route

  /// Empty when there is none; the first when there are several. `name` in lower case.
  std::string_view header(std::string_view name) const;
  /// Of the query, decoded; empty when there is none.
  std::string parameter(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json; charset=utf-8";
  std::string body{};
  Headers headers{};
};

/// An answer that takes time. The server calls it from one thread at a time and destroys it when the body has ended or
/// nobody is there to read it: the destructor cancels the work.
class Source {
 public:
  virtual ~Source() = default;
  /// Called once, first. `wake` says that next() has something new; from any thread, as often as liked, also when the
  /// Source is gone. It never blocks.
  virtual void start(std::function<void()> wake) = 0;
  struct Piece {
    std::string bytes{};
    bool end = false;
  };
  /// What there is by now, possibly nothing. Never blocks. Must not throw.
  virtual Piece next() = 0;
  /// Sent when nothing else was for a while, so that proxies and clients keep the connection. May be empty.
  virtual std::string idle() { return {}; }
  /// Of an answer that is sent whole: called once, after the Piece with `end`.
  virtual HttpResponse whole() { return {.status = 500}; }
};

struct Reply {
  Reply(HttpResponse whole) : head(std::move(whole)) {}  // NOLINT(google-explicit-constructor)
  /// The body is streamed behind `head`.
  static Reply stream(HttpResponse head, std::shared_ptr<Source> source) {
    return {std::move(head), std::move(source), true};
  }
  /// Nothing is sent before the Source has ended; then its whole(), with the headers of `head` added.
  static Reply late(std::shared_ptr<Source> source) { return {{}, std::move(source), false}; }

  HttpResponse head;
  std::shared_ptr<Source> source{};
  bool streamed = false;

 private:
  Reply(HttpResponse h, std::shared_ptr<Source> s, bool is_streamed)
      : head(std::move(h)), source(std::move(s)), streamed(is_streamed) {}
};

/// Answers a request; runs on a thread that may be kept busy, several at a time.
using Handler = std::function<Reply(HttpRequest&)>;

/// "%20" and the like; '+' stays. Bytes that are no escape stay as they are.
std::string percent_decoded(std::string_view text);
/// With '?' for control characters, so that a decoded path stays one line of a log and says nothing to a terminal.
std::string one_line(std::string text);

}  // namespace tern::server
