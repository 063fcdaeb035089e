// Many answers at once: one thread that owns a Model's Runner and steps all sequences together. Every iteration drains
// cancels, admits, takes a chunk of prefill and decodes all running sequences in one batch. Everything public may be
// called from any thread. The rules of admission stand in scheduler_core.h.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "engine/thinking.h"
#include "text/grammar.h"

namespace tern {

using RequestId = uint64_t;

struct TokenChance {
  int32_t token = -1;
  float logprob = 0;
};

/// What is told about an answer while it grows.
struct TokenEvent {
  int32_t token = -1;
  std::string text{};  // what may be shown by now: valid UTF-8, often empty, never part of a stop string
  float logprob = 0;   // when logprobs were asked for
  std::vector<TokenChance> top{};
};

struct PromptProgress {
  int64_t total = 0, cached = 0, processed = 0;  // tokens; processed includes cached
  double seconds = 0;
};

/// Why an answer failed.
struct Failure {
  std::string message{};
  std::optional<ErrorCode> code{};  // of a failure of the world; nothing: a fault of ours
  /// Of the exception being handled.
  static Failure current() noexcept;
};

enum class EndReason : uint8_t { kEndOfText, kStopString, kStopToken, kLength, kCancelled, kFailed };

/// The end of an answer, with the engine's own clocks.
struct Ending {
  EndReason reason = EndReason::kFailed;
  std::string text{};              // shown last: what was held back and no stop string took
  std::string stop{};              // the stop string that ended it
  Failure failure{};               // of kFailed
  std::vector<float> embedding{};  // [n_embd] of a request that asked for it, not normalised
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double queue_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
  double first_token_seconds = 0;  // from submit()
};

/// Hears about one answer. Called from the scheduler's thread, in order, on_end exactly once and last; must not block.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_prompt(const PromptProgress&) {}
  virtual void on_token(const TokenEvent&) = 0;
  virtual void on_end(const Ending&) = 0;
};

/// How the hidden states of a prompt, behind the final norm, become one.
enum class Pooling : uint8_t { kMean, kLast };

struct Request {
  std::vector<int32_t> prompt;     // at least one token
  std::optional<Pooling> embed{};  // asks for Ending::embedding in place of an answer
  SamplerOptions sampling{};
  int64_t max_tokens = -1;  // < 0: what fits
  std::vector<std::string> stop{};
  std::vector<int32_t> stop_tokens{};
  std::vector<std::pair<int32_t, float>> logit_bias{};  // added; -infinity bans
  int32_t top_logprobs = -1;                            // < 0: no log probabilities
  std::shared_ptr<const text::Grammar> grammar{};
  std::optional<Thinking> thinking{};  // the grammar begins behind the thought
  bool ignore_end = false;             // go on behind an end-of-generation token
  bool show_special = false;           // control tokens appear in the text
  bool cache_prompt = true;            // may use and leave a cached prefix
};

/// One sequence of the scheduler, for /slots.
struct SlotInfo {
  RequestId id = 0;
  enum class State : uint8_t { kQueued, kPrompt, kDecode } state = State::kQueued;
  int32_t queue_position = 0;  // from 1, of a queued one
  int64_t prompt_tokens = 0, processed = 0, generated = 0;
};

struct SchedulerStats {
  int32_t queued = 0, running = 0;
  int32_t pages = 0, pages_free = 0, pages_cached = 0;  // cached: held by the prefix cache alone
  int32_t states = 0, states_free = 0, states_cached = 0;
  uint64_t requests = 0, finished = 0, cancelled = 0, failed = 0, steps = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double busy_seconds = 0;
  /// Why the backend fails: two batches or more in a row, the scheduler's own probes among them. Empty when it works.
  std::string failing{};
  std::vector<SlotInfo> slots{};  // running first, then the queue in order
};

struct SchedulerLimits {
  int32_t queue = 512;  // waiting requests; more are refused
  int32_t chunk = 256;  // most rows of prefill in a step that also decodes; fewer where that doubles its time
  bool prefix_cache = true;
};

/// Thrown by submit() when the queue is full: try again later.
class QueueFull : public Error {
 public:
  using Error::Error;
};

class Scheduler {
 public:
  /// `model` is used by nobody else from here on.
  Scheduler(std::shared_ptr<Model> model, const SchedulerLimits& limits);
  /// Ends everything with kCancelled.
  ~Scheduler();

  /// kContextFull with both numbers for a request that can never fit, kInvalidArgument for what makes no sense,
  /// QueueFull. The listener lives until on_end returned.
  RequestId submit(Request request, std::shared_ptr<Listener> listener);
  /// Ends a request at the next step, in whatever state it is; unknown ids are ignored.
  void cancel(RequestId id);
  SchedulerStats stats() const;
  /// Tokens that one request may hold, prompt and answer together: what is advertised is what is admitted.
  int32_t context() const noexcept;
  /// Requests that may run and wait together: more at a time are never taken.
  int32_t capacity() const noexcept;
  Model& model() const noexcept;
  /// Waits until nothing is queued or running.
  void drain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern
