// A prompt that leaves more places to go on from than there are slots for states.
#include <gtest/gtest.h>

#include "stepped.h"

namespace tern {
namespace {

using test::Recorder;
using test::request;
using test::some_tokens;

TEST(LongPrompt, TheNextTurnGoesOnBehindItThoughFewStatesAreKept) {
  const test::TinyFile source("tiny-qwen35");
  Model model(
      {.path = source.path, .threads = 1, .limits = {.context = 8192, .sequences = 1, .rows = 256, .checkpoints = 1}});
  SchedulerCore core(model, {});
  std::vector<int32_t> chat = some_tokens(6000);
  int64_t before = 0;
  for (RequestId turn = 1; turn <= 4; ++turn) {
    const auto recorder = std::make_shared<Recorder>();
    core.add(core.prepare(turn, request(chat, 5), recorder));
    while (core.step()) {
    }
    ASSERT_EQ(recorder->reason(), EndReason::kLength) << recorder->ending->failure.message;
    EXPECT_GE(recorder->ending->cached_tokens, before) << "turn " << turn;
    before = recorder->ending->prompt_tokens;
    chat.insert(chat.end(), recorder->tokens.begin(), recorder->tokens.end());
    for (const int32_t token : some_tokens(500, static_cast<int32_t>(turn))) chat.push_back(token);
  }
}

}  // namespace
}  // namespace tern
