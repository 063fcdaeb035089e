// Attention of prompts on the CPU backend: what must not depend on threads, and what must not get lost in bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/ops.h"
#include "backend/op_cases.h"

namespace tern {
namespace {

using namespace test;

// A page's rows are cut into as many tiles as the threads ask for, one of 6 rows among them here.
TEST(CpuAttention, APromptsResultsAreTheSameBitsWithAnyNumberOfThreads) {
  const Steps prompts = {{{0, 90}}, {{0, 130}, {1, 20}}, {{0, 300}}, {{1, 150}, {0, 17}}};
  OpPlan p;
  const gguf::File file = p.open(attend_case(4, 2, 64, 64).build(p));
  for (const KvType kv : {KvType::kF16, KvType::kQ8_0, KvType::kKivi4}) {
    std::vector<std::vector<float>> wanted;
    for (const int threads : {1, 2, 3, 5, 8}) {
      const auto backend = make_cpu_backend({.threads = threads});
      backend->load(p.plan, file, {});
      const auto got = run_steps(*backend, p.plan, prompts, kv);
      if (threads == 1) wanted = got;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i], wanted[i]) << threads << " threads, " << kv_type_name(kv) << ", step " << i;
      }
    }
  }
}

std::vector<const cpu::Ops*> tables() {
  std::vector<const cpu::Ops*> all{&cpu::kOpsScalar};
#if defined(__x86_64__)
  if (cpu::isa_available(cpu::Isa::kAvx2)) all.push_back(&cpu::kOpsAvx2);
  if (cpu::isa_available(cpu::Isa::kAvx512Vnni)) all.push_back(&cpu::kOpsAvx512);
#elif defined(__aarch64__)
  all.push_back(&cpu::kOpsNeon);
#endif
  return all;
}

/// One head over four pages in f16, the last of which 16 rows fill.
class SpoiltPages {
 public:
  static constexpr int32_t kRows = 16, kDim = 64, kPages = 4, kTokens = kPages * kPageTokens;
  SpoiltPages() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::vector<float>* x : {&k, &v, &q}) {
      x->resize(static_cast<size_t>((x == &q ? kRows : kTokens) * kDim));
      for (float& f : *x) f = normal(random);
    }
  }
  static size_t at(int32_t token, int32_t channel) { return static_cast<size_t>(token * kDim + channel); }

  /// [kRows][kDim]
  std::vector<float> attend(const cpu::Ops& ops, bool in_bytes) const {
    constexpr int64_t kPageBytes = 2 * kDim * kPageTokens;
    std::vector<std::byte> keys(kPages * kPageBytes), values(keys.size());
    for (int32_t t = 0; t < kTokens; ++t) {
      cpu::KvEntry e{cpu::PageType::kF16, k.data() + at(t, 0), kDim, t % kPageTokens};
      ops.write_k(e, keys.data() + t / kPageTokens * kPageBytes);
      e.x = v.data() + at(t, 0);
      ops.write_v(e, values.data() + t / kPageTokens * kPageBytes);
    }
    std::vector<int32_t> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    std::vector<float> out(q.size()), scratch(static_cast<size_t>(cpu::attend_scratch(kRows, kDim, kDim)));
    ops.attend({.q = q.data(),
                .q_stride = kDim,
                .rows = kRows,
                .group = 1,
                .position = kTokens - kRows,
                .dim_k = kDim,
                .dim_v = kDim,
                .scale = 0.125f,
                .k = {.type = cpu::PageType::kF16, .base = keys.data(), .bytes = kPageBytes},
                .v = {.type = cpu::PageType::kF16, .base = values.data(), .bytes = kPageBytes},
                .page_bytes = kPageBytes,
                .pages = pages.data(),
                .page_begin = 0,
                .page_end = kPages,
                .in_bytes = in_bytes,
                .out = out.data(),
                .out_stride = kDim,
                .scratch = scratch.data()});
    return out;
  }

  std::vector<float> k{}, v{}, q{};
};

/// Whether all rows have a number in each channel.
std::vector<bool> numbers(const std::vector<float>& out) {
  std::vector<bool> all(SpoiltPages::kDim, true);
  for (size_t i = 0; i < out.size(); ++i)
    all[i % SpoiltPages::kDim] = all[i % SpoiltPages::kDim] && std::isfinite(out[i]);
  return all;
}

TEST(CpuAttention, WhatIsNoNumberInAPageShowsWhereverF32WouldShowIt) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const cpu::Ops* ops : tables()) {
    for (const bool in_bytes : {false, true}) {
      SCOPED_TRACE(std::string(ops->isa) + (in_bytes ? ", bytes" : ", f32"));
      EXPECT_EQ(numbers(SpoiltPages().attend(*ops, in_bytes)), std::vector<bool>(SpoiltPages::kDim, true));
      for (const int32_t token : {64, 100, 127, 191}) {
        for (const float wrong : {nan, infinity, -infinity}) {
          SpoiltPages value;
          value.v[SpoiltPages::at(token, 5)] = wrong;
          std::vector<bool> all_but_one(SpoiltPages::kDim, true);
          all_but_one[5] = false;
          EXPECT_EQ(numbers(value.attend(*ops, in_bytes)), all_but_one) << "value " << wrong << " of token " << token;
        }
        SpoiltPages key;
        key.k[SpoiltPages::at(token, 7)] = nan;
        EXPECT_EQ(numbers(key.attend(*ops, in_bytes)), std::vector<bool>(SpoiltPages::kDim, false)) << token;
      }
    }
  }
}

}  // namespace
}  // namespace tern
