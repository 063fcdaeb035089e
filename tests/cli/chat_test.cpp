// The chat on a terminal, with the model that ships.
#include <gtest/gtest.h>

#include "cli/subprocess.h"

namespace tern {
namespace {

using test::chat_with_tern;
using test::Finished;

TEST(Chat, AnswersObeysCommandsAndLeaves) {
  const Finished f = chat_with_tern(
      {"run", "--temp", "0", "-n", "8"},
      {"What does \"tern\" mean?\r", "/set temp 0.5\r", "/set top-p 7\r", "/show\r", "/nonsense\r", "/bye\r"});
  EXPECT_EQ(f.code, 0) << f.out;
  EXPECT_NE(f.out.find("temp 0.5"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("'7' is not a number within 0..1"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("top-p 0.95"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("no command /nonsense"), std::string::npos) << f.out;
}

TEST(Chat, CtrlCEndsASingleAnswerWithCode130AndKeepsWhatWasSaid) {
  // ref takes its time, so that the answer is still going on.
  const Finished f =
      test::interrupt_tern({"run", "-p", "Hello", "--no-cnv", "--temp", "0", "-n", "400", "--backend", "ref"});
  EXPECT_EQ(f.code, 130) << f.err;
  EXPECT_FALSE(f.out.empty());
  EXPECT_TRUE(f.out.ends_with('\n'));
  EXPECT_NE(f.err.find("tokens/s"), std::string::npos) << f.err;
}

TEST(Chat, CtrlDLeavesAndOneCtrlCDoesNot) {
  const Finished f = chat_with_tern({"run"}, {"\x03", "\x04"});
  EXPECT_EQ(f.code, 0) << f.out;
  EXPECT_NE(f.out.find("once more"), std::string::npos) << f.out;
}

TEST(Chat, TheArrowsEditALineAndRecallTheLastOne) {
  // "/shw", left, "o" makes /show; then Up recalls it.
  const Finished f = chat_with_tern({"run"}, {"/shw\x1b[Do\r", "\x1b[A\r", "/bye\r"});
  EXPECT_EQ(f.code, 0) << f.out;
  const size_t first = f.out.find("sampling temp");
  ASSERT_NE(first, std::string::npos) << f.out;
  EXPECT_NE(f.out.find("sampling temp", first + 1), std::string::npos) << f.out;
}

}  // namespace
}  // namespace tern
