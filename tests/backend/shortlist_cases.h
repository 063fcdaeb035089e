// Rows of logits that are hard to choose from, and a backend held to what its own logits say.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/draw.h"
#include "backend/op_plan.h"

namespace tern::test {

struct LogitsCase {
  std::string name;
  std::vector<float> logits;
};

/// `n` logits: far apart, many of them equal, few finite, none finite, far below zero, in order of their ids and
/// against it.
inline std::vector<LogitsCase> logits_cases(size_t n) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal(-1, 3);
  const auto filled = [n](const auto& make) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = make(i);
    return x;
  };
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::denorm_min();
  constexpr float kOdd[] = {0.0f, -0.0f, kLeast, -kLeast, kMost, -kMost, -INFINITY, 1.0f};
  return {
      {"normal", filled([&](size_t) { return normal(random); })},
      {"ties", filled([&](size_t) { return std::round(normal(random)); })},
      {"equal", filled([&](size_t) { return -2.5f; })},
      {"banned but for a few", filled([&](size_t i) { return i % 97 == 3 ? normal(random) : -INFINITY; })},
      {"far below zero, half banned", filled([&](size_t i) { return i < n / 2 ? -INFINITY : -2000 + normal(random); })},
      {"all banned", filled([&](size_t) { return -INFINITY; })},
      {"odd", filled([&](size_t i) { return kOdd[i % std::size(kOdd)]; })},
      {"ascending", filled([&](size_t i) { return static_cast<float>(i) / 16; })},
      {"descending", filled([&](size_t i) { return -static_cast<float>(i) / 16; })},
  };
}

inline constexpr int32_t kCandidateCounts[] = {1, 2, 40, 255, kMostCandidates};

/// The same candidates; zeros may differ in sign.
inline void expect_same(const Shortlist& got, const Shortlist& wanted, const std::string& what) {
  ASSERT_EQ(got.size, wanted.size) << what;
  for (size_t i = 0; i < wanted.candidates().size(); ++i)
    ASSERT_EQ(got.best[i], wanted.best[i]) << what << ", candidate " << i << ": " << got.best[i].id << " ("
                                           << got.best[i].logit << ") for " << wanted.best[i].id;
}

/// What `wanted` asks for in place of `logits`, cut and drawn here.
struct Granted {
  Granted(std::span<const float> logits, const Wanted& wanted) {
    if (wanted.best > 0) list = shortlist(logits, wanted);
    std::vector<Lane> lanes(kMostCandidates);
    if (wanted.token) {
      scores.token = draw(list.candidates(), wanted.draw, lanes);
    } else if (wanted.best > 0) {
      scores.shortlist = &list;
    } else {
      scores.logits = logits;
    }
  }
  Granted(const Granted&) = delete;
  Granted& operator=(const Granted&) = delete;

  Shortlist list;
  Scores scores;  // points into the list and the logits
};

/// Rows of one step that want all there is to want, several times (a GPU captures the second as a graph), against rows
/// of logits: of vocabularies with and without padding, half of whose logits are zeros of both signs.
inline void expect_wishes_of_the_logits(const std::function<std::unique_ptr<Backend>()>& make, double tolerance) {
  for (const int64_t vocab : {1, 31, 1000, 4097, 20011}) {
    OpPlan p;
    const gguf::File file = p.open(p.op(GluArgs{Gate::kRelu2}, {p.input(vocab), p.input(vocab)}, vocab));
    p.plan.n_tokens = vocab - vocab / 10;
    const auto backend = make();
    backend->load(p.plan, file, {});
    backend->reserve({});
    const auto program = backend->compile({.rows = 8, .outputs = 8, .seqs = 1});
    Step step;
    step.tokens = {3, 1, 4, 1, 5, 9, 2, 6};
    step.seqs = {{.n_rows = 8}};
    step.out_rows = {0, 1, 2, 4, 6, 7};
    const size_t rows = step.out_rows.size(), cols = static_cast<size_t>(vocab);
    std::vector<float> all(rows * cols), some(rows * cols);
    backend->run(*program, step, {.logits = all});
    step.wanted = {{.best = 1},
                   {},
                   {.best = 40, .log_sum = true},
                   {.best = kMostCandidates, .log_sum = true},
                   {.best = 40, .token = true, .draw = {.uniform = 0.9, .top_p = 0.95f, .temperature = 0.8f}},
                   kBestToken};
    for (int turn = 0; turn < 6; ++turn) {
      std::vector<Shortlist> lists(rows);
      std::vector<int32_t> tokens(rows, -2);
      if (turn == 5) {  // tokens alone, and then nobody wants a list
        std::ranges::fill(step.wanted, kBestToken);
        step.wanted[2] = {.best = 200, .token = true, .draw = {.uniform = 0.5}};
        lists.clear();
      }
      std::fill(some.begin(), some.end(), NAN);
      backend->run(*program, step, {.logits = some, .shortlists = lists, .tokens = tokens});
      for (size_t row = 0; row < rows; ++row) {
        const std::string what = std::to_string(vocab) + ", row " + std::to_string(row) + ", " + std::to_string(turn);
        const std::span<const float> logits = std::span(all).subspan(row * cols, cols);
        const Granted wanted(logits.first(static_cast<size_t>(p.plan.n_tokens)), step.wanted[row]);
        EXPECT_EQ(tokens[row], wanted.scores.token.value_or(-2)) << what;
        if (!wanted.scores.logits.empty()) {
          EXPECT_TRUE(std::ranges::equal(logits, std::span(some).subspan(row * cols, cols))) << what;
        }
        if (!wanted.scores.shortlist) {
          EXPECT_TRUE(lists.empty() || lists[row].size == 0) << what << " was not asked for";
          continue;
        }
        expect_same(lists[row], wanted.list, what);
        if (step.wanted[row].log_sum) {
          EXPECT_NEAR(lists[row].log_sum, wanted.list.log_sum, tolerance) << what;
        }
      }
      std::ranges::rotate(step.wanted, step.wanted.begin() + 1);
    }
  }
}

}  // namespace tern::test
