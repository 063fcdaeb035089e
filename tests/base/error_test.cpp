#include "base/error.h"

#include <gtest/gtest.h>

namespace tern {
namespace {

TEST(Error, CarriesItsCodeAndFormattedMessage) {
  try {
    fail(ErrorCode::kContextFull, "prompt {} > {}", 7940, 4096);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kContextFull);
    EXPECT_STREQ(e.what(), "prompt 7940 > 4096");
    return;
  }
}

TEST(Error, IsARuntimeError) {
  EXPECT_THROW(fail(ErrorCode::kIo, "disk"), std::runtime_error);
}

TEST(Check, EvaluatesItsConditionOnceAndGoesOn) {
  int evaluated = 0;
  CHECK(++evaluated == 1);
  CHECK(++evaluated == 2, "with a message {}", evaluated);
  EXPECT_EQ(evaluated, 2);
}

TEST(CheckDeathTest, AbortsWithPlaceConditionAndMessage) {
  EXPECT_DEATH(CHECK(1 + 1 == 3), "tests/base/error_test.cpp:[0-9]+: CHECK\\(1 \\+ 1 == 3\\) failed\n");
  EXPECT_DEATH(CHECK(false, "got {} of {}", 4, 8), "CHECK\\(false\\) failed: got 4 of 8\n");
}

}  // namespace
}  // namespace tern
