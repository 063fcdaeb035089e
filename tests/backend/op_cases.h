// The table of ops that every backend is held to, and how a backend is run over one of them.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/op_plan.h"
#include "support/stepper.h"

namespace tern::test {

/// One op with everything around it that it needs. `build` returns the val that is compared.
struct OpCase {
  std::string name;
  std::function<Val(OpPlan&)> build;
  double tolerance = 2e-6;  // of the largest magnitude in the reference: a few roundings of f32
  ActivationMode activations = ActivationMode::kNative;
  bool uses_kv = false;
};

using Steps = std::vector<std::vector<std::pair<int32_t, int32_t>>>;  // per step (sequence, new tokens)

/// Prompts, decode, a prompt beside decode, decode of one sequence alone.
inline const Steps kShort = {{{0, 5}, {1, 1}}, {{0, 1}, {1, 17}, {2, 3}}, {{0, 1}, {1, 1}, {2, 1}}, {{2, 1}}};
/// Past several pages, so that one row's attention is cut into parts.
inline const Steps kLong = {{{0, 700}, {1, 70}}, {{0, 1}}, {{0, 1}, {1, 1}}, {{1, 130}, {0, 2}}};

/// Logits of every step: three sequences in turn, random tokens.
inline std::vector<std::vector<float>> run_steps(Backend& backend, const Plan& plan, const Steps& steps, KvType kv) {
  Stepper s(backend, plan, {.seqs = 3, .context = 768, .max_rows = 800, .kv = kv});
  std::mt19937 random(7);
  std::uniform_int_distribution<int32_t> token(0, OpPlan::kTokens - 1);
  std::vector<std::vector<float>> results;
  for (const auto& step : steps) {
    std::vector<Stepper::Chunk> chunks;
    for (const auto& [seq, n] : step) {
      chunks.push_back({.seq = seq, .tokens = {}});
      for (int32_t i = 0; i < n; ++i) chunks.back().tokens.push_back(token(random));
    }
    results.push_back(s.run(chunks));
  }
  return results;
}

/// Largest difference over the largest magnitude; infinite when either is not a number.
inline double distance(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0, magnitude = 1e-30;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - wanted[i]);
    if (!std::isfinite(d)) return INFINITY;
    difference = std::max(difference, d);
    magnitude = std::max(magnitude, std::abs(static_cast<double>(wanted[i])));
  }
  return difference / magnitude;
}

// ---- The table ----

inline Val rms_norm(OpPlan& p, Val x, int64_t group) {
  return p.op(RmsNormArgs{p.vector(group, 1.0f), 1e-5f, group}, {x}, p.plan.info(x).cols);
}

inline OpCase linear_case(TensorType type, ActivationMode mode, int64_t cols, int64_t rows) {
  return {.name = fmt::format("linear {} {}x{}", type_info(type).name, rows, cols),
          .build = [=](OpPlan& p) { return p.op(LinearArgs{p.matrix(type, cols, rows)}, {p.input(cols)}, rows); },
          .tolerance = 1e-5,
          .activations = mode};
}

inline OpCase embed_case(TensorType type) {
  return {.name = fmt::format("embed {}", type_info(type).name),
          .build =
              [=](OpPlan& p) {
                const Weight table = p.weight(type, {512, OpPlan::kTokens}, WeightUse::kTable);
                return p.op(EmbedArgs{table}, {}, 512);
              },
          .tolerance = 0};
}

inline OpCase glu_case(Gate gate, int64_t cols, bool one_a_row) {
  return {.name = "glu", .build = [=](OpPlan& p) {
            const Val a = p.input(one_a_row ? 1 : cols);
            return p.op(GluArgs{gate}, {a, p.input(cols)}, cols);
          }};
}

inline OpCase rope_case(int64_t pairs, int64_t head_dim, bool neox, float magnitude) {
  return {.name = "rope", .build = [=](OpPlan& p) {
            RopeTable t{.freq = {}, .magnitude = magnitude, .neox = neox};
            for (int64_t i = 0; i < pairs; ++i) t.freq.push_back(std::pow(10000.0, -static_cast<double>(i) / pairs));
            p.plan.ropes.push_back(t);
            return p.op(RopeArgs{0, head_dim}, {p.input(3 * head_dim)}, 3 * head_dim);
          }};
}

inline OpCase rotate_case(int64_t block, int64_t width, bool signs, bool inverse) {
  return {.name = "rotate",
          .build =
              [=](OpPlan& p) {
                if (signs) {
                  std::vector<float> s(static_cast<size_t>(width));
                  for (size_t i = 0; i < s.size(); ++i) s[i] = i * 2654435761u >> 5 & 1 ? 1.0f : -1.0f;
                  p.plan.signs.push_back(s);
                }
                return p.op(RotateArgs{signs ? 0 : -1, block, width, inverse}, {p.input(2 * width)}, 2 * width);
              },
          .tolerance = 0};  // the order of additions is part of the definition
}

inline OpCase attend_case(int32_t heads, int32_t kv_heads, int64_t dim_k, int64_t dim_v) {
  return {.name = fmt::format("attend {}/{} heads of {}/{}", heads, kv_heads, dim_k, dim_v),
          .build =
              [=](OpPlan& p) {
                p.plan.kv_layers.push_back({kv_heads, dim_k, dim_v});
                const Val q = p.input(heads * dim_k), k = p.input(kv_heads * dim_k), v = p.input(kv_heads * dim_v);
                const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim_k)));
                return p.op(AttendArgs{0, heads, kv_heads, dim_k, dim_v, scale}, {q, k, v}, heads * dim_v);
              },
          .tolerance = 1e-5,
          .uses_kv = true};
}

