#include "quant/transcode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/float16.h"
#include "quant/format.h"
#include "quant/i2_s.h"
#include "quant/pq2_0.h"
#include "quant/ptq1_0.h"
#include "quant/tq2_0.h"

namespace tern::quant {
namespace {

using enum TensorType;
constexpr TensorType kTernary[] = {PTQ1_0, PQ2_0, TQ1_0, TQ2_0, I2_S};

/// A tensor in memory.
struct Tensor {
  gguf::TensorInfo info;
  std::vector<std::byte> bytes;
};

Tensor make(TensorType type, int64_t cols, int64_t rows) {
  Tensor t;
  t.info = {
      .name = "blk.3.ffn_up.weight", .type = type, .n_dims = 2, .ne = {cols, rows, 1, 1}, .offset = 0, .nbytes = 0};
  t.bytes.resize(gguf::tensor_bytes(type, t.info.ne));
  t.info.nbytes = t.bytes.size();
  return t;
}

template <typename Block>
Block* blocks(Tensor& t) {
  return reinterpret_cast<Block*>(t.bytes.data());
}

void set_tail_scale(Tensor& t, float scale) {
  std::memcpy(t.bytes.data() + (t.bytes.size() - 32), &scale, sizeof scale);
}

std::vector<float> decode(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.info.elements()));
  find_format(t.info.type)->decode(t.bytes.data(), out.data(), t.info.elements(), tensor_scale(t.info.type, t.bytes));
  return out;
}

Tensor moved(const Tensor& t, TensorType target) {
  Tensor out = t;
  out.bytes = transcode(t.info, t.bytes, target);
  out.info.type = target;
  out.info.nbytes = out.bytes.size();
  return out;
}

std::string refusal(const Tensor& t, TensorType target) {
  try {
    transcode(t.info, t.bytes, target);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    return e.what();
  }
  return "not refused";
}

std::vector<uint8_t> random_codes(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<uint8_t> codes(static_cast<size_t>(n));
  for (uint8_t& c : codes) c = static_cast<uint8_t>(rng() % 3);
  return codes;
}

/// PQ2_0 with the codes given and `scale(g)` for the g-th 128.
template <typename Scale>
Tensor pq2_0(int64_t cols, int64_t rows, const std::vector<uint8_t>& codes, Scale scale) {
  Tensor t = make(PQ2_0, cols, rows);
  for (size_t g = 0; g < codes.size() / 128; ++g) {
    pack_codes(codes.data() + 128 * g, blocks<BlockPQ2_0>(t)[g]);
    blocks<BlockPQ2_0>(t)[g].d = f32_to_f16(scale(g));
  }
  return t;
}

class Pairs : public testing::TestWithParam<std::tuple<TensorType, TensorType>> {};

TEST_P(Pairs, OneScaleGoesThereAndBackByteForByte) {
  const auto [from, to] = GetParam();
  const Tensor source = moved(pq2_0(512, 3, random_codes(512 * 3, 1), [](size_t) { return 0.046875f; }), from);
  const Tensor target = moved(source, to);
  EXPECT_EQ(target.bytes.size(), gguf::tensor_bytes(to, source.info.ne));
  EXPECT_EQ(decode(target), decode(source));
  EXPECT_EQ(moved(target, from).bytes, source.bytes);
}

INSTANTIATE_TEST_SUITE_P(All, Pairs, testing::Combine(testing::ValuesIn(kTernary), testing::ValuesIn(kTernary)),
                         [](const testing::TestParamInfo<std::tuple<TensorType, TensorType>>& p) {
                           return std::string(type_info(std::get<0>(p.param)).name) + "_to_" +
                                  std::string(type_info(std::get<1>(p.param)).name);
                         });

TEST(Transcode, GroupsOf128KeepTheirScalesBetweenPtq1_0AndPq2_0) {
  const Tensor source = pq2_0(384, 2, random_codes(768, 2), [](size_t g) { return g == 1 ? -0.5f : 0.25f * float(g); });
  const Tensor packed = moved(source, PTQ1_0);
  EXPECT_EQ(decode(packed), decode(source));
  EXPECT_EQ(moved(packed, PQ2_0).bytes, source.bytes);
}

TEST(Transcode, TwoScalesIn256AreRefusedAtTheFirstWeightUnderTheSecond) {
  std::vector<uint8_t> codes = random_codes(512 * 2, 3);
  codes[512 + 384] = codes[512 + 385] = 1;  // zeros fit anywhere
  codes[512 + 386] = 2;
  const Tensor t = pq2_0(512, 2, codes, [](size_t g) { return g == 7 ? 0.75f : 0.5f; });
  EXPECT_EQ(
      refusal(t, TQ1_0),
      "tensor blk.3.ffn_up.weight cannot become TQ1_0 without loss: row 1, column 386: its scale is 0.75, that of the "
      "weights before it 0.5, and TQ1_0 keeps one scale for 256 weights");
  EXPECT_EQ(
      refusal(t, I2_S),
      "tensor blk.3.ffn_up.weight cannot become I2_S without loss: row 1, column 386: its scale is 0.75, that of the "
      "weights before it 0.5, and I2_S keeps one scale for the whole tensor");
}

TEST(Transcode, AnAllZeroGroupFitsUnderAnyScale) {
  std::vector<uint8_t> codes = random_codes(768, 4);
  std::fill(codes.begin() + 128, codes.begin() + 256, uint8_t{1});  // zeros by code, under a scale of their own
  const Tensor t = pq2_0(256, 3, codes, [](size_t g) {
    return g == 1 ? 7.0f : g == 4 ? 0.0f : 0.5f;  // group 4: zeros by scale, whatever the codes
  });
  for (const TensorType to : {TQ1_0, TQ2_0, I2_S}) EXPECT_EQ(decode(moved(t, to)), decode(t)) << type_info(to).name;
}

