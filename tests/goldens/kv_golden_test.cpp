// What each type of KV cache costs: the cpu backend's distributions over prose with that cache against those with f32,
// without the rounding of activations, so that the cache is all that differs. docs/kv-cache.md quotes the numbers.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "backend/cpu/cpu_backend.h"
#include "goldens/golden_model.h"
#include "support/golden.h"
#include "text/tokenizer.h"

namespace tern {
namespace {

using test::GoldenModel;
using test::Stepper;

constexpr size_t kWindow = 512, kWindows = 2;

/// Logits of every position of the first windows of the text.
std::vector<std::vector<float>> read(GoldenModel& m, const std::vector<int32_t>& tokens, KvType kv) {
  Stepper s(*m.backend, m.plan, {.kv = kv});
  std::vector<std::vector<float>> windows;
  for (size_t w = 0; w < kWindows; ++w) {
    s.reset();
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(w * kWindow);
    windows.push_back(s.run_one({first, first + kWindow}));
  }
  return windows;
}

struct Bound {
  KvType kv;
  double mean_kl;
};

class KvGolden : public testing::TestWithParam<const char*> {};

TEST_P(KvGolden, CacheTypesCostNoMoreThanTheyAreLabelled) {
  const auto path = test::model_path(GetParam());
  if (!path) GTEST_SKIP();
  const auto m = test::load(*path, make_cpu_backend(), ActivationMode::kF32);
  std::stringstream text;
  text << std::ifstream(std::string(TERN_SOURCE_DIR) + "/tests/golden/data/eval_prose.txt").rdbuf();
  const auto tokenizer = text::Tokenizer::from_metadata(m->file.metadata());
  const std::vector<int32_t> tokens = tokenizer.encode(text.str(), {.add_special = false, .parse_special = true});
  ASSERT_GE(tokens.size(), kWindow * kWindows);
  const auto exact = read(*m, tokens, KvType::kF32);
  for (const auto& [kv, most] : {Bound{KvType::kF16, 5e-4}, Bound{KvType::kQ8_0, 1e-3}, Bound{KvType::kQ4_0, 0.03},
                                 Bound{KvType::kKivi, 0.06}, Bound{KvType::kKivi4, 0.01}}) {
    const auto got = read(*m, tokens, kv);
    Differences d;
    for (size_t w = 0; w < kWindows; ++w) {
      for (size_t i = 0; i < kWindow; ++i) d.add(compare(m->row(exact[w], i), m->row(got[w], i)));
    }
    std::printf("%s, %s cache: mean KL %.2e, worst %.2e, mean top-10 overlap %.2f\n", GetParam(),
                std::string(kv_type_name(kv)).c_str(), d.mean_kl(), d.worst_kl, d.mean(d.top10_overlap));
    EXPECT_LE(d.mean_kl(), most) << kv_type_name(kv);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KvGolden, testing::ValuesIn(test::kTernlets), test::ternlet_of);

}  // namespace
}  // namespace tern
