// The golden files: tokens, argmax and logsumexp per position, top 20 of the last one and a greedy continuation, from
// independent references (tests/golden/README.md). Models that do not ship are read from ../shared/models.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tern::test {

struct GoldenCase {
  std::string text;
  std::vector<int32_t> tokens, argmax, greedy;
  std::vector<double> logsumexp, greedy_logprobs;
  std::vector<std::pair<int32_t, double>> last_top20;
};

inline std::vector<GoldenCase> read_golden(const std::string& name) {
  std::ifstream in(std::string(TERN_SOURCE_DIR) + "/tests/golden/" + name);
  const auto j = nlohmann::json::parse(in);
  std::vector<GoldenCase> cases;
  for (const auto& c : j.at("cases")) {
    cases.push_back({c.at("text"), c.at("tokens"), c.at("argmax"), c.at("greedy"), c.at("logsumexp"),
                     c.at("greedy_logprobs"), c.at("last_top20")});
  }
  return cases;
}

/// The trained models, one a family that differs, and what tests call them: "hybrid", "bitnet", "moe".
inline constexpr const char* kTernlets[] = {"ternlet-hybrid-108m-PTQ1_0.gguf", "ternlet-bitnet-72m-I2_S.gguf",
                                            "ternlet-moe-29m-Q8_0.gguf"};
inline std::string ternlet_name(const std::string& file) {
  return file.substr(8, file.find('-', 8) - 8);
}
inline std::string ternlet_of(const testing::TestParamInfo<const char*>& test) {
  return ternlet_name(test.param);
}

/// The path of a model: the shipped one, or one beside the checkout. nullopt, with a loud line, where the folder is
/// absent.
inline std::optional<std::string> model_path(const std::string& name) {
  const std::string root = TERN_SOURCE_DIR;
  for (const std::string& dir : {root + "/models/", root + "/../shared/models/"}) {
    if (std::filesystem::exists(dir + name)) return dir + name;
  }
  std::fprintf(stderr, "\n*** NOT TESTED: %s is neither in models/ nor in ../shared/models ***\n\n", name.c_str());
  return std::nullopt;
}

inline double logsumexp(std::span<const float> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

inline int32_t argmax(std::span<const float> x) {
  return static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

/// KL(p || q) in nats of the softmaxes of two rows of logits.
inline double kl(std::span<const float> p, std::span<const float> q) {
  const double lp = logsumexp(p), lq = logsumexp(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i] - lp) * ((p[i] - lp) - (q[i] - lq));
  return sum;
}

/// How many of the ten best ids of two rows agree.
inline int top10_overlap(std::span<const float> p, std::span<const float> q) {
  const auto best = [](std::span<const float> x) {
    std::vector<int32_t> ids(x.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::partial_sort(ids.begin(), ids.begin() + 10, ids.end(),
                      [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
    ids.resize(10);
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  const auto a = best(p), b = best(q);
  std::vector<int32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return static_cast<int>(both.size());
}

}  // namespace tern::test
