// What a scheduler does when its backend fails in the middle of a step: whoever is in the step hears of it, once;
// nobody else does; nothing is held afterwards; and what is answered next is right.
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>

#include "stepped.h"

namespace tern {
namespace {

using test::Recorder;
using test::RecorderPtr;
using test::request;
using test::shared_model;
using test::some_tokens;
using test::Stepped;
using test::TinyModel;

/// Makes a backend fail behind the middle op of the steps that `when` picks, counted from 0.
template <typename What>
void fail_steps(Model& model, std::function<bool(int)> when, What what) {
  model.backend().set_trace([step = -1, middle = model.plan().ops.size() / 2, when = std::move(when),
                             what = std::move(what)](const OpTrace& trace) mutable {
    if (trace.op == 0) ++step;
    if (trace.op == middle && when(step)) throw what;
  });
}

const auto always = [](int) { return true; };
std::function<bool(int)> only(int step) {
  return [step](int now) { return now == step; };
}

const std::runtime_error kBroken("the device fell off the bus");

class FailingOfFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, FailingOfFamily, testing::Values("tiny-llama", "tiny-qwen35"),
                         [](const auto& family) { return std::string(family.param).substr(5); });

TEST_P(FailingOfFamily, OneStepFailsThoseInItAndTheQueueIsAnsweredRightly) {
  Stepped s(GetParam(), {.context = 128, .sequences = 2, .rows = 64});
  const RecorderPtr one = s.add(request(some_tokens(20, 1), 9)), two = s.add(request(some_tokens(30, 2), 9)),
                    waiting = s.add(request(some_tokens(25, 3), 9));
  fail_steps(s.tiny.model, only(3), kBroken);
  s.run();
  for (const RecorderPtr& failed : {one, two}) {
    EXPECT_EQ(failed->reason(), EndReason::kFailed);
    EXPECT_EQ(failed->ending->failure.message, "the device fell off the bus");
    EXPECT_FALSE(failed->ending->failure.code);
    EXPECT_GT(failed->tokens.size(), 0u);
    EXPECT_LT(failed->tokens.size(), 9u);
  }
  EXPECT_EQ(waiting->reason(), EndReason::kLength);
  EXPECT_EQ(waiting->tokens, Stepped::alone(GetParam(), some_tokens(25, 3), 9));
  s.expect_all_given_back();
  EXPECT_EQ(s.core.stats().failed, 2u);
  EXPECT_EQ(s.answer(request(some_tokens(20, 1), 9))->tokens, Stepped::alone(GetParam(), some_tokens(20, 1), 9));
  EXPECT_EQ(s.answer(request(some_tokens(30, 2), 9))->tokens, Stepped::alone(GetParam(), some_tokens(30, 2), 9));
}

TEST_P(FailingOfFamily, AFailureBetweenTheChunksOfAPromptLeavesNothingWrongInTheCache) {
  Stepped s(GetParam(), {.context = 256, .sequences = 1, .rows = 16});
  const auto prompt = some_tokens(70);
  fail_steps(s.tiny.model, only(2), kBroken);
  const RecorderPtr cut = s.answer(request(prompt));
  EXPECT_EQ(cut->reason(), EndReason::kFailed);
  EXPECT_EQ(cut->progress.processed, 32);
  EXPECT_TRUE(cut->tokens.empty());
  EXPECT_EQ(s.core.stats().pages_free, s.core.stats().pages);
  EXPECT_EQ(s.core.stats().states_free, s.core.stats().states);
  EXPECT_EQ(s.answer(request(prompt))->tokens, Stepped::alone(GetParam(), prompt));
}

TEST_P(FailingOfFamily, AFailureBehindACacheHitLeavesTheCacheUsable) {
  Stepped s(GetParam());
  const auto prompt = some_tokens(100);
  auto longer = prompt;
  for (const int32_t token : some_tokens(20, 6)) longer.push_back(token);
  s.answer(request(prompt));
  fail_steps(s.tiny.model, only(0), kBroken);
  const RecorderPtr cut = s.answer(request(longer));
  EXPECT_EQ(cut->reason(), EndReason::kFailed);
  EXPECT_EQ(cut->ending->cached_tokens, 100);
  const RecorderPtr again = s.answer(request(longer));
  EXPECT_EQ(again->ending->cached_tokens, 100);
  EXPECT_EQ(again->tokens, Stepped::alone(GetParam(), longer));
  s.expect_all_given_back();
}

TEST_P(FailingOfFamily, ABackendThatAlwaysFailsFailsEveryRequestAndHoldsNothing) {
  Stepped s(GetParam(), {.context = 128, .sequences = 2, .rows = 32});
  fail_steps(s.tiny.model, always, kBroken);
  std::vector<RecorderPtr> answers;
  for (int32_t i = 0; i < 7; ++i) answers.push_back(s.add(request(some_tokens(10 + 9 * i, i))));
  s.run();
  for (const RecorderPtr& answer : answers) EXPECT_EQ(answer->reason(), EndReason::kFailed);
  const SchedulerStats stats = s.core.stats();
  EXPECT_EQ(stats.failed, 7u);
  EXPECT_EQ(stats.queued + stats.running, 0);
  EXPECT_EQ(stats.pages_free, stats.pages);
  EXPECT_EQ(stats.states_free, stats.states);
  s.tiny.model.backend().set_trace({});
  EXPECT_EQ(s.answer(request(some_tokens(40)))->tokens, Stepped::alone(GetParam(), some_tokens(40)));
}

TEST_P(FailingOfFamily, AProbeTellsABrokenBackendFromAPassingFault) {
  Stepped s(GetParam());
  fail_steps(s.tiny.model, only(0), kBroken);
  s.answer(request(some_tokens(12)));
  EXPECT_TRUE(s.core.suspect());
  EXPECT_EQ(s.core.stats().failing, "") << "once is no proof";
  s.core.probe();
  EXPECT_FALSE(s.core.suspect());

  fail_steps(s.tiny.model, always, kBroken);
  s.answer(request(some_tokens(12)));
  s.core.probe();
  s.core.probe();
  EXPECT_EQ(s.core.stats().failing, "the device fell off the bus");
  s.expect_all_given_back();
  s.tiny.model.backend().set_trace({});
  s.core.probe();
  EXPECT_EQ(s.core.stats().failing, "");
  s.expect_all_given_back();
  EXPECT_EQ(s.answer(request(some_tokens(40)))->tokens, Stepped::alone(GetParam(), some_tokens(40)));
  EXPECT_EQ(s.core.stats().requests, 3u) << "probes are no requests";
}

TEST_P(FailingOfFamily, AProbeTakesWhatItNeedsFromTheCache) {
  Stepped s(GetParam(), {.context = 128, .sequences = 1, .rows = 64});
  s.answer(request(some_tokens(110), 12));
  ASSERT_EQ(s.core.stats().pages_free, 0);
  s.core.probe();
  EXPECT_FALSE(s.core.suspect());
  s.expect_all_given_back();
}

TEST(FailingScheduler, ItProbesByItself) {
  const auto tiny = std::make_shared<TinyModel>("tiny-llama");
  std::atomic<bool> broken = true;
  Scheduler scheduler(shared_model(tiny), {});
  fail_steps(
      tiny->model, [&](int) { return broken.load(); }, kBroken);
  const auto failed = std::make_shared<Recorder>(), next = std::make_shared<Recorder>();
  scheduler.submit(request(some_tokens(20)), failed);
  scheduler.drain();
  EXPECT_EQ(scheduler.stats().failing, "the device fell off the bus");
  broken = false;
  scheduler.submit(request(some_tokens(20)), next);
  scheduler.drain();
  EXPECT_EQ(next->reason(), EndReason::kLength);
  EXPECT_EQ(scheduler.stats().failing, "");
}

TEST(FailingScheduler, OutOfMemoryIsToldAsSuch) {
  Stepped s;
  fail_steps(s.tiny.model, only(0), std::bad_alloc());
  const RecorderPtr starved = s.answer(request(some_tokens(12)));
  EXPECT_EQ(starved->reason(), EndReason::kFailed);
  EXPECT_EQ(starved->ending->failure.code, ErrorCode::kOutOfMemory);
  EXPECT_NE(starved->ending->failure.message.find("not enough memory"), std::string::npos);
  fail_steps(s.tiny.model, only(0), Error(ErrorCode::kOutOfMemory, "12 MB more than the device has"));
  const RecorderPtr device = s.answer(request(some_tokens(12)));
  EXPECT_EQ(device->ending->failure.code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(device->ending->failure.message, "12 MB more than the device has");
  s.expect_all_given_back();
}

TEST(FailingScheduler, WhatIsNoExceptionOfOursFailsItsStepToo) {
  Stepped s;
  fail_steps(s.tiny.model, only(0), 42);
  EXPECT_EQ(s.answer(request(some_tokens(12)))->ending->failure.message, "an unknown failure");
  EXPECT_EQ(s.answer(request(some_tokens(12)))->tokens, Stepped::alone("tiny-llama", some_tokens(12)));
}

TEST(FailingScheduler, AnEmbeddingThatFailsLeavesTheAnswersOfItsStepAlone) {
  Stepped s;
  const RecorderPtr answer = s.add(request(some_tokens(12)));
  Request wanted{.prompt = some_tokens(9, 4), .embed = Pooling::kMean};
  const RecorderPtr embedding = s.add(std::move(wanted));
  fail_steps(s.tiny.model, only(1), kBroken);  // answers run first, then embeddings
  s.run();
  EXPECT_EQ(embedding->reason(), EndReason::kFailed);
  EXPECT_TRUE(embedding->ending->embedding.empty());
  EXPECT_EQ(answer->reason(), EndReason::kLength);
  EXPECT_EQ(answer->tokens, Stepped::alone("tiny-llama", some_tokens(12)));
  s.expect_all_given_back();
}

TEST(FailingScheduler, ItsThreadGoesOn) {
  const auto tiny = std::make_shared<TinyModel>("tiny-qwen35");
  Scheduler scheduler(shared_model(tiny), {});
  fail_steps(tiny->model, only(2), kBroken);
  const auto failed = std::make_shared<Recorder>(), next = std::make_shared<Recorder>();
  scheduler.submit(request(some_tokens(20), 9), failed);
  scheduler.drain();
  EXPECT_EQ(failed->reason(), EndReason::kFailed);
  scheduler.submit(request(some_tokens(20), 9), next);
  scheduler.drain();
  EXPECT_EQ(next->tokens, Stepped::alone("tiny-qwen35", some_tokens(20), 9));
  EXPECT_EQ(scheduler.stats().failed, 1u);
  EXPECT_EQ(scheduler.stats().finished, 1u);
}

// ---- What only one request is to blame for ----

TEST(FailingScheduler, AnAnswerThatMayNotGoOnIsTheFaultOfItsRequest) {
  Stepped s;
  const RecorderPtr good = s.add(request(some_tokens(9), 8));
  Request r = request(some_tokens(12), 8);
  const text::Tokenizer& tokenizer = s.tiny.model.tokenizer();
  for (int32_t token = 1; token < tokenizer.n_vocab(); ++token) r.logit_bias.emplace_back(token, -INFINITY);
  const RecorderPtr one_left = s.add(r);
  s.run();
  EXPECT_EQ(one_left->tokens, std::vector<int32_t>(8, 0));
  EXPECT_EQ(good->tokens, Stepped::alone("tiny-llama", some_tokens(9), 8));
  r.logit_bias.emplace_back(0, -INFINITY);
  try {
    s.add(r);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("bans all 512 tokens"), std::string::npos) << error.what();
  }
}

TEST(FailingScheduler, AGrammarWhoseTokensAreBannedFailsItsRequestOnly) {
  Stepped s;
  Request r = request(some_tokens(12), 8);
  r.grammar = text::Grammar::from_gbnf(R"(root ::= "a")");
  const text::Tokenizer& tokenizer = s.tiny.model.tokenizer();
  for (int32_t token = 0; token < tokenizer.n_vocab(); ++token)
    if (tokenizer.piece(token, true).starts_with("a")) r.logit_bias.emplace_back(token, -INFINITY);
  const auto recorder = std::make_shared<Recorder>();
  const auto table = std::make_shared<const text::TokenTable>(tokenizer);
  s.core.add(s.core.prepare(77, std::move(r), recorder, [&] { return table; }));
  const RecorderPtr good = s.answer(request(some_tokens(9), 8));
  EXPECT_EQ(recorder->reason(), EndReason::kFailed);
  EXPECT_EQ(recorder->ending->failure.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(recorder->ending->failure.message.find("biases and the grammar"), std::string::npos);
  EXPECT_EQ(good->tokens.size(), 8u);
}

}  // namespace
}  // namespace tern
