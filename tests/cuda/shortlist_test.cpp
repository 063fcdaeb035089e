// Shortlists made and tokens drawn on the GPU are those of the host, from the same logits.
#include "backend/cuda/ops.h"
#include "backend/draw_cases.h"
#include "backend/shortlist_cases.h"
#include "cuda/device_data.h"
#include "cuda/gpu.h"
#include "engine/sampler.h"

namespace tern::cuda {
namespace {

constexpr double kLogSumTolerance = 1e-6;  // exp() in f32, sums in double

class CudaShortlist : public test::OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (!IsSkipped()) stream_ = std::make_unique<Stream>();
  }
  struct Chosen {
    std::vector<Shortlist> lists;
    std::vector<int32_t> tokens;
  };
  /// Rows of `cols` logits with no gap between them, `tokens` of which count (0 columns: all rows are the first one);
  /// wanted[r] of row r.
  Chosen run(const std::vector<float>& logits, int64_t cols, int64_t tokens, const std::vector<Wanted>& wanted) {
    return run(to_device(logits), cols, tokens, wanted);
  }
  Chosen run(const DeviceMemory& x, int64_t cols, int64_t tokens, const std::vector<Wanted>& wanted) {
    const size_t rows = wanted.size();
    const DeviceMemory wishes = to_device(wanted);
    DeviceMemory scratch(rows * static_cast<size_t>(shortlist_scratch_bytes(tokens)));
    DeviceMemory chosen(rows * kChosenBytes);
    check(cudaMemset(scratch.data(), 0xff, scratch.size()), "poison");
    check(cudaMemset(chosen.data(), 0xaa, chosen.size()), "poison");
    check(cudaDeviceSynchronize(), "poison");
    shortlists(stream_->get(), floats(x), {.outputs = static_cast<int64_t>(rows), .cols = cols, .tokens = tokens},
               reinterpret_cast<const Wanted*>(wishes.data()), scratch.data(),
               reinterpret_cast<Shortlist*>(chosen.data()));
    stream_->wait();
    Chosen got{std::vector<Shortlist>(rows), std::vector<int32_t>(rows)};
    const size_t lists = rows * sizeof(Shortlist);
    check(cudaMemcpy(got.lists.data(), chosen.data(), lists, cudaMemcpyDeviceToHost), "copy from the GPU");
    check(cudaMemcpy(got.tokens.data(), chosen.data() + lists, rows * sizeof(int32_t), cudaMemcpyDeviceToHost),
          "copy from the GPU");
    return got;
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaShortlist, IsWhatTheHostCutsFromTheLogits) {
  for (const int64_t vocab : {1, 31, 256, 4096, 4097, 50001, 248320, 300007})
    for (const test::LogitsCase& c : test::logits_cases(static_cast<size_t>(vocab)))
      for (const int32_t k : test::kCandidateCounts) {
        const Shortlist wanted = shortlist(c.logits, {.best = k, .log_sum = true});
        const Shortlist got = run(c.logits, vocab, vocab, {{.best = k, .log_sum = true}}).lists[0];
        const std::string what = c.name + ", " + std::to_string(k) + " of " + std::to_string(vocab);
        test::expect_same(got, wanted, what);
        if (wanted.size == 0) continue;
        EXPECT_NEAR(got.log_sum, wanted.log_sum, kLogSumTolerance * std::max(1.0, std::abs(wanted.log_sum))) << what;
      }
}

TEST_F(CudaShortlist, LeavesOutWhatIsNoNumber) {
  const Shortlist got = run({NAN, 1, INFINITY, 3, -INFINITY, -NAN, 2}, 7, 7, {{.best = 5}}).lists[0];
  ASSERT_EQ(got.size, 3);
  EXPECT_EQ(got.best[0], (Candidate{3, 3.0f}));
  EXPECT_EQ(got.best[1], (Candidate{6, 2.0f}));
  EXPECT_EQ(got.best[2], (Candidate{1, 1.0f}));
}

TEST_F(CudaShortlist, RowsHaveTheirOwnWishesAndPaddingIsNoToken) {
  constexpr int64_t kCols = 9001, kTokens = 8999;
  constexpr int32_t kUntouched = -0x55555556;  // of bytes 0xaa
  const std::vector<Wanted> wanted{
      {},           {.best = 1},
      kBestToken,   {.best = kMostCandidates, .log_sum = true},
      {.best = 40}, {.best = 40, .token = true, .draw = {.uniform = 0.7, .temperature = 2}},
      {},           {.best = 7, .token = true, .draw = {.uniform = 0.3, .top_p = 0.8f}}};
  std::mt19937 random(3);
  std::vector<float> logits = random_rows(static_cast<int64_t>(wanted.size()), kCols, random);
  for (size_t row = 0; row < wanted.size(); ++row)
    for (int64_t i = kTokens; i < kCols; ++i) logits[row * kCols + static_cast<size_t>(i)] = 1000;
  const Chosen got = run(logits, kCols, kTokens, wanted);
  for (size_t row = 0; row < wanted.size(); ++row) {
    const std::span<const float> of_row = std::span(logits).subspan(row * kCols, kTokens);
    const test::Granted granted(of_row, wanted[row]);
    EXPECT_EQ(got.tokens[row], granted.scores.token.value_or(kUntouched)) << row;
    if (granted.scores.shortlist) {
      test::expect_same(got.lists[row], granted.list, "row " + std::to_string(row));
    } else {
      EXPECT_EQ(got.lists[row].size, kUntouched) << row;
    }
  }
}

TEST_F(CudaShortlist, HasTheSameBitsEveryTime) {
  std::mt19937 random(4);
  const DeviceMemory logits = to_device(random_rows(1, 248320, random));
  const Wanted list{.best = kMostCandidates, .log_sum = true};
  const Wanted token{.best = 200, .token = true, .draw = {.uniform = 0.83, .top_p = 0.97f, .temperature = 1.3f}};
  const Shortlist first = run(logits, 248320, 248320, {list}).lists[0];
  const int32_t drawn = run(logits, 248320, 248320, {token}).tokens[0];
  for (int i = 0; i < 50; ++i) {
    const Shortlist again = run(logits, 248320, 248320, {list}).lists[0];
    test::expect_same(again, first, "run " + std::to_string(i));
    ASSERT_EQ(again.log_sum, first.log_sum);
    ASSERT_EQ(run(logits, 248320, 248320, {token}).tokens[0], drawn);
  }
}

/// Uniform numbers next to the edge between two candidates tell whether a sum differs in its last bit.
TEST_F(CudaShortlist, DrawsTheTokenOfTheHostAtEveryEdge) {
  const std::vector<Draw> ways = test::draw_cases();
  size_t way = 0;
  for (const int64_t vocab : {1, 32, 4097, 248320})
    for (const test::LogitsCase& c : test::logits_cases(static_cast<size_t>(vocab))) {
      const DeviceMemory logits = to_device(c.logits);
      for (const int32_t k : test::kCandidateCounts) {
        const Shortlist list = shortlist(c.logits, {.best = k});
        std::vector<Lane> lanes(kMostCandidates);
        for (int turn = 0; turn < 3; ++turn) {
          Draw how = ways[way++ % ways.size()];
          std::vector<Wanted> wanted;
          for (const double uniform : test::hard_uniforms(list.candidates(), how)) {
            how.uniform = uniform;
            wanted.push_back({.best = k, .token = true, .draw = how});
          }
          const std::vector<int32_t> got = run(logits, 0, vocab, wanted).tokens;
          for (size_t i = 0; i < wanted.size(); ++i)
            ASSERT_EQ(got[i], draw(list.candidates(), wanted[i].draw, lanes))
                << c.name << ", " << k << " of " << vocab << ", uniform " << wanted[i].draw.uniform << ", top_p "
                << how.top_p;
        }
      }
    }
}

TEST_F(CudaShortlist, DrawsWhatASamplerDrawsFromAllLogits) {
  constexpr int64_t kVocab = 50001;
  std::mt19937 random(6);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Sampler sampler({.temperature = 0.2f * static_cast<float>(seed % 8),
                     .top_k = static_cast<int32_t>(1 + seed * 6),
                     .top_p = seed % 3 == 0 ? 1.0f : 0.9f,
                     .min_p = seed % 5 == 0 ? 0.0f : 0.02f,
                     .seed = seed});
    for (int token = 0; token < 5; ++token) {
      std::vector<float> logits = random_rows(1, kVocab, random);
      if (token % 2 == 1) std::ranges::transform(logits, logits.begin(), [](float x) { return std::round(2 * x); });
      const Wanted wanted = sampler.wanted();
      ASSERT_TRUE(wanted.token);
      ASSERT_EQ(run(logits, kVocab, kVocab, {wanted}).tokens[0], sampler.sample(logits)) << "seed " << seed;
    }
  }
}

TEST_F(CudaShortlist, DrawsNothingWhereNoLogitIsANumber) {
  const Wanted greedy = kBestToken, any{.best = 3, .token = true};
  for (const Wanted& wanted : {greedy, any}) EXPECT_EQ(run({NAN, -INFINITY}, 2, 2, {wanted}).tokens[0], -1);
}

TEST_F(CudaShortlist, OfABackendIsGrantedFromItsLogitsWithAndWithoutGraphs) {
  for (const bool graphs : {true, false})
    test::expect_wishes_of_the_logits([&] { return make_cuda_backend({.graphs = graphs}); }, kLogSumTolerance);
}

TEST_F(CudaShortlist, OfATracedStepIsTheSame) {
  test::expect_wishes_of_the_logits(
      [] {
        auto backend = make_cuda_backend();
        backend->set_trace([](const OpTrace&) {});
        return backend;
      },
      kLogSumTolerance);
}

}  // namespace
}  // namespace tern::cuda
