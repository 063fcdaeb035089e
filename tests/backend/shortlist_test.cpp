// Shortlists are the head of the sorted logits, however they are found.
#include "backend/shortlist.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/ref/ref_backend.h"
#include "backend/shortlist_cases.h"

namespace tern {
namespace {

using namespace test;

/// By sorting everything that is finite.
Shortlist sorted(std::span<const float> logits, int32_t k) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) all.push_back({static_cast<int32_t>(i), logits[i]});
  std::ranges::sort(all, better);
  Shortlist list;
  list.size = std::min(k, static_cast<int32_t>(all.size()));
  std::copy_n(all.begin(), list.size, list.best);
  return list;
}

/// What keep_best() of the CUDA kernels does, in their words.
std::vector<uint64_t> keep_best(int32_t k, const std::vector<uint64_t>& keys) {
  const auto reach = [&](uint64_t least) {
    return static_cast<int32_t>(std::ranges::count_if(keys, [&](uint64_t key) { return key >= least; }));
  };
  const uint64_t least = key_of_best(std::min(k, reach(1)), reach);
  std::vector<uint64_t> kept;
  std::ranges::copy_if(keys, std::back_inserter(kept), [&](uint64_t key) { return key >= least; });
  return kept;
}

TEST(Shortlist, IsTheHeadOfTheSortedLogits) {
  for (const size_t n : {1, 5, 300, 5003})
    for (const LogitsCase& c : logits_cases(n))
      for (const int32_t k : kCandidateCounts)
        expect_same(shortlist(c.logits, {.best = k}), sorted(c.logits, k), c.name + " " + std::to_string(k));
}

TEST(Shortlist, LeavesOutWhatIsNoNumber) {
  const std::vector<float> logits{NAN, 1, INFINITY, 3, -INFINITY, -NAN, 2};
  const Shortlist list = shortlist(logits, {.best = 5});
  EXPECT_EQ(std::vector(list.candidates().begin(), list.candidates().end()),
            (std::vector<Candidate>{{3, 3.0f}, {6, 2.0f}, {1, 1.0f}}));
}

TEST(Shortlist, HasTheSumOfAllLogitsWhereItIsWanted) {
  const std::vector<float> logits{1000, 999, 1000};
  EXPECT_EQ(shortlist(logits, {.best = 1, .log_sum = true}).log_sum, log_sum_exp(logits));
  EXPECT_EQ(shortlist(logits, {.best = 1}).log_sum, 0);
}

TEST(CandidateKey, OrdersAsCandidatesDo) {
  std::vector<Candidate> all;
  for (const LogitsCase& c : logits_cases(200))
    for (const float logit : c.logits)
      if (std::isfinite(logit)) all.push_back({static_cast<int32_t>(all.size()), logit});
  all.push_back({INT32_MAX, 7.0f});
  for (const Candidate& a : all) {
    const uint64_t key = candidate_key(a.logit, a.id);
    EXPECT_NE(key, 0u);
    EXPECT_EQ(candidate_of(key), a);
    for (const Candidate& b : all)
      ASSERT_EQ(key > candidate_key(b.logit, b.id), better(a, b)) << a.logit << " " << b.logit;
  }
  for (const float logit : {INFINITY, -INFINITY, NAN, -NAN}) EXPECT_EQ(candidate_key(logit, 1), 0u);
}

TEST(CandidateKey, TheBestOfTheBestOfSlicesAreTheBest) {
  for (const size_t n : {1, 300, 5003})
    for (const LogitsCase& c : logits_cases(n))
      for (const int32_t k : kCandidateCounts) {
        std::vector<uint64_t> left;
        for (size_t first = 0; first < n; first += 512) {
          std::vector<uint64_t> keys;
          for (size_t id = first; id < std::min(n, first + 512); ++id)
            keys.push_back(candidate_key(c.logits[id], static_cast<int32_t>(id)));
          std::vector<uint64_t> best = keep_best(k, keys);
          EXPECT_LE(best.size(), static_cast<size_t>(k));
          best.resize(static_cast<size_t>(k));
          left.insert(left.end(), best.begin(), best.end());
        }
        std::vector<uint64_t> best = keep_best(k, left);
        std::ranges::sort(best, std::greater());
        Shortlist list;
        list.size = static_cast<int32_t>(best.size());
        std::ranges::transform(best, list.best, candidate_of);
        expect_same(list, sorted(c.logits, k), c.name + " " + std::to_string(k));
      }
}

TEST(BackendWishes, AreHeldToTheOutputsAndTheRoomForThem) {
  Step step;
  step.out_rows = {0};
  std::vector<int32_t> tokens(1);
  const auto check = [&](std::vector<Wanted> wanted) {
    step.wanted = std::move(wanted);
    check_wishes(step, {.logits = {}, .tokens = tokens});
  };
  check({kBestToken});
  check({{}});
  EXPECT_DEATH(check({kBestToken, kBestToken}), "2 wishes of 1 outputs");
  EXPECT_DEATH(check({{.best = 3}}), "room for 0 of 1 outputs");
  EXPECT_DEATH(check({{.token = true}}), "a token of no candidates");
}

TEST(BackendWishes, OfTheReferenceAreGrantedFromItsLogits) {
  expect_wishes_of_the_logits([] { return make_ref_backend(); }, 0);
}

TEST(BackendWishes, OfTheCpuAreGrantedFromItsLogits) {
  expect_wishes_of_the_logits([] { return make_cpu_backend({.threads = 2}); }, 0);
}

}  // namespace
}  // namespace tern
