// Turns, warm-ups and what the samples say, with engines and a clock that take no time.
#include "measure/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "measure/receipt.h"

namespace tern::measure {
namespace {

class FakeClock final : public Clock {
 public:
  double wall() override { return wall_; }
  double cpu() override { return cpu_; }
  void settle() override { ++settled; }
  void pass(double wall, double cpu) {
    wall_ += wall;
    cpu_ += cpu;
  }
  int settled = 0;

 private:
  double wall_ = 0, cpu_ = 0;
};

/// Writes down what is asked of it; a token takes `seconds` of `threads` threads, the cache fills at once.
class Fake final : public Contender {
 public:
  Fake(std::string name, std::vector<std::string>& log, FakeClock& clock, double seconds, double threads)
      : name_(std::move(name)), log_(log), clock_(clock), seconds_(seconds), threads_(threads) {}
  void seek(int32_t depth) override { note("seek", depth); }
  void prompt(std::span<const int32_t> tokens) override { work("prompt", tokens); }
  void generate(std::span<const int32_t> tokens) override { work("generate", tokens); }
  std::vector<int32_t> seen{};

 private:
  void note(const char* what, int64_t n) { log_.push_back(name_ + " " + what + " " + std::to_string(n)); }
  void work(const char* what, std::span<const int32_t> tokens) {
    note(what, static_cast<int64_t>(tokens.size()));
    seen.assign(tokens.begin(), tokens.end());
    const double seconds = seconds_ * static_cast<double>(tokens.size());
    clock_.pass(seconds, threads_ * seconds);
  }

  std::string name_;
  std::vector<std::string>& log_;
  FakeClock& clock_;
  double seconds_, threads_;
};

struct TakeTurns : testing::Test {
  std::vector<std::string> log;
  FakeClock clock;
  Fake a{"a", log, clock, 0.1, 2}, b{"b", log, clock, 0.3, 1.5};
  std::array<Contender*, 2> both{&a, &b};
};

TEST_F(TakeTurns, EachEngineWarmsUpAndThenTheyAlternateAtTheSameDepth) {
  take_turns(both, {.prompt = 16, .depth = 64}, 2, 100, clock);
  const std::vector<std::string> turn{"a seek 64", "a prompt 16", "b seek 64", "b prompt 16"};
  std::vector<std::string> expected;
  for (int i = 0; i < 3; ++i) expected.insert(expected.end(), turn.begin(), turn.end());
  EXPECT_EQ(log, expected);
  EXPECT_EQ(clock.settled, 6);
}

TEST_F(TakeTurns, TheWarmUpIsNotKeptAndShortForAGeneration) {
  const auto series = take_turns(both, {.generate = 32}, 3, 100, clock);
  EXPECT_EQ(log[1], "a generate 8");
  EXPECT_EQ(log[5], "a generate 32");
  ASSERT_EQ(series.size(), 2u);
  for (const Series& s : series) EXPECT_EQ(s.size(), 3u);
  for (const Sample& s : series[0]) EXPECT_NEAR(s.seconds, 3.2, 1e-9);
}

TEST_F(TakeTurns, BothReadTheSameTokensOfTheVocabulary) {
  take_turns(both, {.generate = 64}, 1, 10, clock);
  EXPECT_EQ(a.seen, b.seen);
  EXPECT_TRUE(std::all_of(a.seen.begin(), a.seen.end(), [](int32_t id) { return id >= 0 && id < 10; }));
  EXPECT_FALSE(std::all_of(a.seen.begin(), a.seen.end(), [&](int32_t id) { return id == a.seen[0]; }));
}

TEST_F(TakeTurns, ARowIsContendedWhenAnEngineMissedItsThreadsTime) {
  auto series = take_turns(both, {.generate = 10}, 3, 100, clock);
  EXPECT_NEAR(cpu_share(series[0], 2), 1, 1e-9);
  EXPECT_NEAR(cpu_share(series[1], 2), 0.75, 1e-9);
  Row row{.test = {.generate = 10}, .threads = 2, .ours = series[0], .theirs = {}};
  EXPECT_FALSE(row.contended());
  row.theirs = series[1];
  EXPECT_TRUE(row.contended());
  row.test.busy = 1;  // then it is what was asked for
  EXPECT_FALSE(row.contended());
}

TEST(Summarize, MedianAndRange) {
  const std::array odd{5.0, 1.0, 3.0};
  const std::array even{4.0, 1.0, 3.0, 8.0};
  EXPECT_EQ(summarize(odd).median, 3);
  EXPECT_EQ(summarize(odd).low, 1);
  EXPECT_EQ(summarize(odd).high, 5);
  EXPECT_EQ(summarize(even).median, 3.5);
}

TEST(PairedRatio, ComparesTheTwoSamplesOfARound) {
  // The machine was half as fast in the last round: both engines took twice as long, and the ratio does not see it.
  const Series ours{{1, 0}, {1, 0}, {2, 0}}, theirs{{2.5, 0}, {2.5, 0}, {5, 0}};
  EXPECT_DOUBLE_EQ(paired_ratio(ours, theirs), 2.5);
}

TEST(TestName, SaysWhatIsTimed) {
  EXPECT_EQ((measure::Test{.prompt = 512}.name()), "pp512");
  EXPECT_EQ((measure::Test{.generate = 128, .depth = 4096}.name()), "tg128 @ d4096");
  EXPECT_EQ((measure::Test{.generate = 128, .busy = 1}.name()), "tg128 beside 1 busy");
}

TEST(Receipt, HoldsEverySampleTheRatioAndTheShareOfTheBandwidth) {
  Receipt r;
  r.bandwidth[2] = 60e9;
  r.compared.emplace().file = "other.gguf";
  r.rows.push_back({.test = {.generate = 10},
                    .threads = 2,
                    .ours = {{1, 2}, {1, 2}, {0.5, 1}},
                    .theirs = {{2, 4}, {2, 4}, {1, 2}},
                    .bytes_per_token = 3e9});
  r.rows.push_back({.test = {.prompt = 10}, .threads = 2, .ours = {{1, 2}}, .theirs = {}});
  const nlohmann::ordered_json j = to_json(r);
  const auto& row = j.at("rows").at(0);
  EXPECT_EQ(row.at("test"), "tg10");
  EXPECT_EQ(row.at("samples_ts"), (nlohmann::ordered_json{10, 10, 20}));
  EXPECT_EQ(row.at("median_ts"), 10);
  EXPECT_EQ(row.at("ratio"), 2);
  EXPECT_EQ(row.at("of_bandwidth"), 0.5);
  EXPECT_EQ(row.at("compared").at("median_ts"), 5);
  EXPECT_FALSE(j.at("rows").at(1).contains("ratio"));
  EXPECT_FALSE(j.at("rows").at(1).contains("of_bandwidth"));
  EXPECT_EQ(j.at("compared").at("file"), "other.gguf");
}

}  // namespace
}  // namespace tern::measure
