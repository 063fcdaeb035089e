// Whole models on the CPU backend: against ref on every position, and against itself however the rows are batched.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "models/registry.h"
#include "support/golden.h"
#include "support/stepper.h"

namespace tern {
namespace {

using test::Stepper;

using test::kTernlets;
constexpr const char* kFloatModels[] = {kTernlets[0], kTernlets[2]};

struct Model {
  gguf::File file;
  Plan plan;
  explicit Model(const std::string& path) : file(gguf::File::open(path)), plan(build_plan(file)) {}
  std::unique_ptr<Backend> on(std::unique_ptr<Backend> backend, ActivationMode mode = ActivationMode::kNative) const {
    backend->load(plan, file, {.activations = mode});
    return backend;
  }
  std::span<const float> row(const std::vector<float>& logits, size_t r) const {
    const auto n = static_cast<size_t>(plan.n_vocab);
    return {logits.data() + r * n, n};
  }
};

/// Ids of no particular text.
std::vector<int32_t> tokens(int32_t n, int32_t first = 100) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < n; ++i) ids.push_back((first + i * 7919) % 12000);
  return ids;
}

class CpuModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path = test::model_path(GetParam());
    if (!path) GTEST_SKIP() << "model not found";
    model_ = std::make_unique<Model>(*path);
  }
  std::unique_ptr<Model> model_;
};

struct Difference {
  double mean_kl = 0, worst_logit = 0, overlap = 0;
};

Difference compare(const Model& m, const std::vector<float>& wanted, const std::vector<float>& got) {
  const size_t rows = wanted.size() / static_cast<size_t>(m.plan.n_vocab);
  Difference d;
  for (size_t r = 0; r < rows; ++r) {
    d.mean_kl += test::kl(m.row(wanted, r), m.row(got, r)) / static_cast<double>(rows);
    d.overlap += test::top10_overlap(m.row(wanted, r), m.row(got, r)) / static_cast<double>(rows);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    d.worst_logit = std::max(d.worst_logit, std::abs(static_cast<double>(wanted[i]) - got[i]));
  }
  return d;
}

TEST_P(CpuModel, AgreesWithRefUnderTheSameActivations) {
  const std::vector<int32_t> ids = tokens(20);
  for (const ActivationMode mode : {ActivationMode::kF32, ActivationMode::kNative}) {
    const auto ref = model_->on(make_ref_backend(), mode), cpu = model_->on(make_cpu_backend({.threads = 2}), mode);
    const auto wanted = Stepper(*ref, model_->plan, {}).run_one(ids);
    const Difference d = compare(*model_, wanted, Stepper(*cpu, model_->plan, {}).run_one(ids));
    fmt::print("{} {}: mean KL {:.1e}, worst logit {:.1e}, top-10 overlap {:.2f}\n", GetParam(),
               mode == ActivationMode::kF32 ? "float" : "native", d.mean_kl, d.worst_logit, d.overlap);
    // Without rounding only the order of f32 sums differs. With it an activation between two integers may fall to
    // either side, and one that does moves those after it: two correct engines are as far apart as the rounding itself.
    EXPECT_LE(d.mean_kl, mode == ActivationMode::kF32 ? 1e-8 : 1e-3);
    EXPECT_LE(d.worst_logit, mode == ActivationMode::kF32 ? 2e-3 : 0.6);
    EXPECT_GE(d.overlap, 9.5);
  }
}

/// Of models that were not trained with the rounding.
class CpuFloatModel : public CpuModel {};

TEST_P(CpuFloatModel, RoundedActivationsStayNearTheFloatModel) {
  const std::vector<int32_t> ids = tokens(24, 11);
  const auto ref = model_->on(make_ref_backend(), ActivationMode::kF32), cpu = model_->on(make_cpu_backend());
  const auto wanted = Stepper(*ref, model_->plan, {}).run_one(ids);
  const Difference d = compare(*model_, wanted, Stepper(*cpu, model_->plan, {}).run_one(ids));
  EXPECT_LE(d.mean_kl, 5e-4);
  EXPECT_GE(d.overlap, 9.0);
}

TEST_P(CpuModel, BatchingDoesNotChangeTheAnswer) {
  const std::vector<int32_t> ids = tokens(70), others = tokens(45, 5);
  const auto cpu = model_->on(make_cpu_backend({.threads = 2}), ActivationMode::kF32);
  Stepper s(*cpu, model_->plan, {.seqs = 2});
  const std::vector<float> whole = s.run_one(ids);
  const auto in_chunks = [&](size_t step, bool with_other) {
    s.reset(0);
    s.reset(1);
    std::vector<float> all;
    for (size_t i = 0; i < ids.size(); i += step) {
      const auto cut = [&](const std::vector<int32_t>& x, size_t n) {
        return std::vector<int32_t>(x.begin() + static_cast<std::ptrdiff_t>(std::min(x.size(), i)),
                                    x.begin() + static_cast<std::ptrdiff_t>(std::min(x.size(), i + n)));
      };
      std::vector<Stepper::Chunk> chunks;
      if (with_other && i < others.size()) chunks.push_back({.seq = 1, .tokens = cut(others, step)});
      const size_t before = chunks.empty() ? 0 : chunks[0].tokens.size();
      chunks.push_back({.seq = 0, .tokens = cut(ids, step)});
      const std::vector<float> logits = s.run(chunks);
      all.insert(all.end(), logits.begin() + static_cast<std::ptrdiff_t>(before) * model_->plan.n_vocab, logits.end());
    }
    return all;
  };
  for (const auto& [step, with_other] : {std::pair<size_t, bool>{7, false}, {1, false}, {7, true}, {1, true}}) {
    const Difference d = compare(*model_, whole, in_chunks(step, with_other));
    EXPECT_LE(d.worst_logit, 2e-3) << "steps of " << step << (with_other ? " beside another sequence" : "");
  }
}

TEST_P(CpuModel, TracedAndFusedWalksAgree) {
  const std::vector<int32_t> ids = tokens(9);
  const auto cpu = model_->on(make_cpu_backend({.threads = 2}));
  Stepper s(*cpu, model_->plan, {});
  const std::vector<float> fused = s.run_one(ids);
  s.reset();
  std::vector<size_t> seen;
  std::vector<float> last;
  cpu->set_trace([&](const OpTrace& t) {
    seen.push_back(t.op);
    last.assign(t.data, t.data + t.rows * t.cols);
  });
  EXPECT_EQ(s.run_one(ids), fused);  // the same kernels on the same numbers
  ASSERT_EQ(seen.size(), model_->plan.ops.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
  EXPECT_EQ(last, fused);
}

TEST_P(CpuModel, ReportNamesAKernelAndItsBytesForEveryOp) {
  const auto cpu = model_->on(make_cpu_backend());
  const std::vector<OpReport> report = cpu->report();
  ASSERT_EQ(report.size(), model_->plan.ops.size());
  for (size_t i = 0; i < report.size(); ++i) {
    EXPECT_FALSE(report[i].kernel.empty()) << i;
    if (std::holds_alternative<LinearArgs>(model_->plan.ops[i].args)) {
      EXPECT_GT(report[i].bytes, 0u) << i;
    }
  }
}

TEST_P(CpuModel, AForcedKernelThatFitsNothingIsRefused) {
  EXPECT_THROW(model_->on(make_cpu_backend({.force_kernel = "no such kernel"})), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, CpuModel, ::testing::ValuesIn(kTernlets), test::ternlet_of);
INSTANTIATE_TEST_SUITE_P(Models, CpuFloatModel, ::testing::ValuesIn(kFloatModels), test::ternlet_of);

}  // namespace
}  // namespace tern
