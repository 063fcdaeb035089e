// Streams that survive their connection: what was said last is kept, numbered, and told again to whoever comes back
// with a Last-Event-ID, or asks from time to time. The answer goes on in the meantime.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http.h"

namespace tern::server {

struct StreamLimits {
  size_t window = 1 << 20;  // bytes of the newest events that are kept
  size_t streams = 64;
  /// How long one is kept after its end, and how long it goes on with nobody reading.
  std::chrono::milliseconds keep{120'000};
};

class Streams {
 public:
  explicit Streams(const StreamLimits& limits);
  ~Streams();

  /// Takes over the Source of a streamed reply of server-sent events. The new reply has the header X-Stream-Id, and its
  /// events have ids. ApiError 503 when there are too many that have not ended.
  Reply record(Reply reply);
  /// Events behind number `last` (0: all), then what comes. ApiError 404 for an unknown stream, 410 when the window has
  /// moved on.
  Reply resume(const std::string& id, uint64_t last);
  /// The same without waiting, as JSON: {id, events: [{id, data}], done}.
  Reply poll(const std::string& id, uint64_t last);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tern::server
