#include "quant/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "quant/vectors.h"

namespace tern::quant {
namespace {

std::vector<float> normal_row(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

std::vector<float> random_signs(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> s(n);
  for (float& v : s) v = (rng() & 1u) != 0 ? 1.0f : -1.0f;
  return s;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(Hadamard, FourElementsRotateAndComeBack) {
  const nlohmann::json& v = test::vector("had_n4");
  auto x = v.at("x").get<std::vector<float>>();
  const auto signs = v.at("signs").get<std::vector<float>>();
  rotate(x, signs, 4);
  EXPECT_EQ(x, v.at("y").get<std::vector<float>>());
  unrotate(x, signs, 4);
  EXPECT_EQ(x, v.at("inverse").get<std::vector<float>>());
}

TEST(Hadamard, TwoBlocksOf1024HaveTheKnownBits) {
  const nlohmann::json& v = test::vector("had_n1024");
  std::vector<float> x(2048), signs(2048);
  for (uint64_t i = 0; i < 2048; ++i) {
    x[i] = static_cast<float>(i % 7) - 3.0f;
    signs[i] = ((i * 2654435761u) >> 7 & 1u) != 0 ? 1.0f : -1.0f;
  }
  rotate(x, signs, 1024);
  const auto first = v.at("first4").get<std::vector<float>>(), second = v.at("at1024").get<std::vector<float>>();
  EXPECT_EQ((std::vector<float>{x.begin(), x.begin() + 4}), first);
  EXPECT_EQ((std::vector<float>{x.begin() + 1024, x.begin() + 1028}), second);
  EXPECT_EQ(test::sha256_f32(x), v.at("sha256_f32").get<std::string>());
}

TEST(Hadamard, NeighboursAreAddedFirst) {
  // Halved: 1, 2^-24, -1, 0. The first pair rounds to 1, so the sum is 0; adding the elements two apart first gives
  // 2^-24.
  std::vector<float> x = {2.0f, 0x1p-23f, -2.0f, 0.0f};
  walsh_hadamard(x, 4);
  EXPECT_EQ(x[0], 0.0f);
}

TEST(Hadamard, MatchesTheMatrixOfPopcounts) {
  for (const size_t n : {1u, 2u, 8u, 64u}) {
    const std::vector<float> x = normal_row(n, 1);
    std::vector<float> y = x;
    walsh_hadamard(y, static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (size_t j = 0; j < n; ++j) sum += (std::popcount(i & j) % 2 != 0 ? -1.0 : 1.0) * static_cast<double>(x[j]);
      EXPECT_NEAR(y[i], sum / std::sqrt(static_cast<double>(n)), 1e-5) << n << ", " << i;
    }
  }
}

TEST(Hadamard, NoSignsMeansTheIdentity) {
  std::vector<float> a = normal_row(256, 2), b = a;
  rotate(a, {}, 64);
  walsh_hadamard(b, 64);
  EXPECT_EQ(a, b);
}

TEST(Hadamard, AnUnrotatedWeightRowGivesTheProductOfTheRotatedActivation) {
  // w'. (H s x) = (s H w') . x: unfolding a row is the look-up inverse.
  const std::vector<float> folded = normal_row(512, 3), x = normal_row(512, 4), signs = random_signs(512, 5);
  std::vector<float> rotated = x, row = folded;
  rotate(rotated, signs, 128);
  unrotate(row, signs, 128);
  EXPECT_NEAR(dot(folded, rotated), dot(row, x), 1e-4);
}

TEST(HeadOrder, TiledBecomesGrouped) {
  const nlohmann::json& v = test::vector("gdn_perm");
  const HeadOrder order{.k_heads = v.at("nk"), .repeat = v.at("rep"), .head_dim = v.at("hd")};
  std::vector<float> x(12), y(12), back(12);
  std::iota(x.begin(), x.end(), 0.0f);
  tiled_to_grouped(order, x, y);
  EXPECT_EQ(y, v.at("y").get<std::vector<float>>());
  grouped_to_tiled(order, y, back);
  EXPECT_EQ(back, x);
}

TEST(HeadOrder, AFoldedOutputRowUnfoldsThroughTheInverse) {
  // w'. (H s P x) = (P^T s H w') . x: the rotation is undone first, then the heads go back.
  const HeadOrder order{.k_heads = 4, .repeat = 3, .head_dim = 32};
  const std::vector<float> folded = normal_row(384, 6), x = normal_row(384, 7), signs = random_signs(384, 8);
  std::vector<float> rotated(384), row = folded, unfolded(384);
  tiled_to_grouped(order, x, rotated);
  rotate(rotated, signs, 128);
  unrotate(row, signs, 128);
  grouped_to_tiled(order, row, unfolded);
  EXPECT_NEAR(dot(folded, rotated), dot(unfolded, x), 1e-4);
}

}  // namespace
}  // namespace tern::quant
