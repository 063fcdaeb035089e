#include "engine/generate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tiny_model.h"

namespace tern {
namespace {

using test::some_tokens;
using test::TinyModel;

const SamplerOptions kGreedy{.temperature = 0};

TEST(Generate, GreedyTokensAreTheBestOfEveryStep) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  const auto prompt = some_tokens(10);
  const Generated out = generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 5});
  ASSERT_EQ(out.tokens.size(), 5u);
  EXPECT_EQ(out.reason, FinishReason::kLength);
  Sequence again = tiny.runner().start();
  auto logits = tiny.runner().prefill(again, prompt);
  for (const int32_t token : out.tokens) {
    EXPECT_EQ(token, argmax(logits));
    logits = tiny.runner().decode(again, token);
  }
}

TEST(Generate, StopsAtAnEndingTokenAndKeepsItOut) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  int seen = 0;
  const Generated out = generate(tiny.runner(), sequence, some_tokens(10),
                                 {.sampling = kGreedy, .ends = [&](int32_t) { return ++seen == 4; }});
  EXPECT_EQ(out.reason, FinishReason::kEndOfText);
  EXPECT_EQ(out.tokens.size(), 3u);
}

TEST(Generate, ACallbackStopsIt) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  int seen = 0;
  const Generated out = generate(tiny.runner(), sequence, some_tokens(10),
                                 {.sampling = kGreedy, .on_token = [&](int32_t) { return ++seen < 2; }});
  EXPECT_EQ(out.reason, FinishReason::kStopped);
  EXPECT_EQ(out.tokens.size(), 2u);
}

TEST(Generate, ContinuesFromTheSharedPrefixOfAnEarlierTurn) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  const auto prompt = some_tokens(30);
  generate(tiny.runner(), sequence, std::span(prompt).first(20), {.sampling = kGreedy, .max_tokens = 3});
  const Generated warm = generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 4});
  EXPECT_EQ(warm.stats.cached_tokens, 20);
  EXPECT_EQ(warm.stats.prompt_tokens, 10);
  Sequence fresh = tiny.runner().start();
  const Generated cold = generate(tiny.runner(), fresh, prompt, {.sampling = kGreedy, .max_tokens = 4});
  EXPECT_EQ(warm.tokens, cold.tokens);
}

TEST(Generate, TheSamePromptAgainStillHasLogits) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  const auto prompt = some_tokens(30);
  const Generated first = generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 4});
  const Generated second = generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 4});
  EXPECT_EQ(second.stats.cached_tokens, 29);
  EXPECT_EQ(first.tokens, second.tokens);
}

TEST(Generate, AHybridGoesBackToTheEndOfTheLastPrompt) {
  TinyModel tiny("tiny-qwen35");
  Sequence sequence = tiny.runner().start();
  const auto prompt = some_tokens(30);
  generate(tiny.runner(), sequence, std::span(prompt).first(20), {.sampling = kGreedy, .max_tokens = 5});
  const Generated warm = generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 4});
  EXPECT_EQ(warm.stats.cached_tokens, 20);
  Sequence fresh = tiny.runner().start();
  EXPECT_EQ(warm.tokens, generate(tiny.runner(), fresh, prompt, {.sampling = kGreedy, .max_tokens = 4}).tokens);
}

TEST(Generate, AHybridThatMustGoBackReadsThePromptAgain) {
  TinyModel tiny("tiny-qwen35");
  Sequence sequence = tiny.runner().start();
  const auto prompt = some_tokens(30);
  generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 4});
  const Generated again = generate(tiny.runner(), sequence, prompt, {.sampling = kGreedy, .max_tokens = 4});
  EXPECT_EQ(again.stats.cached_tokens, 0);
  Sequence fresh = tiny.runner().start();
  EXPECT_EQ(again.tokens, generate(tiny.runner(), fresh, prompt, {.sampling = kGreedy, .max_tokens = 4}).tokens);
}

TEST(Generate, AnAnswerThatOutgrowsTheContextIsAnErrorWithTheNumbersAfterItsTokensWereShown) {
  TinyModel tiny("tiny-llama", {.context = 64, .sequences = 1, .rows = 64});
  Sequence sequence = tiny.runner().start();
  int shown = 0;
  try {
    generate(tiny.runner(), sequence, some_tokens(60),
             {.sampling = kGreedy, .on_token = [&](int32_t) { return ++shown > 0; }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextFull);
    EXPECT_NE(std::string(error.what()).find("context of 64 tokens is full (60 of prompt, 5 generated)"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(shown, 5);
}

TEST(Generate, AnEmptyPromptIsRefused) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  EXPECT_THROW(generate(tiny.runner(), sequence, {}, {}), Error);
}

TEST(Generate, CountsWhatItDid) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  const Generated out = generate(tiny.runner(), sequence, some_tokens(10), {.sampling = kGreedy, .max_tokens = 5});
  EXPECT_EQ(out.stats.prompt_tokens, 10);
  EXPECT_EQ(out.stats.decoded_tokens, 4);
  EXPECT_GT(out.stats.bytes_per_token, 0);
}

}  // namespace
}  // namespace tern
