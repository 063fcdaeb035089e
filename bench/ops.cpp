// Attention and the delta rule of this machine's best table of ops, one thread: decode over more keys and values than
// any cache holds (B/s of them), and prefill (multiply-adds a second; a machine's peak is 2 x width x clock).
//   bench_ops --benchmark_filter='attend/decode/llama-1b.*'
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cache_memory.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/ops.h"
#include "base/memory.h"

namespace tern::cpu {
namespace {

constexpr int32_t kDepth = 4096;

const Ops& ops() {
  static const Ops& best = ops_of(select_isa());  // asking a virtual machine's CPU what it is takes microseconds
  return best;
}

std::vector<float> normal(int64_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> d;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = d(random);
  return x;
}

struct AttendShape {
  const char* name;
  int32_t layers, kv_heads, group;
  int64_t dim;
};
constexpr AttendShape kAttendShapes[] = {{"llama-1b", 16, 8, 4, 64},
                                         {"bitnet-2b", 30, 5, 4, 128},
                                         {"group-of-8", 16, 4, 8, 64},
                                         {"qwen3-moe", 24, 4, 8, 128}};
constexpr int32_t kPromptRows[] = {16, 32, 64};  // of a tile

/// `rows` query rows at the end of kDepth tokens, in every layer.
void attend(benchmark::State& state, const AttendShape& s, KvType type, int32_t rows) {
  Plan plan;
  for (int32_t i = 0; i < s.layers; ++i) plan.kv_layers.push_back({s.kv_heads, s.dim, s.dim});
  const int32_t n_pages = kDepth / kPageTokens;
  CacheMemory cache;
  cache.reserve(plan, {.pages = n_pages, .k = type, .v = type});
  const auto page_type = static_cast<PageType>(type);
  const std::vector<float> x = normal(s.dim * kPageTokens), q = normal(rows * s.group * s.dim);
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < n_pages; ++i) pages.push_back(i);
  const KvLayerMemory& first = cache.kv(0);
  for (int32_t t = 0; t < kPageTokens; ++t) {
    if (kivi_bits(type) > 0) break;  // packed codes of zeros cost as much as any others
    const KvEntry e{page_type, x.data() + t * s.dim, s.dim, t};
    ops().write_k(e, first.k(0));
    ops().write_v(e, first.v(0));
  }
  for (int64_t h = 1; h < s.kv_heads; ++h) {
    std::memcpy(first.k(h), first.k(0), static_cast<size_t>(first.k_head_bytes));
    std::memcpy(first.v(h), first.v(0), static_cast<size_t>(first.v_head_bytes));
  }
  for (int32_t p = 1; p < n_pages; ++p) cache.copy_page(0, p);
  for (int32_t l = 1; l < s.layers; ++l) {
    std::memcpy(cache.kv(l).base, first.base, static_cast<size_t>(n_pages * first.page_bytes));
  }
  const int64_t vectors = rows * s.group;
  std::vector<float> out(static_cast<size_t>(vectors * s.dim)),
      scratch(static_cast<size_t>(attend_scratch(vectors, s.dim, s.dim)));
  for (auto _ : state) {
    for (int32_t l = 0; l < s.layers; ++l) {
      const KvLayerMemory& kv = cache.kv(l);
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        ops().attend({.q = q.data(),
                      .q_stride = s.group * s.dim,
                      .rows = rows,
                      .group = s.group,
                      .position = kDepth - rows,
                      .dim_k = s.dim,
                      .dim_v = s.dim,
                      .scale = 0.1f,
                      .k = {.type = page_type, .base = kv.k(h), .bytes = kv.k_head_bytes},
                      .v = {.type = page_type, .base = kv.v(h), .bytes = kv.v_head_bytes},
                      .page_bytes = kv.page_bytes,
                      .pages = pages.data(),
                      .page_begin = 0,
                      .page_end = n_pages,
                      .in_bytes = rows >= kLeastByteRows,
                      .out = out.data(),
                      .out_stride = s.group * s.dim,
                      .scratch = scratch.data()});
      }
    }
    benchmark::DoNotOptimize(out.data());
  }
  using benchmark::Counter;
  const auto bytes = static_cast<double>(s.layers) * n_pages * static_cast<double>(cache.kv(0).page_bytes);
  state.counters["B/s"] = Counter(bytes, Counter::kIsIterationInvariantRate, Counter::kIs1000);
  state.counters["MAC/s"] = Counter(2.0 * s.layers * s.kv_heads * kDepth * static_cast<double>(vectors * s.dim),
                                    Counter::kIsIterationInvariantRate);
}

/// One head of 128 over `rows` rows, of many heads.
void delta(benchmark::State& state, int64_t rows) {
  constexpr int64_t kDim = 128, kHeads = 256;
  std::vector<float> q = normal(rows * kDim), gates = normal(rows), s(static_cast<size_t>(kHeads * kDim * kDim));
  for (float& v : q) v *= 0.088f;  // about unit vectors
  std::vector<float> out(static_cast<size_t>(rows * kDim)), scratch(static_cast<size_t>(delta_scratch(kDim)));
  for (auto _ : state) {
    for (int64_t h = 0; h < kHeads; ++h) {
      ops().delta_rule({.q = q.data(),
                        .k = q.data(),
                        .v = q.data(),
                        .alpha = gates.data(),
                        .beta = gates.data(),
                        .q_stride = kDim,
                        .k_stride = kDim,
                        .v_stride = kDim,
                        .alpha_stride = 1,
                        .beta_stride = 1,
                        .a = -1.0f,
                        .dt = 0.1f,
                        .s_in = s.data() + h * kDim * kDim,
                        .s_out = s.data() + h * kDim * kDim,
                        .out = out.data(),
                        .out_stride = kDim,
                        .rows = rows,
                        .dim = kDim,
                        .scratch = scratch.data()});
    }
    benchmark::DoNotOptimize(out.data());
  }
  using benchmark::Counter;
  state.counters["tokens/s"] =
      Counter(static_cast<double>(kHeads * rows), Counter::kIsIterationInvariantRate);  // of one head
  state.counters["B/s"] = Counter(8.0 * kHeads * kDim * kDim, Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

}  // namespace

void register_all() {
  for (const AttendShape& s : kAttendShapes) {
    for (const KvType type : kKvTypes) {
      const std::string name = std::string(s.name) + "/" + std::string(kv_type_name(type));
      const auto add = [&](const std::string& kind, int32_t rows) {
        benchmark::RegisterBenchmark(("attend/" + kind + "/" + name).c_str(), [&s, type,
                                                                               rows](benchmark::State& state) {
          attend(state, s, type, rows);
        })->Unit(benchmark::kMillisecond);
      };
      add("decode", 1);
      for (const int32_t rows : kPromptRows) add("prefill/" + std::to_string(rows), rows);
    }
  }
  for (const int64_t rows : {1, 16, 64, 512}) {
    benchmark::RegisterBenchmark(("delta/" + std::to_string(rows)).c_str(), [rows](benchmark::State& state) {
      delta(state, rows);
    })->Unit(benchmark::kMillisecond);
  }
}

}  // namespace tern::cpu
