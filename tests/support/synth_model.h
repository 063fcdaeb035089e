// A random model in a folder of its own, planned and loaded on a backend.
#pragma once
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "gguf/file.h"
#include "gguf/temp_folder.h"
#include "models/registry.h"
#include "support/golden.h"
#include "synth/random.h"
#include "synth/synth.h"

namespace tern::test {

struct SynthFile {
  gguf::testing::TempFolder folder;
  std::string path = folder / "model.gguf";

  SynthFile(const synth::Shape& shape, synth::Options options) {
    options.threads = 1;
    synth::write_model(path, shape, options);
  }
};

struct LoadedModel {
  gguf::File file;
  Plan plan;
  std::unique_ptr<Backend> backend;

  LoadedModel(const std::string& path, std::unique_ptr<Backend> on, ActivationMode activations)
      : file(gguf::File::open(path)), plan(build_plan(file)), backend(std::move(on)) {
    backend->load(plan, file, {.activations = activations});
  }
};

/// `n` ids below `n_vocab`, another list for every seed.
inline std::vector<int32_t> random_tokens(size_t n, int64_t n_vocab, uint64_t seed) {
  const synth::Random random(seed, "tokens");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(random.bits(i) % static_cast<uint64_t>(n_vocab)));
  return ids;
}

/// How far rows of logits [rows, n_vocab] are from the reference's.
struct Distance {
  double max_diff = 0;
  std::vector<double> kls;  // one a row
  size_t other_argmax = 0;  // rows whose best id differs

  void add(std::span<const float> reference, std::span<const float> got, int64_t n_vocab) {
    const auto n = static_cast<size_t>(n_vocab);
    ASSERT_EQ(reference.size(), got.size());
    for (size_t at = 0; at < got.size(); at += n) {
      const auto p = reference.subspan(at, n), q = got.subspan(at, n);
      for (size_t i = 0; i < n; ++i) max_diff = std::max<double>(max_diff, std::abs(p[i] - q[i]));
      kls.push_back(std::abs(kl(p, q)));  // rounding makes a KL of nearly 0 negative
      other_argmax += argmax(p) != argmax(q) ? 1 : 0;
    }
  }
  double max_kl() const { return *std::max_element(kls.begin(), kls.end()); }
  double mean_kl() const { return std::accumulate(kls.begin(), kls.end(), 0.0) / static_cast<double>(kls.size()); }
  double median_kl() const {
    std::vector<double> sorted = kls;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
    return sorted[sorted.size() / 2];
  }
  void print(std::string_view what) const {
    std::printf("%-36s %3zu rows: max |logit diff| %.1e, KL median %.1e mean %.1e max %.1e, %zu other argmax\n",
                std::string(what).c_str(), kls.size(), max_diff, median_kl(), mean_kl(), max_kl(), other_argmax);
  }
};

}  // namespace tern::test
