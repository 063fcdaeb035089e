#include "quant/activation.h"
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "quant/i2_s.h"
#include "quant/vectors.h"

namespace tern::quant {
namespace {

struct Quantized {
  std::vector<int> q;
  std::vector<float> scale;
};

Quantized quantize(Activation rule, const std::vector<float>& x) {
  std::vector<int8_t> q(x.size());
  const auto cols = static_cast<int64_t>(x.size());
  const int64_t group = activation_group(rule, cols);
  std::vector<float> scale(static_cast<size_t>((cols + group - 1) / group));
  quantize_row(rule, x, q.data(), scale.data());
  return {{q.begin(), q.end()}, scale};
}

TEST(ActivationRow, TiesGoToEven) {
  const nlohmann::json& v = test::vector("i8_act");
  const Quantized r = quantize(Activation::kI8Row, v.at("x"));
  EXPECT_EQ(r.scale[0], v.at("s").get<float>());
  EXPECT_EQ(r.q, v.at("q").get<std::vector<int>>());
  EXPECT_EQ(std::accumulate(r.q.begin(), r.q.end(), 0), v.at("sum").get<int>());
}

TEST(ActivationRow, AZeroRowHasTheKnownScaleAndNoIntegers) {
  const Quantized r = quantize(Activation::kI8Row, std::vector<float>(256, 0.0f));
  EXPECT_EQ(r.scale[0], test::vector("i8_act_zero_row_s").get<float>());
  EXPECT_EQ(r.q, std::vector<int>(256, 0));
}

TEST(ActivationRow, DotWithI2_SWeightsIsTheKnownOne) {
  const nlohmann::json& v = test::vector("i2_s_dot");
  std::vector<float> x(256);
  for (size_t i = 0; i < 256; ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 16.0f;
  const Quantized r = quantize(Activation::kI8Row, x);
  EXPECT_EQ(r.scale[0], v.at("s").get<float>());

  const std::vector<std::byte> blocks = test::from_hex(test::vector("i2_s_v1").at("hex_codes"));
  std::vector<uint8_t> codes(256);
  for (size_t b = 0; b < 2; ++b) {
    unpack_codes(reinterpret_cast<const BlockI2_S*>(blocks.data())[b], codes.data() + 128 * b);
  }
  int acc = 0, qsum = 0;
  for (size_t i = 0; i < 256; ++i) {
    acc += codes[i] * r.q[i];
    qsum += r.q[i];
  }
  EXPECT_EQ(qsum, v.at("qsum").get<int>());
  // acc is over the codes 0, 1, 2; the sum of the activations takes the 1 of each back out.
  const float y = (static_cast<float>(acc) - static_cast<float>(qsum)) / r.scale[0] * 1.25f;
  EXPECT_EQ(acc, v.at("int_dot").get<int>());
  EXPECT_EQ(y, v.at("y").get<float>());
}

class ActivationGroups : public testing::TestWithParam<Activation> {};

TEST_P(ActivationGroups, EachGroupIsScaledByItsOwnLargestMagnitude) {
  const auto group = static_cast<size_t>(activation_group(GetParam(), 4096));
  std::vector<float> x(3 * group, 0.0f);
  x[1] = 127.0f, x[2] = 0.5f, x[3] = 1.5f, x[4] = -2.5f;  // scale 1: ties to even
  x[group] = -254.0f, x[group + 1] = 1.0f, x[group + 2] = 3.0f;
  const Quantized r = quantize(GetParam(), x);
  ASSERT_EQ(r.scale.size(), 3u);
  EXPECT_EQ(r.scale, (std::vector<float>{1.0f, 2.0f, 0.0f}));
  EXPECT_EQ((std::vector<int>{r.q.begin(), r.q.begin() + 5}), (std::vector<int>{0, 127, 0, 2, -2}));
  EXPECT_EQ(
      (std::vector<int>{r.q.begin() + static_cast<int64_t>(group), r.q.begin() + static_cast<int64_t>(group) + 3}),
      (std::vector<int>{-127, 0, 2}));
  for (size_t i = 2 * group; i < x.size(); ++i) EXPECT_EQ(r.q[i], 0);
}

TEST_P(ActivationGroups, AShortLastGroupIsAGroup) {
  const auto group = static_cast<size_t>(activation_group(GetParam(), 4096));
  std::vector<float> x(group + 5, 1.0f);
  x.back() = 4.0f;
  const Quantized r = quantize(GetParam(), x);
  const auto scale = [](float d) { return GetParam() == Activation::kI8x32 ? f16_to_f32(f32_to_f16(d)) : d; };
  EXPECT_EQ(r.scale, (std::vector<float>{scale(1.0f / 127.0f), scale(4.0f / 127.0f)}));
  EXPECT_EQ(r.q[0], 127);
  EXPECT_EQ(r.q[group], 32);  // 31.75
  EXPECT_EQ(r.q.back(), 127);
}

TEST(ActivationI8x32, ScalesBeyondNormalF16StayF32) {
  for (const float amax : {1e-3f, 1e9f}) {
    const std::vector<float> x(32, amax);
    EXPECT_EQ(quantize(Activation::kI8x32, x).scale[0], amax / 127.0f) << amax;
  }
}

TEST_P(ActivationGroups, ExtremeMagnitudesStayInRange) {
  const auto group = static_cast<size_t>(activation_group(GetParam(), 4096));
  std::vector<float> x(2 * group, 3e38f);
  for (size_t i = group; i < x.size(); ++i) x[i] = 1e-40f;
  const Quantized r = quantize(GetParam(), x);
  EXPECT_EQ(r.q[0], 127);
  EXPECT_EQ(r.q[group], 0);
  EXPECT_EQ(r.scale[1], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Rules, ActivationGroups,
                         testing::Values(Activation::kI8x32, Activation::kI8x128, Activation::kI8x256),
                         [](const testing::TestParamInfo<Activation>& p) {
                           return "I8x" + std::to_string(activation_group(p.param, 4096));
                         });

TEST(ActivationGroup, IsTheRowForTheRowRuleAndNothingForF32) {
  EXPECT_EQ(activation_group(Activation::kI8Row, 2560), 2560);
  EXPECT_EQ(activation_group(Activation::kF32, 2560), 0);
}

}  // namespace
}  // namespace tern::quant