TEST(Transcode, AnAllZeroTensorFitsEverywhere) {
  const Tensor t = pq2_0(256, 2, random_codes(512, 5), [](size_t) { return 0.0f; });
  for (const TensorType to : kTernary) EXPECT_EQ(decode(moved(t, to)), std::vector<float>(512, 0.0f));
}

TEST(Transcode, ATensorScaleThatIsNotAnF16IsRefused) {
  Tensor t = make(I2_S, 256, 2);
  std::vector<uint8_t> codes(128, 1);
  for (int b = 0; b < 4; ++b) pack_codes(codes.data(), blocks<BlockI2_S>(t)[b]);
  set_tail_scale(t, 0.1f);
  EXPECT_EQ(decode(moved(t, PTQ1_0)), decode(t));  // all zero: the scale does not matter
  codes[5] = 0;
  pack_codes(codes.data(), blocks<BlockI2_S>(t)[3]);
  for (const TensorType to : {PTQ1_0, PQ2_0, TQ1_0, TQ2_0}) {
    EXPECT_EQ(refusal(t, to),
              "tensor blk.3.ffn_up.weight cannot become " + std::string(type_info(to).name) +
                  " without loss: row 1, column 133: the scale 0.100000001 is not an f16; the nearest is "
                  "0.0999755859");
  }
}

TEST(Transcode, PlusTwoIsKeptByTheTwoBitFormatsAndRefusedByTheOthers) {
  std::vector<uint8_t> codes = random_codes(256, 6);
  codes[200] = 3;
  const Tensor t = pq2_0(256, 1, codes, [](size_t) { return 0.5f; });
  EXPECT_EQ(decode(moved(t, TQ2_0)), decode(t));
  EXPECT_EQ(decode(moved(t, TQ2_0))[200], 1.0f);
  for (const TensorType to : {PTQ1_0, TQ1_0, I2_S}) {
    const std::string name(type_info(to).name);
    EXPECT_EQ(refusal(t, to), "tensor blk.3.ffn_up.weight cannot become " + name +
                                  " without loss: row 0, column 200: the weight is +2 x 0.5 and " + name +
                                  " has codes for -1, 0 and +1 only; PQ2_0 holds it");
  }
}

TEST(Transcode, AScaleThatIsNotFiniteIsRefused) {
  const Tensor t = pq2_0(256, 1, random_codes(256, 7),
                         [](size_t g) { return g == 1 ? std::numeric_limits<float>::infinity() : 0.5f; });
  EXPECT_EQ(refusal(t, PTQ1_0),
            "tensor blk.3.ffn_up.weight cannot become PTQ1_0 without loss: row 0, column 128: the scale is inf");
}

TEST(Transcode, RowsThatAreNotWholeBlocksAreRefused) {
  const Tensor t = pq2_0(384, 2, random_codes(768, 8), [](size_t) { return 0.5f; });
  EXPECT_EQ(refusal(t, TQ2_0),
            "tensor blk.3.ffn_up.weight cannot become TQ2_0: its rows have 384 weights, not a multiple of 256");
}

TEST(Transcode, OtherFormatsAreRefusedByName) {
  const std::string rest = " is not one of PTQ1_0, PQ2_0, TQ1_0, TQ2_0, I2_S";
  EXPECT_EQ(refusal(make(Q8_0, 256, 1), TQ2_0),
            "tensor blk.3.ffn_up.weight cannot be transcoded from Q8_0 to TQ2_0: Q8_0" + rest);
  EXPECT_EQ(refusal(make(PQ2_0, 256, 1), Q4_0),
            "tensor blk.3.ffn_up.weight cannot be transcoded from PQ2_0 to Q4_0: Q4_0" + rest);
}

/// Real weights. Only the models' folder may be missing, and then loudly.
class RealModel : public testing::Test {
 protected:
  static std::string find(const std::string& file) {
    const std::string path = TERN_SOURCE_DIR "/../shared/models/" + file;
    if (std::filesystem::exists(path)) return path;
    std::fprintf(stderr, "\n*** SKIPPED: %s is absent, real weights were NOT checked ***\n\n", path.c_str());
    return {};
  }
  /// Moves every tensor of `from` to each target and back; returns how many there were.
  static int round_trips(const std::string& path, TensorType from, std::initializer_list<TensorType> targets) {
    const gguf::File file = gguf::File::open(path);
    int count = 0;
    for (const gguf::TensorInfo& info : file.tensors()) {
      if (info.type != from) continue;
      ++count;
      const Tensor source{info, {file.bytes(info).begin(), file.bytes(info).end()}};
      const std::vector<float> values = decode(source);
      for (const TensorType to : targets) {
        const Tensor target = moved(source, to);
        EXPECT_EQ(decode(target), values) << info.name;
        EXPECT_EQ(moved(target, from).bytes, source.bytes) << info.name;
      }
    }
    return count;
  }
};

TEST_F(RealModel, BitNetI2_SMovesToEveryOtherFormatAndBack) {
  const std::string path = find("ternlet-bitnet-72m-I2_S.gguf");
  if (path.empty()) GTEST_SKIP();
  EXPECT_EQ(round_trips(path, I2_S, {TQ2_0, TQ1_0, PQ2_0, PTQ1_0}), 70);
}

TEST_F(RealModel, HybridPtq1_0MovesToPq2_0AndBack) {
  const std::string path = find("ternlet-hybrid-108m-PTQ1_0.gguf");
  if (path.empty()) GTEST_SKIP();
  EXPECT_GT(round_trips(path, PTQ1_0, {PQ2_0}), 40);
}

}  // namespace
}  // namespace tern::quant
