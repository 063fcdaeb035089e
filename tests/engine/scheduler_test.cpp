#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>

#include "engine/scheduler_core.h"
#include "stepped.h"

namespace tern {
namespace {

using test::kGreedy;
using test::Recorder;
using test::RecorderPtr;
using test::request;
using test::shared_model;
using test::some_tokens;
using test::Stepped;
using test::TinyModel;

class SchedulerOfFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, SchedulerOfFamily, testing::Values("tiny-llama", "tiny-qwen35"),
                         [](const auto& family) { return std::string(family.param).substr(5); });

TEST_P(SchedulerOfFamily, EightInterleavedAnswersEqualTheirSingleRuns) {
  Stepped s(GetParam(), {.context = 128, .sequences = 3, .rows = 16}, {.chunk = 5, .prefix_cache = false});
  std::vector<RecorderPtr> answers;
  for (int32_t i = 0; i < 8; ++i) answers.push_back(s.add(request(some_tokens(10 + 7 * i, i + 1), 4 + i)));
  s.run();
  for (int32_t i = 0; i < 8; ++i)
    EXPECT_EQ(answers[static_cast<size_t>(i)]->tokens,
              Stepped::alone(GetParam(), some_tokens(10 + 7 * i, i + 1), 4 + i))
        << i;
  s.expect_all_given_back();
  EXPECT_EQ(s.core.stats().pages_cached, 0);
}

TEST_P(SchedulerOfFamily, TheNextTurnReadsOnlyWhatIsNew) {
  Stepped s(GetParam());
  auto chat = some_tokens(40);
  const RecorderPtr first = s.answer(request(chat, 5));
  EXPECT_EQ(first->ending->cached_tokens, 0);
  chat.insert(chat.end(), first->tokens.begin(), first->tokens.end());
  const auto more = some_tokens(9, 8);
  chat.insert(chat.end(), more.begin(), more.end());
  const RecorderPtr second = s.answer(request(chat));
  EXPECT_EQ(second->ending->cached_tokens, 44) << "the last token of an answer has not been read";
  EXPECT_EQ(second->progress.cached, 44);
  EXPECT_EQ(second->tokens, Stepped::alone(GetParam(), chat));
  s.expect_all_given_back();
}

TEST_P(SchedulerOfFamily, AnAnswerThatWasRewrittenGoesBackToTheEndOfThePrompt) {
  Stepped s(GetParam());
  auto chat = some_tokens(100);
  s.answer(request(chat, 5));
  const auto other = some_tokens(30, 9);
  chat.insert(chat.end(), other.begin(), other.end());
  const RecorderPtr second = s.answer(request(chat));
  EXPECT_EQ(second->ending->cached_tokens, 100);
  EXPECT_EQ(second->tokens, Stepped::alone(GetParam(), chat));
}

TEST_P(SchedulerOfFamily, AHitWhileTheFirstStillDecodesDisturbsNeither) {
  Stepped s(GetParam());
  const auto prompt = some_tokens(70);
  auto longer = prompt;
  for (const int32_t token : some_tokens(20, 6)) longer.push_back(token);
  const RecorderPtr one = s.add(request(prompt, 20));
  while (one->tokens.size() < 3) s.core.step();
  const RecorderPtr two = s.add(request(longer, 12));
  s.run();
  EXPECT_EQ(two->ending->cached_tokens, 70);
  EXPECT_EQ(one->tokens, Stepped::alone(GetParam(), prompt, 20));
  EXPECT_EQ(two->tokens, Stepped::alone(GetParam(), longer, 12));
  s.expect_all_given_back();
}

TEST_P(SchedulerOfFamily, UnderPressureTheCacheGivesWay) {
  Stepped s(GetParam(), {.context = 128, .sequences = 2, .rows = 64});
  for (const int32_t i : {0, 1, 2, 0}) {
    const auto a = some_tokens(66, 3 * i + 1), b = some_tokens(70, 3 * i + 2);
    const RecorderPtr one = s.add(request(a, 8)), two = s.add(request(b, 9));
    s.run();
    EXPECT_EQ(one->tokens, Stepped::alone(GetParam(), a, 8));
    EXPECT_EQ(two->tokens, Stepped::alone(GetParam(), b, 9));
  }
  s.expect_all_given_back();
}

TEST_P(SchedulerOfFamily, APoolOfOnePageIsEnoughForAHit) {
  Stepped s(GetParam(), {.context = 64, .sequences = 1, .rows = 64});
  auto chat = some_tokens(20);
  s.answer(request(chat, 4));
  for (const int32_t token : some_tokens(8, 5)) chat.push_back(token);
  const RecorderPtr second = s.answer(request(chat, -1));
  EXPECT_EQ(second->ending->cached_tokens, 20);
  EXPECT_EQ(second->ending->generated_tokens, 36);
  EXPECT_EQ(second->tokens, Stepped::alone(GetParam(), chat, 36));
}

TEST(Scheduler, OneThatBeginsLikeAnotherWaitsForItAndReadsTheRest) {
  Stepped s;
  const auto prompt = some_tokens(150);
  const RecorderPtr one = s.add(request(prompt)), two = s.add(request(prompt));
  s.run();
  EXPECT_EQ(one->ending->cached_tokens, 0);
  EXPECT_EQ(two->ending->cached_tokens, 149);
  EXPECT_EQ(one->tokens, two->tokens);
}

TEST(Scheduler, AdmitsInTheOrderOfArrivalAndTellsThePositions) {
  Stepped s("tiny-llama", {.context = 128, .sequences = 1, .rows = 64});
  const RecorderPtr big = s.add(request(some_tokens(60, 1), 10)), small = s.add(request(some_tokens(3, 2), 1)),
                    last = s.add(request(some_tokens(4, 3), 1));
  s.core.step();
  const SchedulerStats stats = s.core.stats();
  ASSERT_EQ(stats.slots.size(), 3u);
  EXPECT_EQ(stats.slots[0].state, SlotInfo::State::kDecode);
  EXPECT_EQ(stats.slots[1].queue_position, 1);
  EXPECT_EQ(stats.slots[2].queue_position, 2);
  EXPECT_EQ(stats.slots[2].id, 3u);
  while (!small->ending) s.core.step();
  EXPECT_TRUE(big->ending);
  EXPECT_FALSE(last->ending);
  s.run();
  EXPECT_TRUE(last->ending);
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithTheNumbers) {
  Stepped s("tiny-llama", {.context = 64, .sequences = 2, .rows = 64});
  const auto refusal = [&](Request r) -> std::string {
    try {
      s.core.prepare(1, std::move(r), std::make_shared<Recorder>());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kContextFull);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal(request(some_tokens(64), -1)).find("has 64 tokens, and the context holds 64"), std::string::npos);
  EXPECT_NE(refusal(request(some_tokens(60), 5)).find("65, and the context holds 64: ask for at most 4"),
            std::string::npos);
  EXPECT_EQ(request_context(s.tiny.runner().limits(), s.tiny.runner().plan()), 64);
  EXPECT_EQ(s.answer(request(some_tokens(60), 4))->ending->generated_tokens, 4);
}

TEST(Scheduler, WithoutANumberAnAnswerTakesWhatFits) {
  Stepped s("tiny-llama", {.context = 64, .sequences = 2, .rows = 64});
  const RecorderPtr answer = s.answer(request(some_tokens(50), -1));
  EXPECT_EQ(answer->tokens.size(), 14u);
  EXPECT_EQ(answer->reason(), EndReason::kLength);
}

TEST(Scheduler, WhatMakesNoSenseIsRefused) {
  Stepped s;
  const auto refuses = [&](Request r) {
    EXPECT_THROW(s.core.prepare(1, std::move(r), std::make_shared<Recorder>()), Error);
  };
  refuses(request({}));
  refuses(request({512}));
  refuses(request({-1}));
  Request r = request({1});
  r.stop = {""};
  refuses(r);
  r = request({1});
  r.logit_bias = {{100000, 1.0f}};
  refuses(r);
  r = request({1});
  r.sampling.top_p = 7;
  refuses(r);
}

TEST(Scheduler, ARequestIsCancelledWhileQueuedWhileReadAndWhileAnswered) {
  Stepped s("tiny-llama", {.context = 256, .sequences = 1, .rows = 16}, {.prefix_cache = false});
  const RecorderPtr decoding = s.add(request(some_tokens(5))), reading = s.add(request(some_tokens(60))),
                    queued = s.add(request(some_tokens(6)));
  s.core.step();
  ASSERT_EQ(decoding->tokens.size(), 1u);
  s.core.cancel(3);
  EXPECT_EQ(queued->reason(), EndReason::kCancelled);
  s.core.cancel(1);
  EXPECT_EQ(decoding->reason(), EndReason::kCancelled);
  EXPECT_EQ(s.core.stats().pages_free, s.core.stats().pages);
  s.core.step();
  EXPECT_EQ(s.core.stats().slots.at(0).processed, 16);
  s.core.cancel(2);
  EXPECT_EQ(reading->reason(), EndReason::kCancelled);
  EXPECT_EQ(s.core.stats().pages_free, s.core.stats().pages);
  s.core.cancel(99);
  EXPECT_FALSE(s.core.step());
  EXPECT_EQ(s.core.stats().cancelled, 3u);
}

TEST(Scheduler, AStopStringAcrossTokensIsNeverShown) {
  Stepped s;
  const RecorderPtr plain = s.answer(request(some_tokens(12), 12));
  ASSERT_GE(plain->text.size(), 8u);
  // From the middle of one token's text into a later one's.
  const std::string stop = plain->text.substr(plain->text.size() / 2, 4);
  Request r = request(some_tokens(12), 12);
  r.stop = {"never said", stop};
  const RecorderPtr stopped = s.answer(r);
  EXPECT_EQ(stopped->reason(), EndReason::kStopString);
  EXPECT_EQ(stopped->ending->stop, stop);
  EXPECT_EQ(stopped->text, plain->text.substr(0, plain->text.find(stop)));
}

TEST(StopTextTest, ShowsWhatNoStopStringCanTakeAnyMore) {
  StopText stop({"</s>", "END"});
  EXPECT_EQ(stop.push("a<"), "a");
  EXPECT_EQ(stop.push("/b E"), "</b ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("E"), "EN");
  EXPECT_EQ(stop.push("ND more"), "");
  EXPECT_EQ(stop.found(), "END");
  EXPECT_EQ(stop.take_held(), "");
}

TEST(StopTextTest, TheFirstInTheTextWins) {
  StopText stop({"later", "now"});
  EXPECT_EQ(stop.push("so now or later"), "so ");
  EXPECT_EQ(stop.found(), "now");
}

TEST(Scheduler, WhatWasHeldBackIsShownAtTheEnd) {
  Stepped s;
  const RecorderPtr plain = s.answer(request(some_tokens(12), 8));
  Request r = request(some_tokens(12), 8);
  r.stop = {plain->text.substr(plain->text.size() - 1) + "\x01"};
  EXPECT_EQ(s.answer(r)->text, plain->text);
}

TEST(Scheduler, AStopTokenEndsTheAnswerUntold) {
  Stepped s;
  const auto tokens = s.answer(request(some_tokens(12), 8))->tokens;
  Request r = request(some_tokens(12), 8);
  r.stop_tokens = {tokens[3]};
  const RecorderPtr stopped = s.answer(r);
  EXPECT_EQ(stopped->reason(), EndReason::kStopToken);
  const auto at = std::find(tokens.begin(), tokens.end(), tokens[3]);
  EXPECT_EQ(stopped->tokens, std::vector<int32_t>(tokens.begin(), at));
}

TEST(Scheduler, ABiasBansAndForces) {
  Stepped s;
  const int32_t best = s.answer(request(some_tokens(12), 1))->tokens.at(0);
  Request r = request(some_tokens(12), 1);
  r.logit_bias = {{best, -INFINITY}};
  EXPECT_NE(s.answer(r)->tokens.at(0), best);
  r.logit_bias = {{77, 1000.0f}};
  EXPECT_EQ(s.answer(r)->tokens.at(0), 77);
}

TEST(Scheduler, LogProbabilitiesAreOfTheModelNotOfTheBias) {
  Stepped s;
  Request r = request(some_tokens(12), 2);
  r.top_logprobs = 3;
  const auto plain = s.answer(r)->events;
  ASSERT_EQ(plain.size(), 2u);
  ASSERT_EQ(plain[0].top.size(), 3u);
  EXPECT_EQ(plain[0].top[0].token, plain[0].token);
  EXPECT_EQ(plain[0].top[0].logprob, plain[0].logprob);
  EXPECT_LT(plain[0].logprob, 0);
  r.logit_bias = {{77, 1000.0f}};
  const auto biased = s.answer(r)->events;
  EXPECT_LT(biased[0].logprob, plain[0].logprob);
  EXPECT_EQ(biased[0].top[0].token, plain[0].token);
}

/// A bias of nothing makes an answer look at all logits.
TEST(Scheduler, AnswersFromCandidatesAndFromAllLogitsAreTheSame) {
  const auto sampled = [](uint64_t seed, bool all) {
    Request r = request(some_tokens(10, static_cast<int32_t>(seed)), 12);
    r.sampling = {.temperature = 1.2f, .top_k = 30, .presence_penalty = seed % 2 == 0 ? 0.0f : 1.0f, .seed = seed};
    r.top_logprobs = static_cast<int32_t>(seed) - 1;
    if (all) r.logit_bias = {{3, 0.0f}};
    return r;
  };
  Stepped s("tiny-llama", {.context = 64, .sequences = 4, .rows = 64}, {.prefix_cache = false});
  std::vector<RecorderPtr> mixed, alone;
  for (uint64_t seed = 0; seed < 4; ++seed) mixed.push_back(s.add(sampled(seed, seed == 2)));
  s.run();
  for (uint64_t seed = 0; seed < 4; ++seed) alone.push_back(s.answer(sampled(seed, true)));
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(mixed[i]->tokens, alone[i]->tokens) << i;
    ASSERT_EQ(mixed[i]->tokens.size(), 12u);
    for (size_t t = 0; t < 12; ++t) {
      const TokenEvent &a = mixed[i]->events[t], &b = alone[i]->events[t];
      EXPECT_EQ(a.logprob, b.logprob);
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t k = 0; k < a.top.size(); ++k) {
        EXPECT_EQ(a.top[k].token, b.top[k].token);
        EXPECT_EQ(a.top[k].logprob, b.top[k].logprob);
      }
    }
  }
}

