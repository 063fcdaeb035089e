#include "engine/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "models/registry.h"
#include "plan/segment.h"
#include "tiny_model.h"

namespace tern {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 40;

struct Placing {
  test::TinyFile source;
  Plan plan;
  explicit Placing(std::string_view shape) : source(shape), plan(build_plan(gguf::File::open(source.path))) {}

  Placement with(int32_t gpu_layers, uint64_t gpu = kPlenty, uint64_t host = kPlenty, int32_t context = 256) const {
    return place(plan,
                 {.backend = BackendKind::kCuda,
                  .gpu_layers = gpu_layers,
                  .limits = {.context = context, .rows = 64, .k = KvType::kF16, .v = KvType::kF16}},
                 {.host = host, .gpu = gpu});
  }
  std::string refusal(int32_t gpu_layers, uint64_t gpu, uint64_t host = kPlenty) const {
    try {
      with(gpu_layers, gpu, host);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      return error.what();
    }
    return "";
  }
  int32_t layers() const { return static_cast<int32_t>(plan.n_layers); }
};

/// What runs where: "cpu: ...; cuda: ...".
std::string text(const Placement& p) {
  std::string out;
  for (const Share& s : p.shares)
    out += (out.empty() ? "" : "; ") + std::string(backend_name(s.backend)) + ": " + s.layers();
  return out;
}

TEST(Placement, CountsLayersFromTheHead) {
  const Placing tiny("tiny-llama");
  ASSERT_EQ(tiny.layers(), 2);
  EXPECT_EQ(text(tiny.with(0)), "cpu: everything");
  EXPECT_EQ(text(tiny.with(1)), "cpu: embedding, layers 0-1; cuda: head");
  EXPECT_EQ(text(tiny.with(2)), "cpu: embedding, layer 0; cuda: layer 1, head");
  EXPECT_EQ(text(tiny.with(3)), "cuda: everything");
  EXPECT_EQ(text(tiny.with(99)), "cuda: everything");
  EXPECT_EQ(text(tiny.with(kAllLayers)), "cuda: everything");
  EXPECT_EQ(text(tiny.with(kAutoLayers)), "cuda: everything");
}

TEST(Placement, LeavesTheEmbeddingOnTheHostWhenTheRestJustFits) {
  const Placing tiny("tiny-llama");
  const Plan blocks = segment(tiny.plan, block_starts(tiny.plan).front(), tiny.plan.ops.size());
  const uint64_t room = memory_need(blocks, {.context = 256, .rows = 64}, BackendKind::kCuda).total();
  EXPECT_EQ(text(tiny.with(kAllLayers, room)), "cpu: embedding; cuda: layers 0-1, head");
  EXPECT_NE(tiny.refusal(kAllLayers, room - 1), "");
}

TEST(Placement, AutoPutsAsManyLayersOnTheGpuAsFit) {
  const Placing tiny("tiny-qwen35");
  for (int32_t n = 1; n <= tiny.layers(); ++n) {
    const uint64_t room = tiny.with(n).shares.back().need.total();
    int32_t most = tiny.layers();
    while (tiny.with(most).shares.back().need.total() > room) --most;
    EXPECT_GE(most, n);
    EXPECT_EQ(text(tiny.with(kAutoLayers, room)), text(tiny.with(most)));
  }
  EXPECT_EQ(text(tiny.with(kAutoLayers, 0)), "cpu: everything");
}

TEST(Placement, AutoAlsoMindsTheHost) {
  const Placing tiny("tiny-llama");
  const uint64_t half = tiny.with(2).shares.front().need.total();
  EXPECT_EQ(text(tiny.with(kAutoLayers, tiny.with(2).shares.back().need.total(), half)), text(tiny.with(2)));
  EXPECT_NE(tiny.refusal(kAutoLayers, 0, half), "");
  EXPECT_NE(tiny.refusal(1, kPlenty, half), "");
}

TEST(Placement, PaysForTheCachesOfALayerWhereItRuns) {
  const Placing tiny("tiny-qwen35");
  const MemoryNeed whole = tiny.with(kAllLayers).need();
  std::vector<bool> attends(static_cast<size_t>(tiny.layers()));
  for (const Op& op : tiny.plan.ops)
    if (std::holds_alternative<AttendArgs>(op.args)) attends[static_cast<size_t>(op.site.layer)] = true;
  const auto all = std::count(attends.begin(), attends.end(), true);
  for (int32_t n = 1; n <= tiny.layers(); ++n) {
    const Placement p = tiny.with(n);
    ASSERT_EQ(p.shares.size(), 2u);
    const auto there = std::count(attends.end() - (n - 1), attends.end(), true);
    const MemoryNeed& gpu = p.shares.back().need;
    EXPECT_EQ(gpu.kv * static_cast<uint64_t>(all), whole.kv * static_cast<uint64_t>(there)) << n;
    EXPECT_EQ(gpu.states * static_cast<uint64_t>(tiny.layers() - all),
              whole.states * static_cast<uint64_t>(n - 1 - there))
        << n;
    EXPECT_EQ(p.need().kv, whole.kv);
    EXPECT_EQ(p.need().states, whole.states);
  }
}

TEST(Placement, RefusesMoreLayersThanFitWithTheNumbersAndWhatWould) {
  const Placing tiny("tiny-qwen35");
  const uint64_t room = tiny.with(3).shares.back().need.total();
  const std::string refusal = tiny.refusal(4, room);
  for (const std::string& part : {human_bytes(tiny.with(4).shares.back().need.total()), human_bytes(room),
                                  tiny.with(4).shares.back().layers(), std::string("-ngl 3 would fit")})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\n" << part;
  EXPECT_NE(tiny.refusal(1, 0).find("-ngl 0"), std::string::npos);
}

TEST(Placement, WithoutAContextGivenLayersLeaveTheGpuForFourThousandTokens) {
  const Placing tiny("tiny-llama");
  const uint64_t all = tiny.with(kAllLayers, kPlenty, kPlenty, 64).need().total();
  const Placement p = tiny.with(kAutoLayers, all, kPlenty, 0);
  EXPECT_EQ(p.limits.context, std::min<int64_t>(4096, tiny.plan.n_context_train));
  EXPECT_EQ(p.shares.size(), 2u) << text(p);
  EXPECT_EQ(tiny.with(kAllLayers, all, kPlenty, 0).limits.context, 64);
  EXPECT_EQ(tiny.with(kAutoLayers, kPlenty, kPlenty, 0).limits.context, tiny.plan.n_context_train);
}

TEST(Placement, OfTheCpuIsTheCpu) {
  const Placing tiny("tiny-llama");
  const Placement p = place(tiny.plan, {.gpu_layers = 3}, {.host = kPlenty});
  EXPECT_EQ(text(p), "cpu: everything");
  EXPECT_EQ(p.limits.rows, default_rows(BackendKind::kCpu));
}

}  // namespace
}  // namespace tern
