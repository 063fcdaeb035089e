// One or several answers to a prompt while they grow: what every API reads, and says in its own words. Events come from
// the scheduler's thread into a mailbox; whoever serves the client takes them out, parses and formats.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/registry.h"
#include "text/reply_parser.h"

namespace tern::server {

class Generation;

/// The generations in flight, by id, so that a client can cancel one. Any thread.
class Running {
 public:
  void add(const std::string& id, std::weak_ptr<Generation> generation);
  void remove(const std::string& id);
  /// False when there is none of this id.
  bool cancel(const std::string& id);

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Generation>> generations_;
};

struct ToolCall {
  std::string id, name, arguments;
};

/// All about one answer; complete when `ended`.
struct Choice {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  std::vector<TokenEvent> tokens;  // when log probabilities were asked for
  int64_t generated = 0, reasoning_tokens = 0;
  bool ended = false;
  Ending ending;
};

/// One step of one answer.
struct GenerationEvent {
  int32_t choice = 0;
  std::vector<text::ReplyDelta> deltas{};  // what a token, or the end, adds
  std::optional<TokenEvent> token{};       // its text is in `deltas` by then
  std::optional<PromptProgress> progress{};
  bool ended = false;
};

struct GenerationJob {
  ServedPtr model;
  Request request;
  int32_t choices = 1;
  uint64_t seed = 0;  // of the first choice; the others count on
  /// Answers are taken apart when set, else all text is content.
  std::optional<text::ReplyOptions> reply{};
  bool parallel_calls = true;  // false: an answer ends behind its first tool call
  std::string id{};            // as clients know it
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// Submits. Errors as Scheduler::submit; nothing runs then.
  static std::shared_ptr<Generation> begin(GenerationJob job, Metrics& metrics, Running& running);
  /// Cancels what has not ended.
  ~Generation();

  /// `wake` is told when take() has something new.
  void on_news(std::function<void()> wake);
  /// What happened since the last call, in order. One thread at a time.
  std::vector<GenerationEvent> take();
  /// Every choice has ended, and take() has told so.
  bool ended() const noexcept { return open_ == 0; }
  void cancel();

  const ServedModel& model() const { return *job_.model; }
  const std::string& id() const { return job_.id; }
  int64_t created() const { return created_; }
  const std::vector<Choice>& choices() const { return choices_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  struct Mailbox;
  class Postman;
  Generation(GenerationJob job, Metrics& metrics, Running& running);
  void submit();
  void absorb(GenerationEvent& event);
  void token(GenerationEvent& event, TokenEvent told);
  void end(GenerationEvent& event, Ending ending);

  GenerationJob job_;
  Metrics& metrics_;
  Running& running_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<RequestId> ids_;
  std::vector<Choice> choices_;
  std::vector<text::ReplyParser> parsers_;
  std::vector<bool> reasoning_now_;
  size_t open_ = 0;
  const bool keep_tokens_;
  int64_t created_ = 0, prompt_tokens_ = 0;
};

/// Base of what answers a request with a Generation: streamed event by event, or whole at its end.
class GenerationSource : public Source {
 public:
  GenerationSource(std::shared_ptr<Generation> generation, bool streamed)
      : generation_(std::move(generation)), streamed_(streamed) {}
  void start(std::function<void()> wake) override { generation_->on_news(std::move(wake)); }
  Piece next() final;
  std::string idle() override { return ": keep-alive\n\n"; }
  HttpResponse whole() final;

 protected:
  // Of a stream: appended to `out`.
  virtual void begin(std::string&) {}
  virtual void event(const GenerationEvent& event, std::string& out) = 0;
  virtual void finish(std::string& out) = 0;
  /// The answer that is not streamed. When the first choice failed, an error is sent in its place.
  virtual HttpResponse complete() = 0;
  virtual ErrorEnvelope envelope() const { return openai_error; }

  Generation& generation() const { return *generation_; }

 private:
  std::shared_ptr<Generation> generation_;
  const bool streamed_;
  bool begun_ = false;
};

/// 128 random bits in hexadecimal.
std::string random_id();
/// "data: {...}\n\n".
std::string sse(const Json& data);
/// The same of an event with the name that `type` in `data` says.
std::string typed_sse(const Json& data);

/// "stop", "length", "tool_calls", "cancelled", "error": in OpenAI's words.
std::string_view finish_reason(const Choice& choice);
/// {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details, completion_tokens_details} of all choices.
Json usage(const Generation& generation);
/// llama.cpp's `timings`, from the engine's clocks.
Json timings(const Ending& ending);

}  // namespace tern::server