TEST(Scheduler, DrawsOfTheBackendAreThoseOfTheHost) {
  test::expect_draws_of_the_host("tiny-llama", BackendKind::kRef);
}

TEST(Scheduler, AnAnswerAsksForAsLittleAsTellsTheToken) {
  TinyModel tiny("tiny-llama");
  const auto wanted = [&](const Request& r) { return Answer(r, tiny.model.tokenizer(), nullptr, 100).wanted(); };
  Request r = request(some_tokens(4));
  EXPECT_EQ(wanted(r).best, 1);
  EXPECT_TRUE(wanted(r).token);
  r.top_logprobs = 5;
  EXPECT_EQ(wanted(r).best, 5);
  EXPECT_TRUE(wanted(r).log_sum);
  EXPECT_FALSE(wanted(r).token) << "the others are to be told too";
  r.sampling = {.temperature = 1, .top_k = 20};
  EXPECT_EQ(wanted(r).best, 20);
  r.top_logprobs = kMostCandidates + 1;
  EXPECT_EQ(wanted(r).best, 0);
  r.top_logprobs = -1;
  EXPECT_EQ(wanted(r).best, 20);
  EXPECT_TRUE(wanted(r).token);
  r.logit_bias = {{3, 1.0f}};
  EXPECT_EQ(wanted(r).best, 0);
  r.max_tokens = 0;
  EXPECT_TRUE(wanted(r).token) << "none comes, and that is the least to ask for";
}

