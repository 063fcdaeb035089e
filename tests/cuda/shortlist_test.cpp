// Shortlists made on the GPU are those that the host cuts from the same logits.
#include "backend/cuda/ops.h"
#include "backend/shortlist_cases.h"
#include "cuda/device_data.h"
#include "cuda/gpu.h"

namespace tern::cuda {
namespace {

constexpr double kLogSumTolerance = 1e-6;  // exp() in f32, sums in double

class CudaShortlist : public test::OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (!IsSkipped()) stream_ = std::make_unique<Stream>();
  }
  /// Rows of `cols` logits with no gap between them, `tokens` of which count; best[r] of row r.
  std::vector<Shortlist> run(const std::vector<float>& logits, int64_t cols, int64_t tokens,
                             const std::vector<int32_t>& best) {
    const auto rows = static_cast<int64_t>(best.size());
    const DeviceMemory x = to_device(logits), k = to_device(best);
    DeviceMemory scratch(static_cast<size_t>(rows * shortlist_scratch_bytes(tokens)));
    DeviceMemory lists = to_device(std::vector<Shortlist>(best.size()));
    check(cudaMemset(scratch.data(), 0xff, scratch.size()), "poison");
    check(cudaDeviceSynchronize(), "poison");
    shortlists(stream_->get(), floats(x), {.outputs = rows, .cols = cols, .tokens = tokens},
               reinterpret_cast<const int32_t*>(k.data()), scratch.data(), reinterpret_cast<Shortlist*>(lists.data()));
    stream_->wait();
    std::vector<Shortlist> got(best.size());
    check(cudaMemcpy(got.data(), lists.data(), lists.size(), cudaMemcpyDeviceToHost), "copy from the GPU");
    return got;
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaShortlist, IsWhatTheHostCutsFromTheLogits) {
  for (const int64_t vocab : {1, 31, 256, 4096, 4097, 50001, 248320, 300007})
    for (const test::LogitsCase& c : test::logits_cases(static_cast<size_t>(vocab)))
      for (const int32_t k : test::kCandidateCounts) {
        const Shortlist wanted = shortlist(c.logits, {.best = k, .log_sum = true});
        const Shortlist got = run(c.logits, vocab, vocab, {k})[0];
        const std::string what = c.name + ", " + std::to_string(k) + " of " + std::to_string(vocab);
        test::expect_same(got, wanted, what);
        if (wanted.size == 0) continue;
        EXPECT_NEAR(got.log_sum, wanted.log_sum, kLogSumTolerance * std::max(1.0, std::abs(wanted.log_sum))) << what;
      }
}

TEST_F(CudaShortlist, LeavesOutWhatIsNoNumber) {
  const Shortlist got = run({NAN, 1, INFINITY, 3, -INFINITY, -NAN, 2}, 7, 7, {5})[0];
  ASSERT_EQ(got.size, 3);
  EXPECT_EQ(got.best[0], (Candidate{3, 3.0f}));
  EXPECT_EQ(got.best[1], (Candidate{6, 2.0f}));
  EXPECT_EQ(got.best[2], (Candidate{1, 1.0f}));
}

TEST_F(CudaShortlist, RowsHaveTheirOwnCountsAndPaddingIsNoToken) {
  constexpr int64_t kCols = 9001, kTokens = 8999;
  const std::vector<int32_t> best{0, 1, kMostCandidates, 0, 40, 7};
  std::mt19937 random(3);
  std::vector<float> logits = random_rows(static_cast<int64_t>(best.size()), kCols, random);
  for (size_t row = 0; row < best.size(); ++row)
    for (int64_t i = kTokens; i < kCols; ++i) logits[row * kCols + static_cast<size_t>(i)] = 1000;
  const std::vector<Shortlist> got = run(logits, kCols, kTokens, best);
  for (size_t row = 0; row < best.size(); ++row) {
    if (best[row] == 0) {
      EXPECT_EQ(got[row].size, 0) << row;
      continue;
    }
    const std::span<const float> of_row = std::span(logits).subspan(row * kCols, kTokens);
    test::expect_same(got[row], shortlist(of_row, {.best = best[row]}), "row " + std::to_string(row));
  }
}

TEST_F(CudaShortlist, HasTheSameBitsEveryTime) {
  std::mt19937 random(4);
  const std::vector<float> logits = random_rows(1, 248320, random);
  const Shortlist first = run(logits, 248320, 248320, {kMostCandidates})[0];
  for (int i = 0; i < 50; ++i) {
    const Shortlist again = run(logits, 248320, 248320, {kMostCandidates})[0];
    test::expect_same(again, first, "run " + std::to_string(i));
    ASSERT_EQ(again.log_sum, first.log_sum);
  }
}

TEST_F(CudaShortlist, OfABackendAreCutFromItsLogitsWithAndWithoutGraphs) {
  for (const bool graphs : {true, false})
    test::expect_shortlists_of_the_logits([&] { return make_cuda_backend({.graphs = graphs}); }, kLogSumTolerance);
}

TEST_F(CudaShortlist, OfATracedStepAreTheSame) {
  test::expect_shortlists_of_the_logits(
      [] {
        auto backend = make_cuda_backend();
        backend->set_trace([](const OpTrace&) {});
        return backend;
      },
      kLogSumTolerance);
}

}  // namespace
}  // namespace tern::cuda
