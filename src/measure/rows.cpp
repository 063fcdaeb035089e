#include "measure/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>

#include "base/error.h"

namespace tern::measure {
namespace {

constexpr int32_t kWarmUpTokens = 8;  // of a generation; a prompt is short enough to be read whole

class SystemClock final : public Clock {
 public:
  double wall() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  double cpu() override {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  void settle() override {
    constexpr double kWindow = 0.01, kIdleShare = 0.02;
    constexpr int kMostWindows = 200;  // two seconds: pools park long before
    for (int i = 0; i < kMostWindows; ++i) {
      const double before = cpu();
      std::this_thread::sleep_for(std::chrono::duration<double>(kWindow));
      if (cpu() - before < kIdleShare * kWindow) return;
    }
  }
};

std::vector<int32_t> random_tokens(int32_t n, int32_t n_vocab, std::mt19937& random) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(n_vocab));
  return ids;
}

Sample take(Contender& contender, const Test& test, std::span<const int32_t> tokens, Clock& clock) {
  contender.seek(test.depth);
  clock.settle();
  const double cpu = clock.cpu(), wall = clock.wall();
  test.prompt > 0 ? contender.prompt(tokens) : contender.generate(tokens);
  const double seconds = clock.wall() - wall;
  return {.seconds = seconds, .cpu_seconds = clock.cpu() - cpu};
}

double median(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

std::string Test::name() const {
  std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  if (busy > 0) text += fmt::format(" beside {} busy", busy);
  return text;
}

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

std::vector<Series> take_turns(std::span<Contender* const> contenders, const Test& test, int32_t repeats,
                               int32_t n_vocab, Clock& clock) {
  std::mt19937 random(1);
  const std::vector<int32_t> tokens = random_tokens(test.tokens(), n_vocab, random);
  const auto warm_up = std::span(tokens).first(
      static_cast<size_t>(test.prompt > 0 ? test.prompt : std::min(test.generate, kWarmUpTokens)));
  for (Contender* const c : contenders) take(*c, test, warm_up, clock);
  std::vector<Series> series(contenders.size());
  for (int32_t round = 0; round < repeats; ++round)
    for (size_t i = 0; i < contenders.size(); ++i) series[i].push_back(take(*contenders[i], test, tokens, clock));
  return series;
}

Summary summarize(std::span<const double> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {.median = median({values.begin(), values.end()}), .low = *low, .high = *high};
}

std::vector<double> rates(const Series& series, int32_t tokens) {
  std::vector<double> out;
  for (const Sample& s : series) out.push_back(tokens / s.seconds);
  return out;
}

double paired_ratio(const Series& ours, const Series& theirs) {
  CHECK(ours.size() == theirs.size(), "{} and {} samples", ours.size(), theirs.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[i].seconds / ours[i].seconds);
  return median(std::move(ratios));
}

double cpu_share(const Series& series, int threads) {
  std::vector<double> shares;
  for (const Sample& s : series) shares.push_back(s.cpu_seconds / (s.seconds * threads));
  return median(std::move(shares));
}

}  // namespace tern::measure