TEST(Scheduler, AListenerThatThrowsEndsItsRequestOnly) {
  Stepped s;
  const RecorderPtr bad = s.add(request(some_tokens(12), 8)), good = s.add(request(some_tokens(9), 8));
  bad->at_token = [] { throw std::runtime_error("the client is gone"); };
  s.run();
  EXPECT_EQ(bad->reason(), EndReason::kFailed);
  EXPECT_EQ(bad->ending->failure.message, "the client is gone");
  EXPECT_EQ(good->tokens.size(), 8u);
  s.expect_all_given_back();
}

TEST(Scheduler, APaceKeepsStepsWithinTwiceADecode) {
  PrefillPace pace;
  EXPECT_LE(pace.rows(256), 2 * PrefillPace::kLeast);
  for (int i = 0; i < 50; ++i) {
    pace.observe(8, 0, 0.030);
    pace.observe(8, 20, 0.030 + 20 * 0.001);
  }
  EXPECT_NEAR(pace.rows(256), 30, 1);
  EXPECT_EQ(pace.rows(12), 12);
  for (int i = 0; i < 50; ++i) pace.observe(8, 20, 1.0);
  EXPECT_EQ(pace.rows(256), PrefillPace::kLeast);
}

TEST(Scheduler, APaceOfASmallModelReadsWhatNobodyNotices) {
  PrefillPace pace;
  for (int i = 0; i < 50; ++i) {
    pace.observe(1, 0, 0.001);
    pace.observe(1, 20, 0.001 + 20 * 0.0002);
  }
  EXPECT_NEAR(pace.rows(256), (PrefillPace::kUnnoticed - 0.001) / 0.0002, 1);
  EXPECT_NEAR(pace.rows(256, 7, 1), 7 * (PrefillPace::kUnnoticed - 0.001) / 0.0002, 1);
  EXPECT_EQ(pace.rows(256, 1, 7), pace.rows(256));
}

