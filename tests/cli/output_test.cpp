#include "cli/output.h"

#include <gtest/gtest.h>

#include "cli/table.h"
#include "cli/terminal.h"

namespace tern::cli {
namespace {

using std::chrono::milliseconds;

TEST(Printable, WhatATerminalObeysIsSpelledOut) {
  EXPECT_EQ(printable("a\x1b]0;title\x07z"), "a\\x1b]0;title\\x07z");
  EXPECT_EQ(printable("one\ntwo\r\t\x7f"), "one\\ntwo\\x0d\\x09\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI as one C1 character
  EXPECT_EQ(printable("\x9b\xff"), "\\x9b\\xff");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

TEST(Printable, TextPassesAndSoDoesWhatIsKept) {
  EXPECT_EQ(printable("naïve 日本 🙂"), "naïve 日本 🙂");
  EXPECT_EQ(printable("a\nb\tc\x1b", "\n\t"), "a\nb\tc\\x1b");
}

TEST(Table, CellsCannotBreakOutOfTheirColumn) {
  Table table({"NAME", "X"});
  table.add({"a\nb\x1b[2J", "1"});
  EXPECT_EQ(table.text(), "NAME         X\na\\nb\\x1b[2J  1\n");
}

const Progress::Clock::time_point kStart{};

TEST(Progress, OffATerminalAPlainLineEveryFiveSeconds) {
  Progress progress("loading", Progress::Unit::kTokens, /*terminal=*/false, kStart);
  EXPECT_EQ(progress.update(10, 100, kStart + milliseconds(4999)), "");
  EXPECT_EQ(progress.update(20, 100, kStart + milliseconds(5000)), "loading 20% 20/100 tokens 4/s 20 s left\n");
  EXPECT_EQ(progress.update(30, 100, kStart + milliseconds(9999)), "");
  EXPECT_EQ(progress.update(50, 100, kStart + milliseconds(10000)), "loading 50% 50/100 tokens 5/s 10 s left\n");
  EXPECT_EQ(progress.finish(), "");
}

TEST(Progress, OnATerminalOneLineThatGoesWhenFinished) {
  Progress progress("loading", Progress::Unit::kBytes, /*terminal=*/true, kStart);
  EXPECT_EQ(progress.update(1, 2, kStart + milliseconds(50)), "");
  const std::string line = progress.update(1, 2, kStart + milliseconds(100));
  EXPECT_TRUE(line.starts_with("\rloading")) << line;
  EXPECT_EQ(line.find('\n'), line.npos);
  EXPECT_NE(line.find("50% [############............]"), line.npos) << line;
  EXPECT_EQ(progress.finish(), "\r\x1b[K");
  EXPECT_EQ(progress.finish(), "");
}

TEST(Progress, SaysNothingOfNothing) {
  Progress progress("loading", Progress::Unit::kBytes, true, kStart);
  EXPECT_EQ(progress.update(0, 0, kStart + milliseconds(900)), "");
}

}  // namespace
}  // namespace tern::cli
