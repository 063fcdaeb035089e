// Hidden states in place of logits, and embeddings beside answers.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/generate.h"
#include "engine/scheduler_core.h"
#include "tiny_model.h"

namespace tern {
namespace {

using test::some_tokens;
using test::TinyFile;
using test::TinyModel;

constexpr Runner::Limits kLimits{.context = 128, .sequences = 2, .rows = 64, .k = KvType::kF32, .v = KvType::kF32};

class HiddenStates : public testing::TestWithParam<std::tuple<const char*, BackendKind>> {};
INSTANTIATE_TEST_SUITE_P(Families, HiddenStates,
                         testing::Combine(testing::Values("tiny-llama", "tiny-qwen35", "tiny-bitnet"),
                                          testing::Values(BackendKind::kRef, BackendKind::kCpu)),
                         [](const auto& family) {
                           return std::string(std::get<0>(family.param)).substr(5) +
                                  (std::get<1>(family.param) == BackendKind::kRef ? "_ref" : "_cpu");
                         });

TEST_P(HiddenStates, TimesTheHeadAreTheLogits) {
  const TinyFile source(std::get<0>(GetParam()));
  Model model({.path = source.path, .backend = std::get<1>(GetParam()), .threads = 2, .limits = kLimits});
  Runner& runner = model.runner();
  const auto tokens = some_tokens(20);
  Sequence one = runner.start(), two = runner.start();
  const Slice first{.sequence = &one, .tokens = tokens, .outputs = Outputs::kAll};
  const auto states = runner.run_hidden({&first, 1});
  const std::vector<float> hidden(states.begin(), states.end());
  const Slice second{.sequence = &two, .tokens = tokens, .outputs = Outputs::kAll};
  const auto logits = runner.run({&second, 1});

  const gguf::TensorInfo* head = model.file().find("output.weight");
  if (!head) head = model.file().find("token_embd.weight");
  ASSERT_EQ(head->type, TensorType::F32);
  const auto* weights = reinterpret_cast<const float*>(model.file().bytes(*head).data());
  const auto width = static_cast<size_t>(head->ne[0]), vocab = static_cast<size_t>(head->ne[1]);
  ASSERT_EQ(hidden.size(), tokens.size() * width);
  ASSERT_EQ(logits.size(), tokens.size() * vocab);
  for (size_t row = 0; row < tokens.size(); ++row)
    for (size_t token = 0; token < vocab; ++token) {
      double dot = 0;
      for (size_t i = 0; i < width; ++i)
        dot += static_cast<double>(hidden[row * width + i]) * static_cast<double>(weights[token * width + i]);
      ASSERT_NEAR(logits[row * vocab + token], dot, 1e-4 * std::max(1.0, std::abs(dot))) << row << " " << token;
    }
}

struct Told : Listener {
  std::vector<int32_t> tokens;
  std::optional<Ending> ending;
  void on_token(const TokenEvent& event) override { tokens.push_back(event.token); }
  void on_end(const Ending& end) override { ending = end; }
};

struct Embedder {
  TinyModel tiny;
  SchedulerCore core;
  RequestId last = 0;
  explicit Embedder(Runner::Limits limits = kLimits) : tiny("tiny-qwen35", limits), core(tiny.model, {.chunk = 5}) {}
  std::shared_ptr<Told> add(Request request) {
    auto told = std::make_shared<Told>();
    core.add(core.prepare(++last, std::move(request), told));
    return told;
  }
  void run() {
    while (core.step()) {
    }
  }
};

/// Hidden states of a prompt that is read at once.
std::vector<std::vector<double>> hidden_states(const std::vector<int32_t>& tokens) {
  TinyModel tiny("tiny-qwen35", kLimits);
  Sequence sequence = tiny.runner().start();
  const Slice slice{.sequence = &sequence, .tokens = tokens, .outputs = Outputs::kAll};
  const auto states = tiny.runner().run_hidden({&slice, 1});
  std::vector<std::vector<double>> rows;
  const size_t width = states.size() / tokens.size();
  for (size_t row = 0; row < tokens.size(); ++row)
    rows.emplace_back(states.begin() + static_cast<ptrdiff_t>(row * width),
                      states.begin() + static_cast<ptrdiff_t>((row + 1) * width));
  return rows;
}

TEST(Embedding, IsTheMeanOfAllOrTheLastHiddenState) {
  const auto tokens = some_tokens(37);
  const auto states = hidden_states(tokens);
  Embedder e({.context = 128, .sequences = 2, .rows = 16});  // read in pieces
  const auto mean = e.add({.prompt = tokens, .embed = Pooling::kMean});
  const auto last = e.add({.prompt = tokens, .embed = Pooling::kLast});
  e.run();
  ASSERT_EQ(mean->ending->embedding.size(), states[0].size());
  ASSERT_EQ(last->ending->embedding.size(), states[0].size());
  for (size_t i = 0; i < states[0].size(); ++i) {
    double sum = 0;
    for (const auto& row : states) sum += row[i];
    EXPECT_NEAR(mean->ending->embedding[i], sum / 37, 1e-5);
    EXPECT_NEAR(last->ending->embedding[i], states.back()[i], 1e-5);
  }
  EXPECT_EQ(mean->ending->prompt_tokens, 37);
  EXPECT_EQ(mean->ending->generated_tokens, 0);
  EXPECT_TRUE(mean->tokens.empty());
}

TEST(Embedding, ChangesNoAnswerBesideIt) {
  const auto chat = some_tokens(30, 3), text = some_tokens(50, 4);
  const auto ask = [&] {
    return Request{.prompt = chat, .sampling = {.temperature = 0}, .max_tokens = 8, .ignore_end = true};
  };
  Embedder alone;
  const auto wanted = alone.add(ask());
  alone.run();
  Embedder e;
  const auto answer = e.add(ask());
  for (int i = 0; i < 3; ++i) e.core.step();
  const auto embedding = e.add({.prompt = text, .embed = Pooling::kMean});
  e.run();
  EXPECT_EQ(answer->tokens, wanted->tokens);
  const auto states = hidden_states(text);
  for (size_t i = 0; i < states[0].size(); ++i) {
    double sum = 0;
    for (const auto& row : states) sum += row[i];
    EXPECT_NEAR(embedding->ending->embedding[i], sum / 50, 1e-5);
  }
}

TEST(Embedding, LeavesNothingBehind) {
  Embedder e({.context = 128, .sequences = 2, .rows = 16});
  e.add({.prompt = some_tokens(100), .embed = Pooling::kMean});
  const auto cancelled = e.add({.prompt = some_tokens(100), .embed = Pooling::kMean});
  e.core.step();
  e.core.cancel(2);
  EXPECT_EQ(cancelled->ending->reason, EndReason::kCancelled);
  EXPECT_TRUE(cancelled->ending->embedding.empty());
  e.run();
  const SchedulerStats stats = e.core.stats();
  EXPECT_EQ(stats.pages_free, stats.pages);
  EXPECT_EQ(stats.states_free, stats.states);
}

}  // namespace
}  // namespace tern
