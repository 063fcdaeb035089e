// The table of formats, and the formats no other engine at hand decodes: against vectors.json.
#include "quant/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "quant/activation.h"
#include "quant/vectors.h"

namespace tern::quant {
namespace {

using enum TensorType;

std::vector<float> decode(TensorType type, const std::vector<std::byte>& blocks, float scale = 1.0f) {
  const TypeInfo& info = type_info(type);
  std::vector<float> out(blocks.size() / info.block_bytes * info.block_elements);
  find_format(type)->decode(blocks.data(), out.data(), static_cast<int64_t>(out.size()), scale);
  return out;
}

std::vector<std::byte> encode(TensorType type, const std::vector<float>& x, float scale = 1.0f) {
  const TypeInfo& info = type_info(type);
  std::vector<std::byte> out(x.size() / info.block_elements * info.block_bytes);
  find_format(type)->encode(x.data(), out.data(), static_cast<int64_t>(x.size()), scale);
  return out;
}

std::vector<float> values_of_codes(const std::string& codes, float d) {
  std::vector<float> out;
  for (const char c : codes) out.push_back(static_cast<float>(c - '1') * d);
  return out;
}

TEST(Formats, EveryRowIsKnownToTheTypeTableAndListedOnce) {
  std::set<TensorType> seen;
  for (const Format& f : formats()) {
    EXPECT_TRUE(seen.insert(f.type).second) << type_info(f.type).name;
    EXPECT_NE(f.decode, nullptr);
    EXPECT_EQ(find_format(f.type), &f);
  }
  for (const TensorType type : {F32,  F16,    BF16,   Q4_0,  Q4_1,  Q5_0,  Q5_1, Q8_0, Q2_K, Q3_K,  Q4_K,  Q5_K,
                                Q6_K, IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0, I2_S, Q1_0, Q2_0, PQ2_0, PTQ1_0}) {
    EXPECT_TRUE(seen.contains(type)) << type_info(type).name;
  }
  EXPECT_EQ(find_format(IQ1_M), nullptr);
}

TEST(Formats, AnActivationGroupNeverSpansTwoWeightScales) {
  for (const Format& f : formats()) {
    if (f.activation == Activation::kF32 || f.activation == Activation::kI8Row) continue;
    const int64_t group = activation_group(f.activation, 4096);
    EXPECT_EQ(static_cast<int64_t>(type_info(f.type).block_elements) % group, 0) << type_info(f.type).name;
  }
}

TEST(Formats, TheTernaryOnesAreTheFiveThatTranscode) {
  std::set<TensorType> ternary;
  for (const Format& f : formats()) {
    if (f.ternary) ternary.insert(f.type);
  }
  EXPECT_EQ(ternary, (std::set<TensorType>{TQ1_0, TQ2_0, I2_S, PQ2_0, PTQ1_0}));
}

TEST(Formats, ATensorScaleIsReadFromTheTailOfI2_SOnly) {
  std::vector<std::byte> tensor(96);
  const float scale = 1.25f;
  std::memcpy(tensor.data() + 64, &scale, sizeof scale);
  EXPECT_EQ(tensor_scale(I2_S, tensor), 1.25f);
  EXPECT_EQ(tensor_scale(F32, tensor), 1.0f);
}

TEST(Formats, BlocksDecodeAtOddAddresses) {
  const std::vector<std::byte> block = test::from_hex(test::vector("ptq1_0_v1").at("hex"));
  std::vector<std::byte> shifted(block.size() + 1);
  std::copy(block.begin(), block.end(), shifted.begin() + 1);
  std::vector<float> out(128);
  find_format(PTQ1_0)->decode(shifted.data() + 1, out.data(), 128, 1.0f);
  EXPECT_EQ(out, decode(PTQ1_0, block));
}

/// Whole blocks whose decoded bits are known by digest.
struct Digest {
  const char* vector;
  TensorType type;
};
class KnownDigest : public testing::TestWithParam<Digest> {};

TEST_P(KnownDigest, DecodesToTheKnownBits) {
  const nlohmann::json& v = test::vector(GetParam().vector);
  EXPECT_EQ(test::sha256_f32(decode(GetParam().type, test::from_hex(v.at("hex")))),
            v.at("sha256_f32").get<std::string>());
}

/// Those without +2, which encoders never write (transcode does).
class KnownTrits : public KnownDigest {};

TEST_P(KnownTrits, EncodeBackToTheSameWeights) {
  const std::vector<std::byte> block = test::from_hex(test::vector(GetParam().vector).at("hex"));
  const std::vector<float> x = decode(GetParam().type, block);
  EXPECT_EQ(decode(GetParam().type, encode(GetParam().type, x)), x);  // == : the sign of a zero is free
}

std::string name_of(const testing::TestParamInfo<Digest>& p) {
  return p.param.vector;
}

constexpr Digest kTritVectors[] = {
    {"ptq1_0_v1", PTQ1_0}, {"ptq1_0_v2", PTQ1_0}, {"pq2_0_v1", PQ2_0}, {"tq1_0_v1", TQ1_0}};
INSTANTIATE_TEST_SUITE_P(Vectors, KnownDigest, testing::ValuesIn(kTritVectors), name_of);
INSTANTIATE_TEST_SUITE_P(PlusTwo, KnownDigest, testing::Values(Digest{"tq2_0_v1", TQ2_0}), name_of);
INSTANTIATE_TEST_SUITE_P(Vectors, KnownTrits, testing::ValuesIn(kTritVectors), name_of);

TEST(Ptq1_0, CanonicalBlockEncodesToItsOwnBytes) {
  const std::vector<std::byte> block = test::from_hex(test::vector("ptq1_0_v1").at("hex"));
  EXPECT_EQ(encode(PTQ1_0, decode(PTQ1_0, block)), block);
}

TEST(Ptq1_0, ArbitraryBytesDecodeToTheKnownDigits) {
  const nlohmann::json& v = test::vector("ptq1_0_v2");
  EXPECT_EQ(decode(PTQ1_0, test::from_hex(v.at("hex"))), values_of_codes(v.at("codes"), v.at("d")));
}

TEST(Ptq1_0, ConstantGroupsHaveTheKnownBytes) {
  // All -1, all 0, all +1 (docs/formats.md): five digits and four digits a byte differ for 0 and +1.
  const uint8_t expected[3][2] = {{0x00, 0x00}, {0x80, 0x7f}, {0xff, 0xfd}};
  for (int t = 0; t < 3; ++t) {
    std::vector<float> x(128, static_cast<float>(t - 1));
    if (t == 1) x[0] = 1.0f;  // so that the scale is not zero; byte 0 differs then
    const std::vector<std::byte> block = encode(PTQ1_0, x);
    EXPECT_EQ(static_cast<uint8_t>(block[1]), expected[t][0]);
    EXPECT_EQ(static_cast<uint8_t>(block[25]), expected[t][1]);
  }
}

TEST(Tq1_0, DecodesToTheKnownDigits) {
  const nlohmann::json& v = test::vector("tq1_0_v1");
  const std::vector<float> out = decode(TQ1_0, test::from_hex(v.at("hex")));
  const float d = std::abs(out[1] != 0 ? out[1] : out[0]);
  EXPECT_EQ(out, values_of_codes(v.at("codes"), d));
}

TEST(Tq2_0, DecodesToTheKnownValues) {
  const nlohmann::json& v = test::vector("tq2_0_v1");
  std::vector<float> out = decode(TQ2_0, test::from_hex(v.at("hex")));
  out.resize(8);
  EXPECT_EQ(out, v.at("first8").get<std::vector<float>>());
}

TEST(Pq2_0, CodeThreeIsTwiceTheScale) {
  const nlohmann::json& v = test::vector("pq2_0_v2");
  const auto four = v.at("first4").get<std::vector<float>>();
  const std::vector<float> out = decode(PQ2_0, test::from_hex(v.at("hex")));
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], four[i % 4]) << i;
}

