#include "engine/runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/sampler.h"
#include "tiny_model.h"

namespace tern {
namespace {

using test::some_tokens;
using test::TinyFile;
using test::TinyModel;
using Logits = std::vector<float>;

Logits copy(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

/// The logits behind the last of `tokens`, read in batches of `batch`.
Logits last_logits(Runner& runner, std::span<const int32_t> tokens, size_t batch) {
  Sequence sequence = runner.start();
  Logits last;
  for (size_t done = 0; done < tokens.size(); done += batch) {
    const Slice slice{.sequence = &sequence, .tokens = tokens.subspan(done, std::min(batch, tokens.size() - done))};
    last = copy(runner.run({&slice, 1}));
  }
  return last;
}

/// The sums over positions and heads have the same terms in every cut, and ref adds them in the same order.
void expect_same(const Logits& a, const Logits& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << "logit " << i;
}

class RunnerOfFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, RunnerOfFamily, testing::Values("tiny-llama", "tiny-qwen35", "tiny-qwen3moe"),
                         [](const auto& family) {
                           std::string name = std::string(family.param).substr(5);
                           return name;
                         });

TEST_P(RunnerOfFamily, OneBatchChunksAndSingleTokensAgree) {
  TinyModel tiny(GetParam());
  const auto tokens = some_tokens(61);
  const Logits whole = last_logits(tiny.runner(), tokens, 61);
  expect_same(whole, last_logits(tiny.runner(), tokens, 7));
  expect_same(whole, last_logits(tiny.runner(), tokens, 1));
}

TEST_P(RunnerOfFamily, SequencesInOneBatchDoNotSeeEachOther) {
  TinyModel tiny(GetParam());
  Runner& runner = tiny.runner();
  const auto one = some_tokens(40, 1), two = some_tokens(25, 2);
  const Logits alone_one = last_logits(runner, one, 64), alone_two = last_logits(runner, two, 64);
  Sequence a = runner.start(), b = runner.start();
  // a reads in chunks while b is decoded token by token: prefill and decode rows mixed.
  Logits from_a, from_b;
  for (size_t i = 0; i < two.size(); ++i) {
    const size_t at = i * 2;
    std::vector<Slice> slices{{.sequence = &b, .tokens = std::span(two).subspan(i, 1)}};
    if (at < one.size()) slices.insert(slices.begin(), {.sequence = &a, .tokens = std::span(one).subspan(at, 2)});
    const auto logits = runner.run(slices);
    const auto vocab = static_cast<size_t>(runner.plan().n_vocab);
    if (slices.size() == 2) from_a = copy(logits.first(vocab));
    from_b = copy(logits.last(vocab));
  }
  expect_same(alone_one, from_a);
  expect_same(alone_two, from_b);
}

TEST_P(RunnerOfFamily, ASequenceUsedAnewStartsFromNothing) {
  TinyModel tiny(GetParam());
  const auto first = some_tokens(20, 3), second = some_tokens(30, 4);
  const Logits expected = last_logits(tiny.runner(), second, 64);
  Sequence sequence = tiny.runner().start();
  tiny.runner().prefill(sequence, first);
  EXPECT_EQ(sequence.rewind(0), 0);
  expect_same(expected, copy(tiny.runner().prefill(sequence, second)));
}

TEST(Runner, RewindingAnAttentionModelKeepsThePrefix) {
  TinyModel tiny("tiny-llama");
  const auto tokens = some_tokens(90);
  Sequence sequence = tiny.runner().start();
  tiny.runner().prefill(sequence, tokens);
  EXPECT_EQ(sequence.rewind(70), 70);
  const Logits again = copy(tiny.runner().prefill(sequence, std::span(tokens).subspan(70)));
  expect_same(last_logits(tiny.runner(), tokens, 64), again);
}

TEST(Runner, ARecurrentSequenceRewindsToItsCheckpointOrItsStart) {
  TinyModel tiny("tiny-qwen35");
  Runner& runner = tiny.runner();
  const auto tokens = some_tokens(40);
  Sequence sequence = runner.start();
  runner.prefill(sequence, std::span(tokens).first(20));
  sequence.checkpoint();
  for (int round = 0; round < 2; ++round) {
    runner.prefill(sequence, some_tokens(9, 5));
    runner.decode(sequence, 7);
    EXPECT_EQ(sequence.rewind(25), 20);
    expect_same(last_logits(runner, tokens, 40), copy(runner.prefill(sequence, std::span(tokens).subspan(20))));
  }
  EXPECT_EQ(sequence.rewind(19), 0);
  expect_same(last_logits(runner, tokens, 40), copy(runner.prefill(sequence, tokens)));
}

TEST(Runner, AKiviSequenceTakesItsNewestTokensBackToTheCheckpoint) {
  const TinyFile file("tiny-llama");
  Model model({.path = file.path,
               .limits = {.context = 256, .sequences = 2, .rows = 64, .k = KvType::kKivi, .v = KvType::kKivi}});
  Runner& runner = model.runner();
  const auto tokens = some_tokens(130);
  const auto first = std::span(tokens).first(60), rest = std::span(tokens).subspan(60);
  Sequence straight = runner.start();
  runner.prefill(straight, first);
  const Logits expected = copy(runner.prefill(straight, rest));
  Sequence sequence = runner.start();
  runner.prefill(sequence, first);
  sequence.checkpoint();
  runner.prefill(sequence, some_tokens(9, 5));  // packs the first page, with other tokens at its end
  EXPECT_EQ(sequence.rewind(66), 60);
  expect_same(expected, copy(runner.prefill(sequence, rest)));
}

TEST(Runner, ScoreShowsTheLogitsOfEveryToken) {
  TinyModel tiny("tiny-llama", {.context = 256, .sequences = 2, .rows = 16});
  const auto tokens = some_tokens(40);
  std::vector<Logits> rows;
  Sequence sequence = tiny.runner().start();
  tiny.runner().score(sequence, tokens, [&](size_t index, std::span<const float> row) {
    ASSERT_EQ(index, rows.size());
    rows.push_back(copy(row));
  });
  ASSERT_EQ(rows.size(), tokens.size());
  expect_same(last_logits(tiny.runner(), std::span(tokens).first(23), 16), rows[22]);
  expect_same(last_logits(tiny.runner(), tokens, 16), rows.back());
}

TEST(Runner, ATokenOutsideTheVocabularyIsRefusedWithBothNumbers) {
  TinyModel tiny("tiny-llama");
  Sequence sequence = tiny.runner().start();
  try {
    tiny.runner().decode(sequence, 512);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "token 512 is outside the vocabulary of 512");
  }
}

TEST(Runner, AFullContextIsAnErrorWithBothNumbersAndChangesNothing) {
  TinyModel tiny("tiny-llama", {.context = 64, .sequences = 1, .rows = 64});
  Sequence sequence = tiny.runner().start();
  tiny.runner().prefill(sequence, some_tokens(60));
  try {
    const auto more = some_tokens(5);
    tiny.runner().prefill(sequence, more);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextFull);
    EXPECT_NE(std::string(error.what()).find("holds 64 tokens, and 65 are needed"), std::string::npos) << error.what();
  }
  EXPECT_EQ(sequence.position(), 60);
  EXPECT_NO_THROW(tiny.runner().prefill(sequence, some_tokens(4)));
}

