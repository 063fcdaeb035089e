// Every mainline format against ggml's own code: decoding bit for bit, the plain encoders byte for byte.
#include "quant/ggml.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "quant/format.h"

namespace tern::quant {
namespace {

constexpr int64_t kBlocks = 4096;

/// What prints as "F32", "Q4_0" in test names.
std::string name_of(const testing::TestParamInfo<TensorType>& p) {
  return std::string(type_info(p.param).name);
}

std::vector<std::byte> random_bytes(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(rng() & 255u);
  return out;
}

/// Bits equal, or both NaN: which payload a NaN product carries is not part of any format.
void expect_same_bits(const std::vector<float>& ours, const std::vector<float>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  int64_t reported = 0;
  for (size_t i = 0; i < ours.size() && reported < 5; ++i) {
    if (std::isnan(ours[i]) && std::isnan(theirs[i])) continue;
    if (std::bit_cast<uint32_t>(ours[i]) == std::bit_cast<uint32_t>(theirs[i])) continue;
    ++reported;
    ADD_FAILURE() << "weight " << i << ": " << ours[i] << ", ggml has " << theirs[i];
  }
}

void expect_decodes_like_ggml(TensorType type, const std::vector<std::byte>& bytes) {
  const TypeInfo& info = type_info(type);
  const int64_t n = static_cast<int64_t>(bytes.size()) / info.block_bytes * info.block_elements;
  std::vector<float> ours(static_cast<size_t>(n)), theirs(static_cast<size_t>(n));
  find_format(type)->decode(bytes.data(), ours.data(), n, 1.0f);
  test::ggml_traits(type).to_float(bytes.data(), theirs.data(), n);
  expect_same_bits(ours, theirs);
}

class Mainline : public testing::TestWithParam<TensorType> {};

TEST_P(Mainline, HasTheNameAndSizesOfGgml) {
  const test::GgmlTraits& traits = test::ggml_traits(GetParam());
  const TypeInfo& info = type_info(GetParam());
  std::string name = traits.type_name;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(name, info.name);
  EXPECT_EQ(traits.block_elements, info.block_elements);
  EXPECT_EQ(traits.block_bytes, info.block_bytes);
}

TEST_P(Mainline, DecodesRandomBytesLikeGgml) {
  const size_t size = kBlocks * type_info(GetParam()).block_bytes;
  for (uint32_t seed = 1; seed <= 4; ++seed) expect_decodes_like_ggml(GetParam(), random_bytes(size, seed));
}

TEST_P(Mainline, DecodesEveryByteValueAtEveryPlaceLikeGgml) {
  // Rotating 0..255 through the block puts each value at each offset, scales included: infinities, NaN, subnormals, -0.
  const size_t block = type_info(GetParam()).block_bytes;
  std::vector<std::byte> bytes;
  for (int low = 0; low < 256; ++low) {
    for (const int step : {0, 1, 7}) {
      for (size_t i = 0; i < block; ++i)
        bytes.push_back(static_cast<std::byte>((low + step * static_cast<int>(i)) & 255));
    }
  }
  expect_decodes_like_ggml(GetParam(), bytes);
}

using enum TensorType;
INSTANTIATE_TEST_SUITE_P(Formats, Mainline,
                         testing::Values(F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
                                         IQ4_XS, MXFP4, NVFP4, TQ1_0, TQ2_0, Q1_0, Q2_0),
                         name_of);

/// Where a format keeps an f16 scale (or minimum), and every how many of the 65536 are tried.
struct ScalePlace {
  TensorType type;
  size_t offset;
  uint32_t step = 31;  // meets each exponent under both signs
};
class Scales : public testing::TestWithParam<ScalePlace> {};

TEST_P(Scales, OfEveryMagnitudeDecodeLikeGgml) {
  const size_t size = type_info(GetParam().type).block_bytes;
  const uint32_t step = GetParam().step;
  std::vector<std::byte> bytes = random_bytes((65535 / step + 1) * size, 9);
  for (uint32_t d = 0; d < 65536; d += step) {
    const auto bits = static_cast<uint16_t>(d);
    std::memcpy(bytes.data() + d / step * size + GetParam().offset, &bits, sizeof bits);
  }
  expect_decodes_like_ggml(GetParam().type, bytes);
}

INSTANTIATE_TEST_SUITE_P(Formats, Scales,
                         testing::Values(ScalePlace{F16, 0, 1}, ScalePlace{BF16, 0, 1}, ScalePlace{Q4_0, 0},
                                         ScalePlace{Q4_1, 2}, ScalePlace{Q8_0, 0}, ScalePlace{Q2_K, 80},
                                         ScalePlace{Q2_K, 82}, ScalePlace{Q3_K, 108}, ScalePlace{Q4_K, 0},
                                         ScalePlace{Q5_K, 2}, ScalePlace{Q6_K, 208}, ScalePlace{IQ4_XS, 0},
                                         ScalePlace{TQ1_0, 52}, ScalePlace{TQ2_0, 64}, ScalePlace{Q1_0, 0},
                                         ScalePlace{Q2_0, 0}),
                         [](const testing::TestParamInfo<ScalePlace>& p) {
                           return std::string(type_info(p.param.type).name) + "_at_" + std::to_string(p.param.offset);
                         });

/// Rows of different character: normal, tiny, huge, all zero, ternary, halves that must round away from zero, one
/// outlier.
std::vector<float> sample_weights() {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> out;
  const auto row = [&out](auto value) {
    for (int i = 0; i < 256; ++i) out.push_back(value(i));
  };
  for (int r = 0; r < 64; ++r) row([&](int) { return normal(rng); });
  for (int r = 0; r < 8; ++r) row([&](int) { return normal(rng) * 1e-6f; });
  for (int r = 0; r < 8; ++r) row([&](int) { return normal(rng) * 1e3f; });
  row([](int) { return 0.0f; });
  row([](int i) { return static_cast<float>(i % 3 - 1) * 0.75f; });
  row([](int i) { return static_cast<float>(i % 255 - 127) * 0.5f; });
  row([](int i) { return i % 32 == 0 ? 127.0f : 0x1.fffffep-2f; });  // just under one half: adding 0.5 in f32 gives 1
  row([](int i) { return i == 17 ? -100.0f : 0.01f; });
  row([](int i) { return -static_cast<float>(i) / 256.0f; });
  return out;
}

class PlainEncoder : public testing::TestWithParam<TensorType> {};

TEST_P(PlainEncoder, WritesTheBytesOfGgml) {
  const std::vector<float> x = sample_weights();
  const TypeInfo& info = type_info(GetParam());
  std::vector<std::byte> ours(x.size() / info.block_elements * info.block_bytes), theirs(ours.size());
  find_format(GetParam())->encode(x.data(), ours.data(), static_cast<int64_t>(x.size()), 1.0f);
  test::ggml_traits(GetParam()).from_float_ref(x.data(), theirs.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(static_cast<int>(ours[i]), static_cast<int>(theirs[i]))
        << "byte " << i % info.block_bytes << " of block " << i / info.block_bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PlainEncoder, testing::Values(F16, BF16, Q4_0, Q8_0, TQ1_0, TQ2_0), name_of);

double error_energy(TensorType type, const std::vector<float>& x, const std::vector<std::byte>& blocks) {
  std::vector<float> y(x.size());
  find_format(type)->decode(blocks.data(), y.data(), static_cast<int64_t>(x.size()), 1.0f);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
  return sum;
}

class SearchingEncoder : public testing::TestWithParam<TensorType> {};

TEST_P(SearchingEncoder, LosesAtMostHalfMoreThanGgmlsSearch) {
  // ggml searches for scales, ours takes the plain ones; a layout or sign error would lose thousands of times more.
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> x(256 * 64);
  for (float& v : x) v = normal(rng);
  const TypeInfo& info = type_info(GetParam());
  std::vector<std::byte> ours(x.size() / info.block_elements * info.block_bytes), theirs(ours.size());
  find_format(GetParam())->encode(x.data(), ours.data(), static_cast<int64_t>(x.size()), 1.0f);
  test::ggml_traits(GetParam()).from_float_ref(x.data(), theirs.data(), static_cast<int64_t>(x.size()));
  EXPECT_LT(error_energy(GetParam(), x, ours), 1.5 * error_energy(GetParam(), x, theirs));
}

INSTANTIATE_TEST_SUITE_P(Formats, SearchingEncoder, testing::Values(Q4_K, Q6_K), name_of);

}  // namespace
}  // namespace tern::quant
