#include "server/generation.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>
#include <variant>

#include "base/log.h"

namespace tern::server {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void Running::add(const std::string& id, std::weak_ptr<Generation> generation) {
  const std::lock_guard lock(mutex_);
  generations_[id] = std::move(generation);
}

void Running::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  generations_.erase(id);
}

bool Running::cancel(const std::string& id) {
  std::shared_ptr<Generation> generation;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = generations_.find(id); it != generations_.end()) generation = it->second.lock();
  }
  if (generation) generation->cancel();
  return generation != nullptr;
}

/// Between the scheduler's thread and the one that serves the client.
struct Generation::Mailbox {
  struct Letter {
    int32_t choice;
    std::variant<PromptProgress, TokenEvent, Ending> what;
  };
  std::mutex mutex;
  std::vector<Letter> letters;
  std::function<void()> wake;

  void put(Letter letter) {
    std::function<void()> ring;
    {
      const std::lock_guard lock(mutex);
      if (letters.empty()) ring = wake;  // who was woken takes all
      letters.push_back(std::move(letter));
    }
    if (ring) ring();
  }
};

/// The Listener of one choice. Lives as long as the scheduler needs it, so it holds the mailbox and nothing more.
class Generation::Postman final : public Listener {
 public:
  Postman(std::shared_ptr<Mailbox> mailbox, int32_t choice, Metrics& metrics, Clock::time_point arrived)
      : mailbox_(std::move(mailbox)), choice_(choice), metrics_(metrics), last_(arrived) {}
  void on_prompt(const PromptProgress& progress) override { mailbox_->put({choice_, progress}); }
  void on_token(const TokenEvent& event) override {
    const auto now = Clock::now();
    const double waited = seconds_since(std::exchange(last_, now), now);
    if (std::exchange(begun_, true)) {
      metrics_.between_tokens(waited);
    } else {
      metrics_.first_token(waited);
    }
    mailbox_->put({choice_, event});
  }
  void on_end(const Ending& ending) override { mailbox_->put({choice_, ending}); }

 private:
  std::shared_ptr<Mailbox> mailbox_;
  const int32_t choice_;
  Metrics& metrics_;
  Clock::time_point last_;
  bool begun_ = false;
};

std::shared_ptr<Generation> Generation::begin(GenerationJob job, Metrics& metrics, Running& running) {
  std::shared_ptr<Generation> generation(new Generation(std::move(job), metrics, running));
  generation->submit();
  running.add(generation->id(), generation);
  return generation;
}

Generation::Generation(GenerationJob job, Metrics& metrics, Running& running)
    : job_(std::move(job)),
      metrics_(metrics),
      running_(running),
      mailbox_(std::make_shared<Mailbox>()),
      choices_(static_cast<size_t>(job_.choices)),
      open_(choices_.size()),
      keep_tokens_(job_.request.top_logprobs >= 0),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      prompt_tokens_(static_cast<int64_t>(job_.request.prompt.size())) {
  if (job_.reply)
    for (size_t i = 0; i < choices_.size(); ++i) {
      text::ReplyOptions options = *job_.reply;
      options.id_seed += i;
      parsers_.emplace_back(job_.model->reply_format, options);
    }
  reasoning_now_.assign(choices_.size(), job_.reply && job_.reply->in_reasoning);
}

void Generation::submit() {
  const auto arrived = Clock::now();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Request request = job_.request;
    request.sampling.seed = job_.seed + i;
    const auto choice = static_cast<int32_t>(i);
    // When a later one is refused, the destructor cancels those before it.
    ids_.push_back(job_.model->scheduler->submit(std::move(request),
                                                 std::make_shared<Postman>(mailbox_, choice, metrics_, arrived)));
  }
  job_.request = {};
}

Generation::~Generation() {
  running_.remove(job_.id);
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->wake = {};
  }
  if (!ended()) cancel();
}

void Generation::cancel() {
  for (const RequestId id : ids_) job_.model->scheduler->cancel(id);
}

void Generation::on_news(std::function<void()> wake) {
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->wake = std::move(wake);
}

std::vector<GenerationEvent> Generation::take() {
  std::vector<Mailbox::Letter> letters;
  {
    const std::lock_guard lock(mailbox_->mutex);
    letters.swap(mailbox_->letters);
  }
  std::vector<GenerationEvent> events;
  for (Mailbox::Letter& letter : letters) {
    GenerationEvent event{.choice = letter.choice};
    if (auto* progress = std::get_if<PromptProgress>(&letter.what)) {
      event.progress = *progress;
    } else if (auto* told = std::get_if<TokenEvent>(&letter.what)) {
      token(event, std::move(*told));
    } else {
      end(event, std::move(std::get<Ending>(letter.what)));
    }
    events.push_back(std::move(event));
  }
  return events;
}

