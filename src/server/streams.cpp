#include "server/streams.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "server/api_error.h"
#include "server/generation.h"

namespace tern::server {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  uint64_t number;   // from 1
  std::string text;  // its lines, without the empty one that ends it
};

class Reader;

/// One stream. Its Source is asked by the clerk's thread; readers look at what has been kept.
struct Recording {
  std::mutex mutex;
  std::deque<Event> events;
  size_t bytes = 0;
  uint64_t next_number = 1;
  bool ended = false;
  std::set<Reader*> readers;
  Clock::time_point touched = Clock::now();  // the last reader left, or the stream ended
  std::shared_ptr<Source> source;            // the clerk's alone

  void keep(const std::string& piece, size_t window) {
    for (size_t at = 0; at < piece.size();) {
      const size_t end = std::min(piece.find("\n\n", at), piece.size());
      if (end > at && piece[at] != ':') {
        events.push_back({next_number++, piece.substr(at, end - at)});
        bytes += events.back().text.size();
      }
      at = end + 2;
    }
    for (; bytes > window && events.size() > 1; events.pop_front()) bytes -= events.front().text.size();
  }
  uint64_t first() const { return events.empty() ? next_number : events.front().number; }
};

class Reader final : public Source {
 public:
  Reader(std::shared_ptr<Recording> recording, uint64_t last) : recording_(std::move(recording)), last_(last) {
    const std::lock_guard lock(recording_->mutex);
    recording_->readers.insert(this);
  }
  ~Reader() override {
    const std::lock_guard lock(recording_->mutex);
    recording_->readers.erase(this);
    recording_->touched = Clock::now();
  }
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(recording_->mutex);
    wake_ = std::move(wake);
  }
  Piece next() override {
    const std::lock_guard lock(recording_->mutex);
    Piece piece;
    if (last_ < recording_->first() - 1) {  // it was too slow, and what it had not read is gone
      piece.bytes = sse(openai_error({410, "gone_error", "the stream has moved on beyond what is kept of it"}));
      piece.end = true;
      return piece;
    }
    for (const Event& event : recording_->events) {
      if (event.number <= last_) continue;
      piece.bytes += fmt::format("id: {}\n{}\n\n", event.number, event.text);
      last_ = event.number;
    }
    piece.end = recording_->ended;
    return piece;
  }
  std::string idle() override { return ": keep-alive\n\n"; }
  /// With the recording's lock held.
  void wake() const {
    if (wake_) wake_();
  }

 private:
  std::shared_ptr<Recording> recording_;
  uint64_t last_;
  std::function<void()> wake_;
};

}  // namespace

struct Streams::Impl {
  const StreamLimits limits;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Recording>> recordings;
  std::vector<std::shared_ptr<Recording>> due;  // to be asked
  bool ending = false;
  std::thread clerk;