inline OpCase conv_case(int64_t channels, int64_t taps) {
  return {.name = "conv_silu", .build = [=](OpPlan& p) {
            p.plan.state_layers.push_back({.channels = channels, .taps = taps});
            const Weight kernel = p.weight(TensorType::F32, {taps, channels}, WeightUse::kVector);
            return p.op(ConvArgs{kernel, 0, taps}, {p.input(channels)}, channels);
          }};
}

inline OpCase delta_case(int32_t k_heads, int32_t v_heads, int64_t dim) {
  return {.name = fmt::format("delta_rule {}/{} heads of {}", k_heads, v_heads, dim),
          .build =
              [=](OpPlan& p) {
                p.plan.state_layers.push_back({.channels = 0, .taps = 1, .v_heads = v_heads, .head_dim = dim});
                const auto unit = [&](int64_t heads) {
                  return p.op(L2NormArgs{1e-6f, dim}, {p.input(heads * dim)}, heads * dim);
                };
                const Val q = unit(k_heads), k = unit(k_heads), v = p.input(v_heads * dim);
                const Val alpha = p.input(v_heads), beta = p.input(v_heads);
                // Decays as models have them: below 1, and a state that lasts for tens of tokens.
                const Weight a = p.vector(v_heads, -5.0f), dt = p.vector(v_heads, -5.0f);
                const DeltaRuleArgs args{a, dt, 0, k_heads, v_heads, dim};
                return p.op(args, {q, k, v, alpha, beta}, v_heads * dim);
              },
          .tolerance = 2e-5};  // the rounding of S runs through all tokens
}

struct Experts {
  int32_t experts = 6, used = 2;
  int64_t cols = 256, hidden = 512;
};

inline OpCase experts_case(TensorType type, const Experts& e, bool normalise) {
  return {.name = fmt::format("experts {}", type_info(type).name),
          .build =
              [=](OpPlan& p) {
                const Val x = p.input(e.cols), logits = p.input(e.experts);
                const Val ids = p.val({.cols = e.used, .is_ids = true}), weights = p.val({.cols = e.used});
                p.plan.ops.push_back({.args = RouterArgs{e.experts, e.used, normalise, 1.5f},
                                      .inputs = {logits},
                                      .out = ids,
                                      .out2 = weights,
                                      .site = {}});
                const Weight up = p.weight(type, {e.cols, e.hidden, e.experts}, WeightUse::kExperts);
                const Weight down = p.weight(type, {e.hidden, e.cols, e.experts}, WeightUse::kExperts);
                const Val h = p.op(ExpertLinearArgs{up, 0.01f}, {x, ids}, e.used * e.hidden);
                const Val y = p.op(ExpertLinearArgs{down}, {h, ids}, e.used * e.cols);
                return p.op(ExpertSumArgs{}, {y, weights}, e.cols);
              },
          .tolerance = 1e-5,
          .activations = ActivationMode::kF32};
}

inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases = {
      {.name = "embed", .build = [](OpPlan& p) { return p.input(48); }, .tolerance = 0},
      {.name = "rms_norm of rows", .build = [](OpPlan& p) { return rms_norm(p, p.input(320), 320); }},
      {.name = "rms_norm of heads", .build = [](OpPlan& p) { return rms_norm(p, p.input(240), 40); }},
      {.name = "rms_norm, odd width", .build = [](OpPlan& p) { return rms_norm(p, p.input(77), 77); }},
      {.name = "l2_norm",
       .build =
           [](OpPlan& p) {
             return p.op(L2NormArgs{1e-6f, 36}, {p.input(108)}, 108);
           }},
      {.name = "add",
       .build =
           [](OpPlan& p) {
             return p.op(AddArgs{}, {p.input(99), p.input(99)}, 99);
           },
       .tolerance = 0},
      {.name = "take",
       .build =
           [](OpPlan& p) {
             return p.op(TakeArgs{4, 12, 40}, {p.input(120)}, 36);
           },
       .tolerance = 0},
      {.name = "permute_heads",
       .build =
           [](OpPlan& p) {
             return p.op(PermuteHeadsArgs{2, 3, 16}, {p.input(96)}, 96);
           },
       .tolerance = 0},
      {.name = "pick_rows", .build = [](OpPlan& p) { return p.op(PickRowsArgs{}, {p.input(32)}, 32); }, .tolerance = 0},
      {.name = "linear with bias and scale",
       .build =
           [](OpPlan& p) {
             return p.op(LinearArgs{p.matrix(TensorType::F32, 64, 96), p.vector(96), 0.25f}, {p.input(64)}, 96);
           }},
      rope_case(32, 64, true, 1.0f),
      rope_case(20, 64, true, 1.25f),
      rope_case(16, 48, false, 1.0f),
      rotate_case(128, 512, true, false),
      rotate_case(1024, 1024, true, true),
      rotate_case(256, 256, false, false),
      rotate_case(4, 64, true, false),
      attend_case(4, 4, 64, 64),
      attend_case(12, 4, 32, 96),
      attend_case(6, 1, 128, 64),
      conv_case(600, 4),
      conv_case(37, 3),
      delta_case(2, 6, 128),
      delta_case(3, 3, 20),
      experts_case(TensorType::F32, {}, true),
      experts_case(TensorType::Q8_0, {.experts = 40, .used = 5}, false),
      experts_case(TensorType::I2_S, {}, true),
  };
  for (const Gate gate : {Gate::kSilu, Gate::kRelu2, Gate::kSigmoid}) {
    cases.push_back(glu_case(gate, 200, false));
    cases.push_back(glu_case(gate, 75, false));
    cases.push_back(glu_case(gate, 40, true));
  }
  return cases;
}

}  // namespace tern::test
