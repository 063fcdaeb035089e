// The scheduler without its thread: everything happens in calls, so that tests can step it. One thread.
//
// Admission is strictly first come, first served on a ledger of integers: a request reserves one place of
// Runner::Limits::sequences (with its state slots) and the pages of its whole prompt and of the longest answer it may
// give. What is reserved never exceeds the pool, so a running request always gets its next page: from the free ones or
// from the prefix cache, which gives up all it has. Nothing waits for a page while it runs, hence no deadlock; nobody
// is overtaken while he waits, hence no starvation. The rows of prompts in a step: the oldest gets half of them, the
// one with the least left to read the others. Embeddings are prompts among the others, except that they take no part in
// the prefix cache: the mean is over all hidden states.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cache/prefix_tree.h"
#include "engine/scheduler.h"
#include "engine/scheduler_answer.h"
#include "engine/scheduler_pace.h"

namespace tern {

/// Tokens that one request may hold, prompt and answer together.
int32_t request_context(const Runner::Limits& limits, const Plan& plan);

/// A request on its way in.
struct Arrival {
  RequestId id = 0;
  Request request;
  std::shared_ptr<Listener> listener;
  std::unique_ptr<Answer> answer;
  std::chrono::steady_clock::time_point when{};
};

class SchedulerCore {
 public:
  /// `ended` is called before every on_end.
  SchedulerCore(Model& model, const SchedulerLimits& limits, std::function<void()> ended = {});
  ~SchedulerCore();

  /// Checks the request and prepares its answer, from any thread. Errors as Scheduler::submit. `table` is asked for
  /// when the request has a grammar.
  using Table = std::function<std::shared_ptr<const text::TokenTable>()>;
  Arrival prepare(RequestId id, Request request, std::shared_ptr<Listener> listener, const Table& table = {}) const;
  void add(Arrival arrival);
  void cancel(RequestId id);
  /// Admits and runs one batch. False when there was nothing to do.
  bool step();
  bool busy() const noexcept { return !queue_.empty() || !running_.empty(); }
  /// Whether the last batch failed: then a probe, or the next request, tells a passing fault from a broken backend.
  bool suspect() const noexcept { return failed_batches_ > 0; }
  /// Runs one token that nobody asked for. Only when nothing runs.
  void probe();
  void end_all(EndReason reason, const Failure& failure = {});
  SchedulerStats stats() const;

 private:
  struct Task;
  using TaskPtr = std::unique_ptr<Task>;
  /// What goes through a program together.
  struct Batch {
    std::vector<Slice> slices;
    std::vector<Task*> tasks;  // whose they are
    void add(Task& task, const Slice& slice) {
      slices.push_back(slice);
      tasks.push_back(&task);
    }
    void clear() {
      slices.clear();
      tasks.clear();
    }
  };

  void admit();
  void start(Task& task);
  bool worth_waiting(const Task& task) const;
  void grant(Task& task, int32_t& rows);
  void grant_rows(int32_t decodes);
  void plan_step();
  std::span<const float> run(Batch& batch, bool hidden);
  std::span<const float> run(std::span<const Slice> slices, bool hidden);
  void absorb(Task& task, size_t& output);
  void pool(Task& task, std::span<const float>& states, size_t rows);
  void read_on(Task& task);
  void answer(Task& task, const Scores& scores);
  void remember(Task& task, bool last);
  void make_room(std::span<const Slice> slices);
  int32_t take_page();
  int32_t take_state();
  void tell_progress(Task& task);
  void guarded(Task& task, const std::function<void()>& what);
  void finish(Task& task, EndReason reason, const Failure& failure = {});
  void drop_finished();

  Model& model_;
  Runner& runner_;
  const SchedulerLimits limits_;
  const std::function<void()> ended_;
  const bool stateful_;
  const std::shared_ptr<CachePools> pools_;
  PrefixTree tree_;
  PrefillPace pace_;
  std::deque<TaskPtr> queue_;
  std::vector<TaskPtr> running_;  // in order of admission
  int32_t reserved_pages_ = 0;
  Batch answers_, embeddings_;  // of the step; hidden states come from a program of their own
  SchedulerStats totals_;
  int32_t failed_batches_ = 0;  // since one that did not
  Failure last_failure_;
};

}  // namespace tern
