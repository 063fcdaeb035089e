#include "engine/scheduler.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

#include "engine/scheduler_core.h"

namespace tern {

Failure Failure::current() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return {error.what(), error.code()};
  } catch (const std::bad_alloc&) {
    return {"not enough memory: try again later, or with less", ErrorCode::kOutOfMemory};
  } catch (const std::exception& error) {
    return {error.what(), {}};
  } catch (...) {
    return {"an unknown failure", {}};
  }
}

constexpr auto kProbeEvery = std::chrono::seconds(1);  // of a backend that fails

struct Scheduler::Impl {
  Impl(std::shared_ptr<Model> served, const SchedulerLimits& with)
      : model(std::move(served)),
        limits(with),
        context(request_context(model->runner().limits(), model->plan())),
        alive_limit(limits.queue + model->runner().limits().sequences),
        core(*model, limits, [this] { --alive; }) {
    told = core.stats();
    thread = std::thread([this] { work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    news.notify_all();
    thread.join();
  }

  void work() {
    for (;;) {
      std::vector<Arrival> arrivals;
      std::vector<RequestId> cancelled;
      bool stop = false;
      {
        std::unique_lock lock(mutex);
        const auto is_news = [&] { return stopping || !inbox.empty() || !cancels.empty() || core.busy(); };
        if (core.suspect()) {
          news.wait_for(lock, kProbeEvery, is_news);
        } else {
          news.wait(lock, is_news);
        }
        arrivals.swap(inbox);
        cancelled.swap(cancels);
        stop = stopping;
        for (Arrival& arrival : arrivals) core.add(std::move(arrival));
        if (!arrivals.empty()) told = core.stats();
      }
      if (stop) return core.end_all(EndReason::kCancelled);
      try {
        for (const RequestId id : cancelled) core.cancel(id);
        core.step();
      } catch (...) {
        core.end_all(EndReason::kFailed, Failure::current());
      }
      if (core.suspect() && !core.busy()) core.probe();
      const std::lock_guard lock(mutex);
      told = core.stats();
      if (!core.busy() && inbox.empty()) {
        idle = true;
        became_idle.notify_all();
      }
    }
  }

  std::shared_ptr<const text::TokenTable> token_table() {
    std::call_once(table_once, [&] { table = std::make_shared<const text::TokenTable>(model->tokenizer()); });
    return table;
  }

  const std::shared_ptr<Model> model;
  const SchedulerLimits limits;
  const int32_t context, alive_limit;
  std::atomic<RequestId> last_id{0};
  std::atomic<int32_t> alive{0};  // queued or running
  std::once_flag table_once;
  std::shared_ptr<const text::TokenTable> table;
  SchedulerCore core;  // of the thread, after its making

  std::mutex mutex;
  std::condition_variable news, became_idle;
  std::vector<Arrival> inbox;
  std::vector<RequestId> cancels;
  SchedulerStats told;
  bool stopping = false, idle = true;
  std::thread thread;
};

Scheduler::Scheduler(std::shared_ptr<Model> model, const SchedulerLimits& limits)
    : impl_(std::make_unique<Impl>(std::move(model), limits)) {}

Scheduler::~Scheduler() = default;

RequestId Scheduler::submit(Request request, std::shared_ptr<Listener> listener) {
  const RequestId id = ++impl_->last_id;
  Arrival arrival =
      impl_->core.prepare(id, std::move(request), std::move(listener), [&] { return impl_->token_table(); });
  if (++impl_->alive > impl_->alive_limit) {
    --impl_->alive;
    throw QueueFull(ErrorCode::kOutOfMemory,
                    fmt::format("{} requests run and {} wait: try again later",
                                impl_->model->runner().limits().sequences, impl_->limits.queue));
  }
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->inbox.push_back(std::move(arrival));
    impl_->idle = false;
  }
  impl_->news.notify_one();
  return id;
}

void Scheduler::cancel(RequestId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancels.push_back(id);
  }
  impl_->news.notify_one();
}

SchedulerStats Scheduler::stats() const {
  const std::lock_guard lock(impl_->mutex);
  SchedulerStats stats = impl_->told;
  for (const Arrival& arrival : impl_->inbox)
    stats.slots.push_back({.id = arrival.id,
                           .queue_position = ++stats.queued,
                           .prompt_tokens = static_cast<int64_t>(arrival.request.prompt.size())});
  return stats;
}

int32_t Scheduler::context() const noexcept {
  return impl_->context;
}

int32_t Scheduler::capacity() const noexcept {
  return impl_->alive_limit;
}

Model& Scheduler::model() const noexcept {
  return *impl_->model;
}

void Scheduler::drain() {
  std::unique_lock lock(impl_->mutex);
  impl_->became_idle.wait(lock, [&] { return impl_->idle; });
}

}  // namespace tern
