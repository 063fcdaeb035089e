// Streaming clients of /v1/completions, all on one thread, that take next to nothing from the server they time: one
// poll() for all sockets, a scan of lines, no JSON but of the first and the last word.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tern::bench {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Address {
  std::string host, port;
  /// Of "http://HOST:PORT". kInvalidArgument for anything else.
  static Address of(std::string_view url);
};

/// One request, its answer as JSON. kIo when the server does not answer or refuses.
Json call(const Address& server, std::string_view method, std::string_view path, const Json& body = nullptr);

/// One streamed completion, from its request to its end. Destroying it hangs up.
class Stream {
 public:
  /// Connects and sends. `body` is that of POST /v1/completions, with "stream" and the usage asked for.
  Stream(const Address& server, const Json& body);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  /// Takes what has come. kIo when that is no stream of a completion, or its end came too early.
  void read();

  bool ended() const noexcept { return ended_; }
  Clock::time_point sent() const noexcept { return sent_; }
  /// When each piece of text came; most tokens are one.
  const std::vector<Clock::time_point>& pieces() const noexcept { return pieces_; }
  // As the server counts them; 0 before the end.
  int64_t generated() const noexcept { return generated_; }
  int64_t prompt() const noexcept { return prompt_; }
  int64_t cached() const noexcept { return cached_; }

 private:
  void scan(Clock::time_point now);
  void line(std::string_view text, Clock::time_point now);

  int descriptor_ = -1;
  std::string buffer_;  // read and not looked at
  bool streams_ = false, ended_ = false;
  Clock::time_point sent_;
  std::vector<Clock::time_point> pieces_;
  int64_t generated_ = 0, prompt_ = 0, cached_ = 0;
};

using Streams = std::vector<std::unique_ptr<Stream>>;

/// Reads from all until `enough`, which is asked after each look, or until all have ended. kIo after a minute of
/// silence.
void pump(
    const Streams& streams, const std::function<bool()>& enough = [] { return false; });

/// `tern serve` on a free port, until destroyed.
class OwnServer {
 public:
  /// Returns when the model is loaded. kIo with what it said when it is not.
  OwnServer(const std::string& tern, const std::vector<std::string>& arguments);
  ~OwnServer();
  OwnServer(const OwnServer&) = delete;
  OwnServer& operator=(const OwnServer&) = delete;
  const std::string& url() const noexcept { return url_; }

 private:
  std::string url_;
  pid_t process_ = -1;
  int errors_ = -1;  // its stderr, which has to stay open
};

}  // namespace tern::bench