TEST(SchedulerThread, AnswersFromItsOwnThreadAndDrains) {
  const auto tiny = std::make_shared<TinyModel>("tiny-llama");
  Scheduler scheduler(shared_model(tiny), {});
  std::vector<RecorderPtr> answers;
  for (int32_t i = 0; i < 6; ++i) {
    answers.push_back(std::make_shared<Recorder>());
    scheduler.submit(request(some_tokens(10 + i, i + 1), 5), answers.back());
  }
  scheduler.drain();
  for (int32_t i = 0; i < 6; ++i)
    EXPECT_EQ(answers[static_cast<size_t>(i)]->tokens, Stepped::alone("tiny-llama", some_tokens(10 + i, i + 1), 5));
  EXPECT_EQ(scheduler.stats().finished, 6u);
}

TEST(SchedulerThread, AFullQueueRefuses) {
  const auto tiny =
      std::make_shared<TinyModel>("tiny-llama", Runner::Limits{.context = 256, .sequences = 1, .rows = 64});
  Scheduler scheduler(shared_model(tiny), {.queue = 1});
  std::mutex gate;
  const auto slow = std::make_shared<Recorder>(), waiting = std::make_shared<Recorder>();
  slow->at_token = [&] { const std::lock_guard lock(gate); };
  {
    const std::lock_guard lock(gate);
    scheduler.submit(request(some_tokens(5)), slow);
    scheduler.submit(request(some_tokens(6)), waiting);
    EXPECT_THROW(scheduler.submit(request(some_tokens(7)), std::make_shared<Recorder>()), QueueFull);
  }
  scheduler.drain();
  EXPECT_EQ(waiting->reason(), EndReason::kLength);
}

TEST(SchedulerThread, ShutdownEndsWhatIsInFlight) {
  const auto tiny = std::make_shared<TinyModel>("tiny-qwen35");
  std::vector<RecorderPtr> answers;
  {
    Scheduler scheduler(shared_model(tiny), {});
    for (int32_t i = 0; i < 5; ++i) {
      answers.push_back(std::make_shared<Recorder>());
      scheduler.submit(request(some_tokens(20, i), 200), answers.back());
    }
  }
  for (const RecorderPtr& answer : answers) ASSERT_TRUE(answer->ending);
  EXPECT_EQ(answers.back()->reason(), EndReason::kCancelled);
  EXPECT_EQ(tiny->runner().pools()->kv.available(), tiny->runner().pools()->kv.size());
  EXPECT_EQ(tiny->runner().pools()->states.available(), tiny->runner().pools()->states.size());
}

}  // namespace
}  // namespace tern
