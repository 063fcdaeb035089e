#include "engine/scheduler_core.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tern {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kSparseCheckpoints = 4;       // of a long prompt, at equal distances
constexpr int32_t kLeastSparseDistance = 1024;  // tokens between them
constexpr int32_t kWorthWaiting = kPageTokens;  // tokens that another request is about to leave in the cache

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Where reading pauses so that its state can be kept, the end included: behind the first and the last turn (what the
/// next request repeats of a chat: templates rewrite the opening of the answer, and drop its thoughts), and now and
/// then in a long prompt.
std::vector<int32_t> resting_places(std::span<const int32_t> prompt, const text::Tokenizer& tokenizer) {
  const auto size = static_cast<int32_t>(prompt.size());
  std::vector<int32_t> places;
  int32_t first = 0, last = 0;
  for (int32_t i = 0; i + 1 < size; ++i) {
    const int32_t token = prompt[static_cast<size_t>(i)];
    if (token >= tokenizer.n_vocab() || !tokenizer.is_end_of_generation(token)) continue;
    last = i + 1;
    if (first == 0) first = last;
  }
  if (first >= kPageTokens) places.push_back(first);
  if (last > 0) places.push_back(last);
  const int32_t distance = std::max(kLeastSparseDistance, size / (kSparseCheckpoints + 1));
  for (int32_t at = distance; at + kPageTokens < size; at += distance) places.push_back(at);
  places.push_back(size);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

}  // namespace

int32_t request_context(const Runner::Limits& limits, const Plan& plan) {
  return static_cast<int32_t>(std::min<int64_t>(limits.context, int64_t{limits.cache(plan).pages} * kPageTokens));
}

struct SchedulerCore::Task {
  explicit Task(Arrival arrival) : in(std::move(arrival)) {}
  Arrival in;
  std::optional<Sequence> sequence{};  // from its first rows to its end
  std::vector<int32_t> places{};       // see resting_places()
  int32_t reserved_pages = 0, granted = 0, token = -1;
  int64_t cached = 0;
  std::vector<double> pooled{};    // sum of the hidden states that an embedding is made of
  std::vector<float> embedding{};  // at the end
  bool decodes = false, finished = false;
  Clock::time_point admitted{}, read{}, first_token{};

  std::span<const int32_t> prompt() const { return in.request.prompt; }
  int32_t position() const { return sequence ? sequence->position() : 0; }
  int32_t left() const { return static_cast<int32_t>(prompt().size()) - position() - granted; }
};

SchedulerCore::SchedulerCore(Model& model, const SchedulerLimits& limits, std::function<void()> ended)
    : model_(model),
      runner_(model.runner()),
      limits_(limits),
      ended_(std::move(ended)),
      stateful_(runner_.limits().has_state(runner_.plan())),
      pools_(runner_.pools()),
      tree_(pools_->kv, pools_->states, stateful_) {}

SchedulerCore::~SchedulerCore() {
  end_all(EndReason::kCancelled);
}

Arrival SchedulerCore::prepare(RequestId id, Request request, std::shared_ptr<Listener> listener,
                               const Table& table) const {
  if (request.embed) {
    request.max_tokens = 0;
    request.cache_prompt = false;
  }
  if (request.prompt.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty: there is nothing to continue");
  for (const int32_t token : request.prompt)
    if (token < 0 || token >= runner_.plan().n_vocab)
      fail(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}", token, runner_.plan().n_vocab);
  const auto size = static_cast<int64_t>(request.prompt.size());
  runner_.require_room(size);
  const int64_t room = request_context(runner_.limits(), runner_.plan()) - size;
  if (request.max_tokens > room)
    fail(ErrorCode::kContextFull,
         "a prompt of {} tokens and an answer of up to {} are {}, and the context holds {}: ask for at most {} tokens, "
         "or leave the number out for what fits",
         size, request.max_tokens, size + request.max_tokens, size + room, room);
  auto answer = std::make_unique<Answer>(request, model_.tokenizer(),
                                         request.grammar ? table() : std::shared_ptr<const text::TokenTable>(), room);
  return {.id = id,
          .request = std::move(request),
          .listener = std::move(listener),
          .answer = std::move(answer),
          .when = Clock::now()};
}

void SchedulerCore::add(Arrival arrival) {
  ++totals_.requests;
  queue_.push_back(std::make_unique<Task>(std::move(arrival)));
}

void SchedulerCore::cancel(RequestId id) {
  const auto is_it = [id](const TaskPtr& task) { return task->in.id == id; };
  if (const auto queued = std::find_if(queue_.begin(), queue_.end(), is_it); queued != queue_.end()) {
    const TaskPtr task = std::move(*queued);
    queue_.erase(queued);
    finish(*task, EndReason::kCancelled);
  } else if (const auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    finish(**it, EndReason::kCancelled);
    drop_finished();
  }
}

void SchedulerCore::end_all(EndReason reason, const Failure& failure) {
  for (const TaskPtr& task : running_) finish(*task, reason, failure);
  drop_finished();
  while (!queue_.empty()) {
    const TaskPtr task = std::move(queue_.front());
    queue_.pop_front();
    finish(*task, reason, failure);
  }
}

void SchedulerCore::admit() {
  while (!queue_.empty() && running_.size() < static_cast<size_t>(runner_.limits().sequences)) {
    Task& task = *queue_.front();
    const int64_t tokens = static_cast<int64_t>(task.prompt().size()) + task.in.answer->most();
    const int32_t pages = KvPool::pages_for(tokens);
    if (reserved_pages_ + pages > pools_->kv.size()) return;
    reserved_pages_ += task.reserved_pages = pages;
    task.admitted = Clock::now();
    totals_.prompt_tokens += task.prompt().size();
    if (stateful_ && limits_.prefix_cache && task.in.request.cache_prompt)
      task.places = resting_places(task.prompt(), model_.tokenizer());
    else
      task.places = {static_cast<int32_t>(task.prompt().size())};
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

int32_t SchedulerCore::take_page() {
  while (pools_->kv.available() == 0 && tree_.evict_page()) {
  }
  return pools_->kv.take();
}

int32_t SchedulerCore::take_state() {
  if (pools_->states.available() == 0) tree_.evict_state();
  const int32_t slot = pools_->states.take();
  CHECK(slot >= 0, "{} state slots for {} sequences", pools_->states.size(), runner_.limits().sequences);
  return slot;
}

/// Begins where the cache ends. At least one token is left to read, for there to be logits.
void SchedulerCore::start(Task& task) {
  const auto prompt = task.prompt();
  // All memory first: what is taken below is lost if something fails before it has an owner.
  SequenceStart from{.tokens = {prompt.begin(), prompt.end()}};
  Prefix prefix;
  if (limits_.prefix_cache && task.in.request.cache_prompt) prefix = tree_.match(prompt.first(prompt.size() - 1));
  from.tokens.resize(static_cast<size_t>(prefix.tokens));
  from.pages = std::move(prefix.pages);
  from.state = prefix.state;
  if (stateful_) from.next_state = take_state();
  bool copy = false;
  if (prefix.partial >= 0) {
    const int32_t page = take_page();
    copy = page >= 0;
    // Without a free page the cache has given up the last one: then it is the request's alone, as its reservation says.
    CHECK(copy || pools_->kv.owners(prefix.partial) == 1);
    from.pages.push_back(copy ? page : prefix.partial);
  }
  const int32_t target = from.pages.empty() ? -1 : from.pages.back();
  task.sequence.emplace(runner_.start(std::move(from)));
  if (copy) {
    // Released first: no page is taken before it has been read.
    pools_->kv.release(prefix.partial);
    runner_.backend().copy_page(prefix.partial, target);
  }
  task.cached = prefix.tokens;
  totals_.cached_tokens += static_cast<uint64_t>(prefix.tokens);
  tell_progress(task);
}

/// Whether a request before this one is reading what both begin with.
bool SchedulerCore::worth_waiting(const Task& task) const {
  if (!limits_.prefix_cache || !task.in.request.cache_prompt) return false;
  const auto prompt = task.prompt().first(task.prompt().size() - 1);
  int32_t have = -1;
  for (const TaskPtr& other : running_) {
    if (other.get() == &task) break;
    if (other->finished || other->decodes || !other->in.request.cache_prompt) continue;
    const auto theirs = other->prompt();
    const auto shared = static_cast<int32_t>(
        std::mismatch(prompt.begin(), prompt.end(), theirs.begin(), theirs.end()).first - prompt.begin());
    int32_t gain = stateful_ ? 0 : shared;
    if (stateful_)
      for (const int32_t place : other->places)
        if (place <= shared && place > other->position()) gain = place;
    if (gain < kWorthWaiting) continue;
    if (have < 0) have = tree_.matched(prompt);
    if (gain >= have + kWorthWaiting) return true;
  }
  return false;
}

/// Up to `rows` more of its prompt for `task`, as far as its next resting place.
void SchedulerCore::grant(Task& task, int32_t& rows) {
  if (rows == 0 || task.finished) return;
  if (!task.sequence) {
    if (worth_waiting(task)) return;
    guarded(task, [&] { start(task); });
    if (task.finished) return;
  }
  const auto place = std::upper_bound(task.places.begin(), task.places.end(), task.position());
  const int32_t n = std::min(rows, *place - task.position() - task.granted);
  task.granted += n;
  rows -= n;
}

void SchedulerCore::grant_rows(int32_t decodes) {
  std::vector<Task*> reading;
  for (const TaskPtr& task : running_)
    if (!task->decodes) reading.push_back(task.get());
  if (reading.empty()) return;
  int32_t rows = runner_.limits().rows - decodes;
  if (decodes > 0)
    rows = std::min(rows, pace_.rows(std::max(1, limits_.chunk), static_cast<int32_t>(reading.size()), decodes));
  int32_t half = reading.size() > 1 ? (rows + 1) / 2 : rows;
  rows -= half;
  grant(*reading.front(), half);
  rows += half;  // what it did not take
  std::stable_sort(reading.begin(), reading.end(), [](const Task* a, const Task* b) { return a->left() < b->left(); });
  for (Task* task : reading) grant(*task, rows);
}

void SchedulerCore::plan_step() {
  answers_.clear();
  embeddings_.clear();
  for (const TaskPtr& task : running_) {
    if (!task->decodes) continue;
    answers_.add(*task,
                 {.sequence = &*task->sequence, .tokens = {&task->token, 1}, .wanted = task->in.answer->wanted()});
  }
  grant_rows(static_cast<int32_t>(answers_.slices.size()));
  for (const TaskPtr& task : running_) {
    if (task->granted == 0) continue;
    const auto from = static_cast<size_t>(task->position()), n = static_cast<size_t>(task->granted);
    const bool embed = task->in.request.embed.has_value(), all = task->in.request.embed == Pooling::kMean;
    (embed ? embeddings_ : answers_)
        .add(*task, {.sequence = &*task->sequence,
                     .tokens = task->prompt().subspan(from, n),
                     .outputs = all                 ? Outputs::kAll
                                : task->left() == 0 ? Outputs::kLast
                                                    : Outputs::kNone,
                     .wanted = embed ? Wanted{} : task->in.answer->wanted()});
    task->granted = 0;
  }
}

/// Frees the pages that the step will take.
void SchedulerCore::make_room(std::span<const Slice> slices) {
  int64_t pages = 0;
  for (const Slice& slice : slices)
    pages += KvPool::pages_for(slice.sequence->position() + static_cast<int64_t>(slice.tokens.size())) -
             static_cast<int64_t>(slice.sequence->pages().size());
  while (pools_->kv.available() < pages && tree_.evict_page()) {
  }
}

bool SchedulerCore::step() {
  admit();
  if (running_.empty()) return false;
  const auto begin = Clock::now();
  plan_step();
  run(answers_, false);
  double spent = seconds(begin, Clock::now());
  int32_t decodes = 0, reading = 0;
  for (size_t i = 0; i < answers_.tasks.size(); ++i)
    (answers_.tasks[i]->decodes ? decodes : reading) += static_cast<int32_t>(answers_.slices[i].tokens.size());
  size_t output = 0;
  for (Task* task : answers_.tasks) absorb(*task, output);
  const auto second = Clock::now();
  std::span<const float> states = run(embeddings_, true);
  spent += seconds(second, Clock::now());
  for (size_t i = 0; i < embeddings_.tasks.size(); ++i) {
    const size_t rows = embeddings_.slices[i].tokens.size();
    reading += static_cast<int32_t>(rows);
    pool(*embeddings_.tasks[i], states, rows);
  }
  if (decodes + reading > 0) {
    ++totals_.steps;
    pace_.observe(decodes, reading, spent);
  }
  drop_finished();
  totals_.busy_seconds += seconds(begin, Clock::now());
  return true;
}

/// A batch through the model. A failure ends all in it, and nobody is left: what it has written is not known, and a
/// state that was written halfway cannot be read again.
std::span<const float> SchedulerCore::run(Batch& batch, bool hidden) {
  if (batch.slices.empty()) return {};
  try {
    return run(batch.slices, hidden);
  } catch (...) {
    for (Task* task : batch.tasks) finish(*task, EndReason::kFailed, last_failure_);
    batch.clear();
  }
  return {};
}

std::span<const float> SchedulerCore::run(std::span<const Slice> slices, bool hidden) {
  try {
    make_room(slices);
    const std::span<const float> results = hidden ? runner_.run_hidden(slices) : runner_.run(slices);
    failed_batches_ = 0;
    return results;
  } catch (...) {
    last_failure_ = Failure::current();
    ++failed_batches_;
    throw;
  }
}

void SchedulerCore::probe() {
  CHECK(running_.empty());
  try {
    SequenceStart nothing;
    if (stateful_) nothing.next_state = take_state();
    Sequence sequence = runner_.start(std::move(nothing));
    constexpr int32_t kToken = 0;
    const Slice slice{.sequence = &sequence, .tokens = {&kToken, 1}};
    run({&slice, 1}, false);
  } catch (...) {  // noted
  }
}

/// What a step did for `task`, whose next output is `output`.
void SchedulerCore::absorb(Task& task, size_t& output) {
  if (!task.decodes) {
    read_on(task);
    if (!task.decodes) return;
  }
  answer(task, runner_.scores(output++));
}

void SchedulerCore::read_on(Task& task) {
  if (std::binary_search(task.places.begin(), task.places.end(), task.position())) remember(task, false);
  if (task.left() == 0) {
    task.decodes = true;
    task.read = Clock::now();
  }
  tell_progress(task);
}

/// What a step of `rows` did for an embedding; takes its states off the front of `states`.
void SchedulerCore::pool(Task& task, std::span<const float>& states, size_t rows) {
  const bool mean = task.in.request.embed == Pooling::kMean, last = task.left() == 0;
  const auto width = static_cast<size_t>(runner_.plan().info(runner_.plan().hidden).cols);
  task.pooled.resize(width);
  for (size_t row = 0; row < (mean ? rows : size_t{last}); ++row) {
    for (size_t i = 0; i < width; ++i) task.pooled[i] += static_cast<double>(states[i]);
    states = states.subspan(width);
  }
  tell_progress(task);
  if (!last) return;
  const double count = mean ? static_cast<double>(task.prompt().size()) : 1;
  for (const double sum : task.pooled) task.embedding.push_back(static_cast<float>(sum / count));
  finish(task, EndReason::kEndOfText);
}

void SchedulerCore::answer(Task& task, const Scores& scores) {
  guarded(task, [&] {
    const Answer::Next next = task.in.answer->next(scores);
    task.token = task.in.answer->last_token();
    if (task.first_token == Clock::time_point{}) task.first_token = Clock::now();
    if (next.event) {
      ++totals_.generated_tokens;
      task.in.listener->on_token(*next.event);
    }
    if (next.end) finish(task, *next.end);
  });
}

/// Leaves what the sequence holds in the cache; the sequence goes on unless this is its end.
void SchedulerCore::remember(Task& task, bool last) {
  Sequence& sequence = *task.sequence;
  if (!limits_.prefix_cache || !task.in.request.cache_prompt || sequence.position() == 0) return;
  int32_t state = -1;
  if (stateful_) state = sequence.share_state(last || sequence.shares_state() ? -1 : take_state());
  tree_.insert(sequence.tokens(), sequence.pages(), state);
}

void SchedulerCore::tell_progress(Task& task) {
  guarded(task, [&] {
    task.in.listener->on_prompt({.total = static_cast<int64_t>(task.prompt().size()),
                                 .cached = task.cached,
                                 .processed = task.position(),
                                 .seconds = seconds(task.admitted, Clock::now())});
  });
}

/// Runs what may throw on account of one request, which that ends.
void SchedulerCore::guarded(Task& task, const std::function<void()>& what) {
  if (task.finished) return;
  Failure failure;
  try {
    return what();
  } catch (...) {
    failure = Failure::current();
  }
  finish(task, EndReason::kFailed, failure);
}

void SchedulerCore::finish(Task& task, EndReason reason, const Failure& failure) {
  if (std::exchange(task.finished, true)) return;
  const auto now = Clock::now();
  Ending ending{.reason = reason,
                .text = task.in.answer->rest(),
                .stop = task.in.answer->stop(),
                .failure = failure,
                .embedding = std::move(task.embedding),
                .prompt_tokens = static_cast<int64_t>(task.prompt().size()),
                .cached_tokens = task.cached,
                .generated_tokens = task.in.answer->generated()};
  const bool admitted = task.admitted != Clock::time_point{}, began = task.first_token != Clock::time_point{};
  ending.queue_seconds = seconds(task.in.when, admitted ? task.admitted : now);
  if (admitted) ending.prompt_seconds = seconds(task.admitted, task.decodes ? task.read : now);
  if (began) {
    ending.decode_seconds = seconds(task.first_token, now);
    ending.first_token_seconds = seconds(task.in.when, task.first_token);
  }
  try {
    if (task.sequence && reason != EndReason::kFailed) remember(task, true);
  } catch (...) {  // nothing is owed to the cache, and the end has to be told
  }
  task.sequence.reset();
  reserved_pages_ -= task.reserved_pages;
  ++(reason == EndReason::kFailed      ? totals_.failed
     : reason == EndReason::kCancelled ? totals_.cancelled
                                       : totals_.finished);
  if (ended_) ended_();
  try {
    task.in.listener->on_end(ending);
  } catch (...) {  // it has been told, and there is nobody else to tell
  }
}

void SchedulerCore::drop_finished() {
  std::erase_if(running_, [](const TaskPtr& task) { return task->finished; });
}

SchedulerStats SchedulerCore::stats() const {
  SchedulerStats stats = totals_;
  if (failed_batches_ > 1) stats.failing = last_failure_.message;
  stats.queued = static_cast<int32_t>(queue_.size());
  stats.running = static_cast<int32_t>(running_.size());
  std::vector<bool> in_use(static_cast<size_t>(pools_->kv.size()));
  int32_t slots = 0;
  for (const TaskPtr& task : running_) {
    using State = SlotInfo::State;
    stats.slots.push_back(
        {.id = task->in.id,
         .state = task->decodes ? State::kDecode : State::kPrompt,
         .prompt_tokens = static_cast<int64_t>(task->prompt().size()),
         .processed = std::min<int64_t>(task->position(), static_cast<int64_t>(task->prompt().size())),
         .generated = task->in.answer->generated()});
    if (!task->sequence) continue;
    for (const int32_t page : task->sequence->pages()) in_use[static_cast<size_t>(page)] = true;
    if (stateful_) slots += task->sequence->shares_state() && task->position() > 0 ? 2 : 1;
  }
  int32_t position = 0;
  for (const TaskPtr& task : queue_)
    stats.slots.push_back({.id = task->in.id,
                           .queue_position = ++position,
                           .prompt_tokens = static_cast<int64_t>(task->prompt().size())});
  stats.pages = pools_->kv.size();
  stats.pages_free = pools_->kv.available();
  stats.pages_cached =
      stats.pages - stats.pages_free - static_cast<int32_t>(std::count(in_use.begin(), in_use.end(), true));
  stats.states = pools_->states.size();
  stats.states_free = pools_->states.available();
  stats.states_cached = stats.states - stats.states_free - slots;
  return stats;
}

}  // namespace tern