  explicit Impl(const StreamLimits& l) : limits(l), clerk([this] { work(); }) {}
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_all();
    clerk.join();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (!ending) {
      if (due.empty()) {
        if (recordings.empty()) {
          changed.wait(lock);
        } else {
          changed.wait_for(lock, limits.keep / 4);
        }
      }
      const auto asked = std::exchange(due, {});
      auto expired = take_expired();
      lock.unlock();
      for (const auto& recording : asked) ask(*recording);
      expired.clear();  // cancels, without the lock
      lock.lock();
    }
  }

  void ask(Recording& recording) {
    if (!recording.source) return;
    Source::Piece piece;
    try {
      piece = recording.source->next();
    } catch (...) {  // out of memory, say: the clerk has others to serve
      piece = {.bytes = sse(openai_error(current_error())), .end = true};
    }
    if (piece.end) recording.source.reset();
    const std::lock_guard lock(recording.mutex);
    recording.keep(piece.bytes, limits.window);
    if (piece.end) {
      recording.ended = true;
      recording.touched = Clock::now();
    }
    for (const Reader* reader : recording.readers) reader->wake();
  }

  std::vector<std::shared_ptr<Recording>> take_expired() {
    std::vector<std::shared_ptr<Recording>> out;
    for (auto it = recordings.begin(); it != recordings.end();) {
      const std::lock_guard lock(it->second->mutex);
      const bool unread = it->second->readers.empty() || it->second->ended;
      if (unread && Clock::now() - it->second->touched > limits.keep) {
        out.push_back(it->second);
        it = recordings.erase(it);
      } else {
        ++it;
      }
    }
    return out;
  }

  /// Makes room for one more: one that has ended goes, the oldest first.
  void make_room() {
    if (recordings.size() < limits.streams) return;
    auto oldest = recordings.end();
    auto when = Clock::time_point::max();
    for (auto it = recordings.begin(); it != recordings.end(); ++it) {
      const std::lock_guard lock(it->second->mutex);
      if (!it->second->ended || it->second->touched >= when) continue;
      oldest = it;
      when = it->second->touched;
    }
    if (oldest == recordings.end()) {
      ApiError full(503, "unavailable_error",
                    fmt::format("{} resumable streams have not ended: try again later", recordings.size()));
      full.retry_after = 5;
      throw full;
    }
    recordings.erase(oldest);
  }

  std::shared_ptr<Recording> find(const std::string& id) {
    const std::lock_guard lock(mutex);
    const auto it = recordings.find(id);
    if (it == recordings.end())
      throw ApiError(404, "not_found_error", fmt::format("there is no stream '{}', or it is no longer kept", id));
    return it->second;
  }

  Reply reader(const std::string& id, const std::shared_ptr<Recording>& recording, uint64_t last, HttpResponse head) {
    head.headers.emplace_back("X-Stream-Id", id);
    return Reply::stream(std::move(head), std::make_shared<Reader>(recording, last));
  }
};

Streams::Streams(const StreamLimits& limits) : impl_(std::make_shared<Impl>(limits)) {}
Streams::~Streams() = default;

Reply Streams::record(Reply reply) {
  auto recording = std::make_shared<Recording>();
  const std::string id = random_id();
  recording->source = reply.source;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->make_room();
    impl_->recordings[id] = recording;
  }
  Reply out = impl_->reader(id, recording, 0, std::move(reply.head));
  reply.source->start([all = std::weak_ptr<Impl>(impl_), one = std::weak_ptr<Recording>(recording)] {
    const auto impl = all.lock();
    const auto alive = one.lock();
    if (!impl || !alive) return;
    const std::lock_guard lock(impl->mutex);
    impl->due.push_back(alive);
    impl->changed.notify_one();
  });
  const std::lock_guard lock(impl_->mutex);
  impl_->due.push_back(recording);  // its beginning
  impl_->changed.notify_one();
  return out;
}

Reply Streams::resume(const std::string& id, uint64_t last) {
  const auto recording = impl_->find(id);
  {
    const std::lock_guard lock(recording->mutex);
    if (last < recording->first() - 1)
      throw ApiError(
          410, "gone_error",
          fmt::format("of the stream '{}' events from {} on are kept, not from {}", id, recording->first(), last + 1));
  }
  return impl_->reader(id, recording, last, {.type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
}

Reply Streams::poll(const std::string& id, uint64_t last) {
  const auto recording = impl_->find(id);
  const std::lock_guard lock(recording->mutex);
  recording->touched = Clock::now();
  Json events = Json::array();
  for (const Event& event : recording->events) {
    constexpr std::string_view kData = "data: ";
    if (event.number <= last) continue;
    const size_t data = event.text.find(kData);
    events.push_back(
        {{"id", event.number}, {"data", data == std::string::npos ? "" : event.text.substr(data + kData.size())}});
  }
  return json_response(
      {{"id", id}, {"first", recording->first()}, {"events", std::move(events)}, {"done", recording->ended}});
}

}  // namespace tern::server
