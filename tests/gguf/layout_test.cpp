// Offsets and extents, and the ids that have more than one reading.
#include <gtest/gtest.h>

#include "gguf/refusal.h"

namespace tern::gguf {
namespace {

using namespace testing;

constexpr uint32_t kQ2_0 = 42, kMxfp4 = 39, kI2S = 36;
const std::string kHalf("\x00\x38", 2);  // 0.5 as f16

std::string repeated(std::string_view unit, size_t n) {
  std::string out;
  while (n-- > 0) out += unit;
  return out;
}

// One block each: 64 weights / 18 bytes, 128 weights / 34 bytes with the scale first, the same with the scale last.
const std::string kGroup64 = kHalf + repeated("\xaa", 16);
const std::string kGroup128 = kHalf + repeated("\xaa", 32);
const std::string kScaleLast = repeated("\xaa", 32) + kHalf;

/// 2048 weights: 576 bytes in groups of 64, 544 in groups of 128, both multiples of 32.
RawFile q2_0(std::string_view block, size_t blocks) {
  return RawFile::model().tensor("w", {128, 16}, kQ2_0, repeated(block, blocks));
}
RawFile& then_a_norm(RawFile& f) {
  return f.tensor("norm", {8}, 0, std::string(32, '\1'));
}
RawFile& then_a_matrix(RawFile& f) {
  return f.tensor("m", {256}, 0, std::string(1024, '\1'));
}

TEST(Layout, RefusesUnalignedOffsets) {
  RawFile f = RawFile::model().info("w", {8}, 0, 16);
  f.data.resize(64);
  expect_bad(f, "tensor 'w' starts at offset 16, which is not a multiple of the alignment 32");
}

TEST(Layout, RefusesGapsAndOverlaps) {
  RawFile f = RawFile::model().info("a", {8}, 0, 0).info("b", {8}, 0, 64);
  f.data.resize(96);
  expect_bad(f, "tensor 'b' starts at offset 64, but the tensors before it end at 32 (the last of them is 'a', F32)");
  f = RawFile::model().info("a", {8}, 0, 0).info("b", {8}, 0, 0);
  f.data.resize(96);
  expect_bad(f, "tensor 'b' starts at offset 0, but the tensors before it end at 32");
  f = RawFile::model().info("a", {8}, 0, 32);
  f.data.resize(96);
  expect_bad(f, "tensor 'a' starts at offset 32, but the tensors before it end at 0");
}

TEST(Layout, RefusesTensorsPastTheEndOfTheFile) {
  RawFile f = RawFile::model().info("a", {16}, 0, 0);
  f.data.resize(63);
  expect_bad(f, "'m.gguf' is truncated: tensor 'a' (F32) needs bytes 0 to 64 of the data section, which has 63");
  f = RawFile::model().info("a", {int64_t{1} << 59}, 0, 0).info("b", {8}, 0, uint64_t{1} << 61);
  expect_bad(f, "'m.gguf' is truncated: tensor 'a' (F32) needs bytes 0 to 2305843009213693952");
}

TEST(Layout, RefusesOffsetsNearTwoToThe64) {
  RawFile f = RawFile::model().info("a", {8}, 0, 0).info("b", {8}, 0, ~uint64_t{0} - 31);
  f.data.resize(64);
  expect_bad(f, "tensor 'b' starts at offset 18446744073709551584, but the tensors before it end at 32");
  f = RawFile::model().info("a", {128}, kI2S, 0).info("b", {8}, 0, ~uint64_t{0} - 31);
  f.data.resize(96);
  expect_bad(f, "'m.gguf' is truncated: tensor 'b' (F32) needs bytes");
}

TEST(Layout, I2SHasAScaleAndPaddingBehindItsCodes) {
  RawFile f = RawFile::model().tensor("w", {128, 3}, kI2S, std::string(3 * 32 + 32, '\1'));
  const Parsed p = parse_bytes(then_a_norm(f).build());
  EXPECT_EQ(p.tensors[0].nbytes, 128u);
  EXPECT_EQ(p.tensors[1].offset, 128u);
}

TEST(Layout, RefusesI2SWithoutRoomForItsScale) {
  RawFile f = RawFile::model().tensor("w", {128, 3}, kI2S, std::string(96, '\1'));
  expect_bad(then_a_norm(f), "tensor 'norm' starts at offset 96, but the tensors before it end at 128");
}

TEST(Layout, AcceptsAGapBehindI2SOnly) {
  RawFile f = RawFile::model().info("w", {128}, kI2S, 0).info("norm", {8}, 0, 128);
  f.data.resize(160);
  EXPECT_EQ(parse_bytes(f.build()).tensors[1].offset, 128u);
}

TEST(Layout, RefusesLookUpTableTypesByName) {
  RawFile tl1 = RawFile::model().tensor("w", {256, 2}, 38, std::string(160, '\0'));
  expect_bad(tl1, "tensor 'w' has type TL1 (BitNet look-up-table layout)", ErrorCode::kUnsupported);
  // TL2, 512 x 3: 256*3/3*5/8 + 256*3/2*4/8 = 160 + 192 = 352 and 32 more; MXFP4 would be 816.
  RawFile tl2 = RawFile::model().tensor("w", {512, 3}, kMxfp4, std::string(384, '\0'));
  expect_bad(tl2, "tensor 'w' has type TL2 (BitNet look-up-table layout)", ErrorCode::kUnsupported);
  expect_bad(then_a_norm(tl2), "tensor 'w' has type TL2 (BitNet look-up-table layout)", ErrorCode::kUnsupported);
}

TEST(Layout, KeepsMxfp4) {
  RawFile f = RawFile::model().tensor("w", {512, 3}, kMxfp4, std::string(816, '\0'));
  EXPECT_EQ(parse_bytes(f.build()).tensors[0].type, TensorType::MXFP4);
  EXPECT_EQ(parse_bytes(then_a_norm(f).build()).tensors[0].type, TensorType::MXFP4);
}

void expect_q2_0(const RawFile& f, TensorType type, bool legacy, uint64_t nbytes) {
  const TensorInfo t = parse_bytes(f.build()).tensors.at(0);
  EXPECT_EQ(t.type, type);
  EXPECT_EQ(t.legacy_q2_0, legacy);
  EXPECT_EQ(t.nbytes, nbytes);
}

TEST(Layout, Type42InGroupsOf64StaysQ2_0) {
  RawFile f = q2_0(kGroup64, 32);
  expect_q2_0(f, TensorType::Q2_0, false, 576);
  expect_q2_0(then_a_norm(f), TensorType::Q2_0, false, 576);
}

TEST(Layout, Type42InGroupsOf128BecomesPQ2_0) {
  RawFile f = q2_0(kGroup128, 16);
  expect_q2_0(f, TensorType::PQ2_0, true, 544);
  expect_q2_0(then_a_norm(f), TensorType::PQ2_0, true, 544);
}

TEST(Layout, Type42WithRowsOf64IsQ2_0) {
  expect_q2_0(RawFile::model().tensor("w", {64}, kQ2_0, kGroup64), TensorType::Q2_0, false, 18);
}

TEST(Layout, RefusesType42OfNeitherExtent) {
  RawFile f = RawFile::model().tensor("w", {128, 16}, kQ2_0, std::string(608, '\1'));
  expect_bad(
      then_a_norm(f),
      "tensor 'norm' starts at offset 608, but the tensors before it end at 576 (the last of them is 'w', Q2_0); "
      "type 42 would need 576 bytes in groups of 64 or 544 bytes in groups of 128");
  f = RawFile::model().info("w", {128, 16}, kQ2_0, 0);
  f.data.resize(500);
  expect_bad(f, "is truncated: tensor 'w' (Q2_0) needs bytes 0 to 576 of the data section, which has 500");
}

// 128 weights need 36 or 34 bytes: 64 after padding in both readings.
TEST(Layout, AnotherTensorDecidesType42WhereTheExtentCannot) {
  RawFile after =
      RawFile::model().tensor("w", {128}, kQ2_0, kGroup128).tensor("x", {128, 16}, kQ2_0, repeated(kGroup128, 16));
  expect_q2_0(after, TensorType::PQ2_0, true, 34);
  RawFile after64 = RawFile::model()
                        .tensor("w", {128}, kQ2_0, repeated(kGroup64, 2))
                        .tensor("x", {128, 16}, kQ2_0, repeated(kGroup64, 32));
  expect_q2_0(after64, TensorType::Q2_0, false, 36);
  RawFile before = q2_0(kGroup128, 16);
  before.tensor("x", {128}, kQ2_0, kGroup128);
  EXPECT_EQ(parse_bytes(before.build()).tensors.at(1).type, TensorType::PQ2_0);
}

TEST(Layout, PaddingDecidesType42WhereNoExtentCan) {
  expect_q2_0(RawFile::model().tensor("w", {128}, kQ2_0, repeated(kGroup64, 2)), TensorType::Q2_0, false, 36);
  expect_q2_0(RawFile::model().tensor("w", {128}, kQ2_0, std::string(36, '\0')), TensorType::Q2_0, false, 36);
}

TEST(Layout, RefusesType42ThatNothingDecides) {
  expect_bad(
      RawFile::model().tensor("w", {128}, kQ2_0, kGroup128),
      "tensor 'w' of type 42 fits both readings of that id, 36 bytes in groups of 64 and 34 bytes in groups of 128, "
      "and nothing in the file decides",
      ErrorCode::kUnsupported);
  RawFile trailing = q2_0(kGroup128, 16);
  trailing.data.resize(4096);
  expect_bad(trailing, "tensor 'w' of type 42 fits both readings of that id, 576 bytes", ErrorCode::kUnsupported);
}

TEST(Layout, RefusesType42WithTheScaleBehindTheCodes) {
  expect_bad(q2_0(kScaleLast, 16),
             "tensor 'w' of type 42 keeps its scales behind the codes (TQ2_0_g128 of oxibonsai 0.1)",
             ErrorCode::kUnsupported);
}

TEST(Layout, SaysWhatElseTypes142And143Were) {
  // IQ2_TN: 66 bytes for 256 weights, IQ1_TN: 54; PQ2_0 needs 68, PTQ1_0 56.
  RawFile iq2_tn = RawFile::model().tensor("w", {256, 64}, 142, std::string(64 * 66, '\1'));
  expect_bad(iq2_tn, "(PQ2_0) needs bytes 0 to 4352 of the data section, which has 4224; type 142 was IQ2_TN");
  expect_bad(then_a_matrix(iq2_tn), "starts at offset 4224, but the tensors before it end at 4352");
  RawFile iq1_tn = RawFile::model().tensor("w", {256, 64}, 143, std::string(64 * 54, '\1'));
  expect_bad(iq1_tn, "which has 3456; type 143 was IQ1_TN in old ik_llama.cpp files");
  expect_bad(then_a_matrix(iq1_tn), "(the last of them is 'w', PTQ1_0); type 143 was IQ1_TN in old ik_llama.cpp files");
  RawFile cut = RawFile::model().tensor("w", {256, 64}, 143, std::string(3008, '\1'));
  expect_bad(cut, "(PTQ1_0) needs bytes 0 to 3584 of the data section, which has 3008; download or convert it again");
}

}  // namespace
}  // namespace tern::gguf
