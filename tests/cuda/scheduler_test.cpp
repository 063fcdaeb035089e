// Many requests at once on the CUDA backend: each gets the answer that it gets alone there, and everything is given
// back.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "cuda/gpu.h"
#include "engine/stepped.h"

namespace tern {
namespace {

using test::RecorderPtr;
using test::request;
using test::some_tokens;
using test::Stepped;

class CudaScheduler : public test::OnGpu, public testing::WithParamInterface<const char*> {
 protected:
  Stepped stepped(Runner::Limits limits, SchedulerLimits with = {}) const {
    return Stepped(GetParam(), limits, with, BackendKind::kCuda);
  }
  static std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int32_t n) {
    return Stepped::alone(GetParam(), prompt, n, BackendKind::kCuda);
  }
};
INSTANTIATE_TEST_SUITE_P(Families, CudaScheduler, testing::Values("tiny-llama", "tiny-qwen35"),
                         [](const auto& family) { return std::string(family.param).substr(5); });

TEST_P(CudaScheduler, TwentyInterleavedAnswersEqualTheirSingleRuns) {
  Stepped s = stepped({.context = 128, .sequences = 8, .rows = 32}, {.chunk = 7, .prefix_cache = false});
  const auto prompt = [](int32_t i) { return some_tokens(10 + 5 * i, i + 1); };
  std::vector<RecorderPtr> answers;
  for (int32_t i = 0; i < 20; ++i) answers.push_back(s.add(request(prompt(i), 4 + i % 9)));
  s.run();
  for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(answers[static_cast<size_t>(i)]->tokens, alone(prompt(i), 4 + i % 9)) << i;
  s.expect_all_given_back();
}

TEST_P(CudaScheduler, DrawsOnTheGpuAreThoseOfTheHost) {
  test::expect_draws_of_the_host(GetParam(), BackendKind::kCuda);
}

TEST_P(CudaScheduler, TheNextTurnReadsOnlyWhatIsNew) {
  Stepped s = stepped({.context = 256, .sequences = 2, .rows = 64});
  auto chat = some_tokens(40);
  const RecorderPtr first = s.answer(request(chat, 5));
  chat.insert(chat.end(), first->tokens.begin(), first->tokens.end());
  for (const int32_t token : some_tokens(9, 8)) chat.push_back(token);
  const RecorderPtr second = s.answer(request(chat));
  EXPECT_EQ(second->ending->cached_tokens, 44) << "the last token of an answer has not been read";
  EXPECT_EQ(second->tokens, alone(chat, 6));
  s.expect_all_given_back();
}

TEST_P(CudaScheduler, ACancelledAnswerLeavesTheOthersAsTheyAre) {
  Stepped s = stepped({.context = 128, .sequences = 4, .rows = 32}, {.chunk = 7});
  const auto a = some_tokens(60, 3), b = some_tokens(50, 4);
  const RecorderPtr kept = s.add(request(a, 12)), ended = s.add(request(b, 30));
  const RequestId cancelled = s.last;
  while (ended->tokens.size() < 3) s.core.step();
  s.core.cancel(cancelled);
  s.run();
  EXPECT_EQ(ended->reason(), EndReason::kCancelled);
  EXPECT_EQ(kept->tokens, alone(a, 12));
  s.expect_all_given_back();
}

}  // namespace
}  // namespace tern