void Generation::token(GenerationEvent& event, TokenEvent told) {
  const auto c = static_cast<size_t>(event.choice);
  ++choices_[c].generated;
  if (parsers_.empty()) {
    if (!told.text.empty()) event.deltas.push_back({.text = told.text});
  } else if (!told.text.empty()) {
    event.deltas = parsers_[c].push(told.text);
  }
  absorb(event);
  if (reasoning_now_[c]) ++choices_[c].reasoning_tokens;
  if (keep_tokens_) choices_[c].tokens.push_back(told);
  event.token = std::move(told);
}

void Generation::end(GenerationEvent& event, Ending ending) {
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  if (parsers_.empty()) {
    if (!ending.text.empty()) event.deltas.push_back({.text = ending.text});
  } else {
    text::ReplyParser& parser = parsers_[static_cast<size_t>(event.choice)];
    event.deltas = parser.push(ending.text);
    const bool cut = ending.reason == EndReason::kLength || ending.reason == EndReason::kCancelled;
    for (text::ReplyDelta& delta : parser.finish(cut)) event.deltas.push_back(std::move(delta));
  }
  absorb(event);
  event.ended = choice.ended = true;
  choice.ending = std::move(ending);
  const Failure& failure = choice.ending.failure;
  if (choice.ending.reason == EndReason::kFailed && failure.code != ErrorCode::kInvalidArgument)
    spdlog::error("{} failed: {}", job_.id, failure.message);
  if (--open_ == 0) running_.remove(job_.id);
}

/// Adds the deltas to the choice.
void Generation::absorb(GenerationEvent& event) {
  const auto c = static_cast<size_t>(event.choice);
  Choice& choice = choices_[c];
  if (!job_.parallel_calls) {
    const size_t before = event.deltas.size();
    std::erase_if(event.deltas, [](const text::ReplyDelta& delta) { return delta.call > 0; });
    if (event.deltas.size() < before) job_.model->scheduler->cancel(ids_[c]);
  }
  for (const text::ReplyDelta& delta : event.deltas) {
    reasoning_now_[c] = delta.kind == text::ReplyDelta::Kind::kReasoning;
    switch (delta.kind) {
      case text::ReplyDelta::Kind::kContent:
        choice.content += delta.text;
        break;
      case text::ReplyDelta::Kind::kReasoning:
        choice.reasoning += delta.text;
        break;
      case text::ReplyDelta::Kind::kToolCall:
        if (static_cast<size_t>(delta.call) >= choice.calls.size())
          choice.calls.push_back({.id = delta.id, .name = delta.name, .arguments = {}});
        choice.calls[static_cast<size_t>(delta.call)].arguments += delta.text;
    }
  }
}

Source::Piece GenerationSource::next() {
  Piece piece;
  if (streamed_ && !std::exchange(begun_, true)) begin(piece.bytes);
  for (const GenerationEvent& told : generation_->take())
    if (streamed_) event(told, piece.bytes);
  piece.end = generation_->ended();
  if (piece.end && streamed_) finish(piece.bytes);
  return piece;
}

HttpResponse GenerationSource::whole() {
  const Choice& first = generation_->choices().front();
  if (first.ending.reason == EndReason::kFailed) return error_response(error_of(first.ending.failure), envelope());
  return complete();
}

std::string random_id() {
  thread_local std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", device());
  return out;
}

std::string sse(const Json& data) {
  return "data: " + dump(data) + "\n\n";
}

std::string typed_sse(const Json& data) {
  return fmt::format("event: {}\n", data.at("type").get<std::string>()) + sse(data);
}

std::string_view finish_reason(const Choice& choice) {
  if (choice.ending.reason == EndReason::kFailed) return "error";
  if (choice.ending.reason == EndReason::kLength) return "length";
  if (!choice.calls.empty()) return "tool_calls";  // also of one ended behind its first call
  return choice.ending.reason == EndReason::kCancelled ? "cancelled" : "stop";
}

Json usage(const Generation& generation) {
  int64_t completion = 0, reasoning = 0;
  for (const Choice& choice : generation.choices()) {
    completion += choice.ended ? choice.ending.generated_tokens : choice.generated;
    reasoning += choice.reasoning_tokens;
  }
  const int64_t prompt = generation.prompt_tokens();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", generation.choices().front().ending.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

Json timings(const Ending& ending) {
  const int64_t read = ending.prompt_tokens - ending.cached_tokens;
  const auto per = [](double value, int64_t n) { return n > 0 ? value / static_cast<double>(n) : 0; };
  const auto rate = [](int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  return {{"cache_n", ending.cached_tokens},
          {"prompt_n", read},
          {"prompt_ms", ending.prompt_seconds * 1e3},
          {"prompt_per_token_ms", per(ending.prompt_seconds * 1e3, read)},
          {"prompt_per_second", rate(read, ending.prompt_seconds)},
          {"predicted_n", ending.generated_tokens},
          {"predicted_ms", ending.decode_seconds * 1e3},
          {"predicted_per_token_ms", per(ending.decode_seconds * 1e3, ending.generated_tokens)},
          {"predicted_per_second", rate(ending.generated_tokens, ending.decode_seconds)},
          {"queue_ms", ending.queue_seconds * 1e3},
          {"first_token_ms", ending.first_token_seconds * 1e3}};
}

}  // namespace tern::server