TEST(Runner, APromptWithoutRoomForAnAnswerIsRefused) {
  TinyModel tiny("tiny-llama", {.context = 64, .sequences = 1, .rows = 64});
  EXPECT_NO_THROW(tiny.runner().require_room(63));
  try {
    tiny.runner().require_room(64);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextFull);
    EXPECT_NE(std::string(error.what()).find("has 64 tokens, and the context holds 64"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("-c 128"), std::string::npos) << error.what();
  }
}

TEST(Runner, MoreSequencesThanStateSlotsAreRefused) {
  TinyModel tiny("tiny-qwen35", {.context = 64, .sequences = 1, .rows = 64});
  const Sequence only = tiny.runner().start();
  EXPECT_THROW(tiny.runner().start(), Error);
}

TEST(Runner, AFinishedSequenceGivesItsMemoryBack) {
  TinyModel tiny("tiny-qwen35", {.context = 64, .sequences = 1, .rows = 64});
  for (int i = 0; i < 3; ++i) {
    Sequence sequence = tiny.runner().start();
    EXPECT_NO_THROW(tiny.runner().prefill(sequence, some_tokens(64)));
  }
}

TEST(Runner, PrefillStopsWhenItsProgressSaysSo) {
  TinyModel tiny("tiny-llama", {.context = 256, .sequences = 1, .rows = 16});
  Sequence sequence = tiny.runner().start();
  const auto logits = tiny.runner().prefill(sequence, some_tokens(64), [](int64_t done, int64_t) { return done < 32; });
  EXPECT_TRUE(logits.empty());
  EXPECT_EQ(sequence.position(), 32);
}

TEST(Runner, OutputsThatWantCandidatesOrATokenStandBesideThoseThatWantLogits) {
  TinyModel tiny("tiny-llama", {.context = 64, .sequences = 4, .rows = 64});
  Runner& runner = tiny.runner();
  const auto tokens = some_tokens(6);
  std::vector<Sequence> sequences;
  std::vector<Slice> slices;
  for (int i = 0; i < 4; ++i) sequences.push_back(runner.start());
  for (Sequence& s : sequences) slices.push_back({.sequence = &s, .tokens = tokens});
  const Logits wanted = copy(runner.run(slices).first(static_cast<size_t>(runner.plan().n_tokens)));
  slices[0].wanted = {.best = 3, .log_sum = true};
  slices[2].outputs = Outputs::kAll;
  slices[2].wanted = {.best = 1};
  slices[3].wanted = {.best = 9, .token = true, .draw = {.uniform = 0x1.fffffffffffffp-1}};
  for (Sequence& s : sequences) s.rewind(0);
  runner.run(slices);
  ASSERT_TRUE(runner.scores(0).shortlist);
  const auto best = runner.scores(0).shortlist->candidates();
  EXPECT_EQ(std::vector(best.begin(), best.end()), top(wanted, 3));
  EXPECT_EQ(runner.scores(0).shortlist->log_sum, log_sum_exp(wanted));
  EXPECT_EQ(copy(runner.scores(1).logits), wanted);
  EXPECT_FALSE(runner.scores(1).shortlist);
  ASSERT_TRUE(runner.scores(7).shortlist) << "the last of the third's six";
  EXPECT_EQ(runner.scores(7).shortlist->best[0].id, argmax(wanted));
  EXPECT_EQ(runner.scores(8).token, top(wanted, 9).back().id);
  EXPECT_FALSE(runner.scores(8).shortlist);
}

}  // namespace
}  // namespace tern
