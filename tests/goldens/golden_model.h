// A model loaded on one backend, and the comparisons the golden tests share.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "engine/compare.h"
#include "models/registry.h"
#include "support/golden.h"
#include "support/stepper.h"

namespace tern::test {

struct GoldenModel {
  gguf::File file;
  Plan plan;
  std::unique_ptr<Backend> backend;
  std::span<const float> row(const std::vector<float>& logits, size_t r) const {
    const auto n = static_cast<size_t>(plan.n_vocab);
    return {logits.data() + r * n, n};
  }
};

inline std::unique_ptr<GoldenModel> load(const std::string& path, std::unique_ptr<Backend> backend,
                                         ActivationMode mode = ActivationMode::kNative) {
  auto m = std::make_unique<GoldenModel>(
      GoldenModel{.file = gguf::File::open(path), .plan = {}, .backend = std::move(backend)});
  m->plan = build_plan(m->file);
  m->backend->load(m->plan, m->file, {.activations = mode});
  return m;
}

/// Logits that may swap places with the reference's choice.
inline constexpr double kTie = 1e-3;

/// `got` chose `id` where the reference chose `wanted`: the same, or a tie.
inline bool same_choice(std::span<const float> got, int32_t wanted) {
  const int32_t id = argmax(got);
  return id == wanted || got[static_cast<size_t>(id)] - got[static_cast<size_t>(wanted)] <= kTie;
}

}  // namespace tern::test