TEST(Q1_0, SetBitsArePlusAndTheRestMinus) {
  const nlohmann::json& v = test::vector("q1_0_v1");
  const auto plus = v.at("plus_positions").get<std::set<size_t>>();
  const float d = v.at("d");
  const std::vector<float> out = decode(Q1_0, test::from_hex(v.at("hex")));
  ASSERT_EQ(out.size(), 128u);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], plus.contains(i) ? d : -d) << i;
}

TEST(I2_S, DecodesToTheKnownCodesUnderTheTensorScale) {
  const nlohmann::json& v = test::vector("i2_s_v1");
  std::vector<std::byte> tensor = test::from_hex(v.at("hex_codes"));
  const size_t blocks = tensor.size();
  const std::vector<std::byte> tail = test::from_hex(v.at("hex_tail"));
  tensor.insert(tensor.end(), tail.begin(), tail.end());
  ASSERT_EQ(tensor.size(), v.at("nbytes").get<size_t>());
  const float scale = tensor_scale(I2_S, tensor);
  EXPECT_EQ(scale, v.at("scale").get<float>());
  tensor.resize(blocks);
  const std::vector<float> out = decode(I2_S, tensor, scale);
  ASSERT_EQ(out.size(), 256u);
  for (size_t e = 0; e < out.size(); ++e) {
    EXPECT_EQ(out[e], (static_cast<float>((7 * e + e / 32) % 3) - 1.0f) * scale) << e;
  }
  EXPECT_EQ(encode(I2_S, out, scale), tensor);
}

TEST(Mxfp4, DecodesToTheKnownValues) {
  const nlohmann::json& v = test::vector("mxfp4_v1");
  EXPECT_EQ(decode(MXFP4, test::from_hex(v.at("hex"))), v.at("values").get<std::vector<float>>());
}

TEST(Nvfp4, DecodesToTheKnownValues) {
  const nlohmann::json& v = test::vector("nvfp4_v1");
  EXPECT_EQ(decode(NVFP4, test::from_hex(v.at("hex"))), v.at("values").get<std::vector<float>>());
}

TEST(F32, PassesEveryBitPatternThrough) {
  const std::vector<uint32_t> bits = {0u, 0x80000000u, 1u, 0x7f800000u, 0xff800000u, 0x7fc00001u, 0x3f800000u};
  std::vector<std::byte> blocks(bits.size() * 4);
  std::memcpy(blocks.data(), bits.data(), blocks.size());
  const std::vector<float> out = decode(F32, blocks);
  for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), bits[i]);
  EXPECT_EQ(encode(F32, out), blocks);
}

TEST(Encoders, ATernaryGroupWithAnF16ScaleIsReproduced) {
  for (const TensorType type : {PTQ1_0, PQ2_0, TQ1_0, TQ2_0, I2_S}) {
    std::vector<float> x(512);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>((i * i + i / 7) % 3) - 1) * 0.0625f;
    EXPECT_EQ(decode(type, encode(type, x, 0.0625f), 0.0625f), x) << type_info(type).name;
  }
}

TEST(Encoders, AnAllZeroBlockStaysZero) {
  for (const Format& f : formats()) {
    if (f.encode == nullptr) continue;
    const std::vector<float> x(256, 0.0f);
    EXPECT_EQ(decode(f.type, encode(f.type, x, 0.0f), 0.0f), x) << type_info(f.type).name;
  }
}

}  // namespace
}  // namespace tern::quant
