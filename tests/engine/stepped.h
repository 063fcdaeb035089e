// A scheduler's core that tests step by hand, and a listener that writes down what it is told.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate.h"
#include "engine/scheduler.h"
#include "engine/scheduler_core.h"
#include "tiny_model.h"

namespace tern::test {

inline const SamplerOptions kGreedy{.temperature = 0};

struct Recorder : Listener {
  std::vector<int32_t> tokens;
  std::vector<TokenEvent> events;
  std::string text;
  PromptProgress progress;
  std::optional<Ending> ending;
  std::function<void()> at_token;

  void on_prompt(const PromptProgress& p) override { progress = p; }
  void on_token(const TokenEvent& event) override {
    if (at_token) at_token();
    tokens.push_back(event.token);
    events.push_back(event);
    text += event.text;
  }
  void on_end(const Ending& end) override {
    EXPECT_FALSE(ending) << "ended twice";
    text += end.text;
    ending = end;
  }
  EndReason reason() const { return ending.value().reason; }
};
using RecorderPtr = std::shared_ptr<Recorder>;

inline Request request(std::vector<int32_t> prompt, int64_t max_tokens = 6) {
  return {.prompt = std::move(prompt), .sampling = kGreedy, .max_tokens = max_tokens, .ignore_end = true};
}

/// A core that is stepped by hand.
struct Stepped {
  TinyModel tiny;
  SchedulerCore core;
  RequestId last = 0;
  explicit Stepped(const char* shape = "tiny-llama",
                   Runner::Limits limits = {.context = 256, .sequences = 2, .rows = 64}, SchedulerLimits with = {},
                   BackendKind backend = BackendKind::kRef)
      : tiny(shape, limits, backend), core(tiny.model, with) {}

  RecorderPtr add(Request r) {
    auto recorder = std::make_shared<Recorder>();
    core.add(core.prepare(++last, std::move(r), recorder));
    return recorder;
  }
  void run() {
    while (core.step()) {
    }
  }
  RecorderPtr answer(Request r) {
    const RecorderPtr recorder = add(std::move(r));
    run();
    return recorder;
  }
  /// What generate() says, in a model of its own.
  static std::vector<int32_t> alone(const std::string& shape, const std::vector<int32_t>& prompt, int32_t n = 6,
                                    BackendKind backend = BackendKind::kRef) {
    static std::map<std::pair<std::string, BackendKind>, std::unique_ptr<TinyModel>> models;
    std::unique_ptr<TinyModel>& tiny = models[{shape, backend}];
    if (!tiny)
      tiny = std::make_unique<TinyModel>(shape, Runner::Limits{.context = 256, .sequences = 2, .rows = 64}, backend);
    Sequence sequence = tiny->runner().start();
    return generate(tiny->runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = n}).tokens;
  }
  void expect_all_given_back() {
    const SchedulerStats stats = core.stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages);
    EXPECT_EQ(stats.states_free + stats.states_cached, stats.states);
  }
};

/// Answers that draw, of many settings, are the same where the backend draws and where the host does: a bias of nothing
/// makes an answer look at all logits. All prompts are read in one step, so that both times a step has the same rows.
inline void expect_draws_of_the_host(const char* shape, BackendKind backend) {
  constexpr int32_t kAnswers = 20;
  const auto answers = [&](bool on_host) {
    Stepped s(shape, {.context = 64, .sequences = kAnswers, .rows = 512}, {.prefix_cache = false}, backend);
    std::vector<RecorderPtr> recorders;
    for (int32_t i = 0; i < kAnswers; ++i) {
      Request r = request(some_tokens(4 + i % 7, i), 12);
      r.sampling = {.temperature = 0.4f + 0.1f * static_cast<float>(i),
                    .top_k = i % 4 == 0 ? kMostCandidates : 10 * i,
                    .top_p = i % 3 == 0 ? 1.0f : 0.9f,
                    .min_p = i % 5 == 0 ? 0.0f : 0.05f,
                    .seed = static_cast<uint64_t>(i) + 1};
      if (on_host) r.logit_bias = {{3, 0.0f}};
      recorders.push_back(s.add(std::move(r)));
    }
    s.run();
    std::vector<std::vector<int32_t>> all;
    for (const RecorderPtr& recorder : recorders) all.push_back(recorder->tokens);
    return all;
  };
  const auto drawn = answers(false);
  EXPECT_EQ(drawn, answers(true));
  for (const auto& tokens : drawn) EXPECT_EQ(tokens.size(), 12u);
}

/// A model that a Scheduler can share.
inline std::shared_ptr<Model> shared_model(const std::shared_ptr<TinyModel>& tiny) {
  return {tiny, &tiny->model};
}

}  // namespace tern::test
