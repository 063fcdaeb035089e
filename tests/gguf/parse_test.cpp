// The container: header, metadata and tensor infos, each broken in every way a file can be.
#include <gtest/gtest.h>

#include "gguf/examples.h"
#include "gguf/refusal.h"

namespace tern::gguf {
namespace {

using namespace testing;

const std::string kF32x4(16, '\1');

RawFile with_tensor() {
  return RawFile::model().tensor("w", {4}, 0, kF32x4);
}

TEST(Parse, ReadsEveryValueTypeAndTensor) {
  const Parsed p = parse_bytes(every_value_type().build());
  EXPECT_EQ(p.version, 3u);
  EXPECT_EQ(p.alignment, 32u);
  const Metadata& m = p.metadata;
  EXPECT_EQ(m.get_int("u8"), 200);
  EXPECT_EQ(m.get_int("i8"), -5);
  EXPECT_EQ(m.get_int("u16"), 65535);
  EXPECT_EQ(m.get_int("i16"), -300);
  EXPECT_EQ(m.get_int("u32"), 4000000000);
  EXPECT_EQ(m.get_int("i32"), -7);
  EXPECT_EQ(m.get_int("i64"), -1);
  EXPECT_EQ(std::get<uint64_t>(m.find("u64")->data), ~uint64_t{0});
  EXPECT_EQ(m.get_float("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(m.get_float("f64"), 0.1);
  EXPECT_EQ(m.get_bool("bool"), true);
  EXPECT_EQ(m.get_string("general.architecture"), "llama");
  EXPECT_EQ(m.get_ints("u8s"), (std::vector<int64_t>{1, 2, 255}));
  EXPECT_EQ(m.get_ints("i8s"), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(m.get_ints("u16s"), std::vector<int64_t>{65535});
  EXPECT_EQ(m.get_ints("i16s"), std::vector<int64_t>{-2});
  EXPECT_EQ(m.get_ints("u32s"), std::vector<int64_t>{4294967295});
  EXPECT_EQ(m.get_ints("i32s"), std::vector<int64_t>{-9});
  EXPECT_EQ(m.get_ints("u64s"), std::vector<int64_t>{std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(m.get_ints("i64s"), std::vector<int64_t>{-9});
  EXPECT_EQ(m.get_ints("bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(m.get_floats("f32s"), (std::vector<double>{static_cast<double>(0.1f), -0.0}));
  EXPECT_EQ(m.get_floats("f64s"), std::vector<double>{0.1});
  EXPECT_EQ(*m.get_strings("strings"), (std::vector<std::string>{"a", std::string("\0\xff", 2)}));
  EXPECT_TRUE(m.get_strings("none")->empty());
  EXPECT_TRUE(m.get_floats("no floats")->empty());
  ASSERT_EQ(p.tensors.size(), 3u);
  const TensorInfo& c = p.tensors[2];
  EXPECT_EQ(c.name, "c");
  EXPECT_EQ(c.type, TensorType::Q8_0);
  EXPECT_EQ(c.n_dims, 3u);
  EXPECT_EQ(c.ne, (std::array<int64_t, 4>{32, 1, 2, 1}));
  EXPECT_EQ(c.offset, 128u);
  EXPECT_EQ(c.nbytes, 68u);
}

TEST(Parse, StepsOverEveryTensorType) {
  const Parsed p = parse_bytes(every_tensor_type().build());
  EXPECT_EQ(p.tensors.size(), type_table().size() - 1);
  for (const TensorInfo& t : p.tensors) EXPECT_EQ(type_info(t.type).name, t.name);
}

TEST(Parse, ReadsVersion2) {
  RawFile f = with_tensor();
  f.version = 2;
  EXPECT_EQ(parse_bytes(f.build()).version, 2u);
}

TEST(Parse, ReadsAVocabularyWithoutTensorsOrPadding) {
  EXPECT_TRUE(parse_bytes(RawFile::model().build()).tensors.empty());
}

TEST(Parse, RefusesAFileCutAtAnyByte) {
  const std::string whole = every_value_type().build();
  const size_t needed = whole.size() - 28;  // without the padding of the last tensor
  EXPECT_NO_THROW(parse_bytes(whole.substr(0, needed)));
  for (size_t n = 0; n < needed; ++n) {
    SCOPED_TRACE(n);
    try {
      parse_bytes(whole.substr(0, n));
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      const std::string_view text = e.what();
      EXPECT_TRUE(text.find("truncated") != text.npos || text.find("left in the file") != text.npos) << text;
    }
  }
}

TEST(Parse, RefusesAnotherMagic) {
  RawFile f;
  f.magic = "PK\3\4";
  expect_bad(f, "'m.gguf' is not a GGUF file: it starts with bytes 50 4b 03 04, not \"GGUF\"");
}

TEST(Parse, RefusesVersionsItDoesNotKnow) {
  for (const uint32_t version : {0u, 1u, 4u}) {
    RawFile f = RawFile::model();
    f.version = version;
    expect_bad(f, fmt::format("has GGUF version {}; this engine reads versions 2 and 3", version),
               ErrorCode::kUnsupported);
  }
}

TEST(Parse, RefusesBigEndianFiles) {
  RawFile f = RawFile::model();
  f.version = 0x03000000u;
  expect_bad(f, "is big-endian (GGUF version reads as 0x03000000)", ErrorCode::kUnsupported);
}

TEST(Parse, RefusesCountsBeyondTheBytesLeftBeforeAllocating) {
  RawFile f = RawFile::model();
  f.n_tensors = int64_t{1} << 60;
  expect_bad(f, "the tensor count claims 1152921504606846976 entries of at least 24 bytes each, but only");
  f = RawFile::model();
  f.n_keys = std::numeric_limits<int64_t>::max();
  expect_bad(f, "the metadata count claims 9223372036854775807 entries of at least 13 bytes each, but only");
  f = RawFile::model();
  f.array("a", kString, uint64_t{1} << 61, "");
  expect_bad(f, "array 'a' claims 2305843009213693952 entries of at least 8 bytes each, but only 0 bytes are left");
  f = RawFile::model();
  f.array("a", kF64, (~uint64_t{0} >> 3) + 2, std::string(64, '\0'));  // times 8 it wraps to 8
  expect_bad(f, "array 'a' claims 2305843009213693953 entries of at least 8 bytes each, but only 64 bytes are left");
}

TEST(Parse, RefusesNegativeCounts) {
  RawFile f = RawFile::model();
  f.n_tensors = -1;
  expect_bad(f, "the tensor count is negative (-1)");
  f = RawFile::model();
  f.n_keys = std::numeric_limits<int64_t>::min();
  expect_bad(f, "the metadata count is negative (-9223372036854775808)");
}

TEST(Parse, RefusesLengthsNearTwoToThe64) {
  RawFile f;
  f.keys = le(~uint64_t{0} - 15) + std::string(32, 'k');
  f.n_keys = 1;
  expect_bad(f,
             "the name of key 1 of 1 at byte 24 claims 18446744073709551600 bytes, but only 32 are left in the file");
  f = RawFile().key("k", kString, le(~uint64_t{0}));
  expect_bad(f, "k at byte 37 claims 18446744073709551615 bytes, but only 0 are left in the file");
  f = RawFile::model();
  f.infos = le(~uint64_t{0} - 15) + std::string(32, 't');
  f.n_tensors = 1;
  expect_bad(f, "the name of tensor 1 of 1 at byte 69 claims 18446744073709551600 bytes, but only 51 are left");
}

TEST(Parse, RefusesDuplicateKeys) {
  expect_bad(RawFile::model().key("x", kU8, "1").key("x", kU8, "1"), "duplicate metadata key 'x'");
}

TEST(Parse, RefusesKeysWithoutAName) {
  expect_bad(RawFile::model().key("", kU8, "1"), "key 2 of 2 has no name");
}

TEST(Parse, RefusesNestedArrays) {
  expect_bad(RawFile::model().array("x", kArray, 1, le(kU8) + le(uint64_t{0})), "key 'x' is an array of arrays");
}

TEST(Parse, RefusesUnknownValueTypes) {
  expect_bad(RawFile::model().key("x", 13, le(0)), "key 'x' has unknown value type 13 (known: 0 to 12)");
  expect_bad(RawFile::model().array("x", 99, 0, ""), "key 'x' has unknown value type 99 (known: 0 to 12)");
}

TEST(Parse, RefusesUnsigned64InArraysThatSigned64CannotHold) {
  expect_bad(RawFile::model().array("x", kU64, 2, le(uint64_t{1}) + le(uint64_t{1} << 63)),
             "item 1 of array 'x' is 9223372036854775808, which is out of range (at most 2^63-1)");
}

TEST(Parse, RefusesNulInNamesAndStrings) {
  expect_bad(RawFile().key(std::string_view("a\0b", 3), kU8, "1"),
             "the name of key 1 contains a NUL byte at position 1");
  expect_bad(RawFile().key("k", kString, str(std::string_view("ab\0", 3))),
             "the value of 'k' contains a NUL byte at position 2");
  expect_bad(RawFile::model().tensor(std::string_view("\0", 1), {4}, 0, kF32x4),
             "the name of tensor 1 of 1 contains a NUL byte at position 0");
}

TEST(Parse, KeepsTokensAsRawBytes) {
  const std::string token("\0\xff\xc3", 3);
  const Parsed p = parse_bytes(RawFile::model().array("tokens", kString, 1, str(token)).build());
  EXPECT_EQ(p.metadata.get_strings("tokens")->at(0), token);
}

TEST(Parse, RefusesAlignmentsThatAreNotPowersOfTwo) {
  for (const uint32_t alignment : {0u, 24u, 33u}) {
    expect_bad(RawFile::model().key("general.alignment", kU32, le(alignment)),
               fmt::format("general.alignment is {}, which is not a power of two above 0", alignment));
  }
}

TEST(Parse, RefusesAlignmentsOfAnotherType) {
  expect_bad(RawFile::model().key("general.alignment", kU64, le(uint64_t{32})),
             "general.alignment must be u32, but the file has u64");
}

TEST(Parse, FollowsTheAlignmentOfTheFile) {
  RawFile f = RawFile::model();
  f.alignment = 128;
  f.key("general.alignment", kU32, le(uint32_t{128})).tensor("a", {4}, 0, kF32x4).tensor("b", {4}, 0, kF32x4);
  const Parsed p = parse_bytes(f.build());
  EXPECT_EQ(p.data_offset % 128, 0u);
  EXPECT_EQ(p.tensors[1].offset, 128u);
}

TEST(Parse, RefusesDuplicateTensorNames) {
  expect_bad(with_tensor().tensor("w", {4}, 0, kF32x4), "duplicate tensor name 'w'");
}

TEST(Parse, RefusesTensorNamesOf64BytesAndMore) {
  EXPECT_NO_THROW(parse_bytes(RawFile::model().tensor(std::string(63, 'n'), {4}, 0, kF32x4).build()));
  expect_bad(RawFile::model().tensor(std::string(64, 'n'), {4}, 0, kF32x4),
             "the name of tensor 1 of 1 has 64 bytes, allowed are 1 to 63");
  expect_bad(RawFile::model().tensor("", {4}, 0, kF32x4), "the name of tensor 1 of 1 has 0 bytes, allowed are 1 to 63");
}

TEST(Parse, RefusesMoreThanFourDimensions) {
  expect_bad(RawFile::model().tensor("w", {1, 1, 1, 1, 4}, 0, kF32x4), "tensor 'w' has 5 dimensions, at most 4");
  RawFile f = RawFile::model();
  f.infos = str("w") + le(~uint32_t{0}) + std::string(64, '\0');
  f.n_tensors = 1;
  expect_bad(f, "tensor 'w' has 4294967295 dimensions, at most 4");
}

TEST(Parse, RefusesDimensionsBelowOne) {
  expect_bad(RawFile::model().info("w", {4, -1}, 0, 0), "dimension 1 of tensor 'w' is -1, it must be positive");
  expect_bad(RawFile::model().info("w", {0}, 0, 0), "dimension 0 of tensor 'w' is 0, it must be positive");
}

TEST(Parse, RefusesShapesWhoseProductOverflows) {
  expect_bad(RawFile::model().info("w", {int64_t{1} << 32, int64_t{1} << 31}, 0, 0),
             "the dimensions of tensor 'w' multiply to more than 2^63-1 elements");
  expect_bad(RawFile::model().info("w", {int64_t{1} << 31, int64_t{1} << 31}, 0, 0),
             "tensor 'w': shape [2147483648, 2147483648, 1, 1] of type F32 has too many bytes");
}

TEST(Parse, RefusesRowsThatAreNotWholeBlocks) {
  expect_bad(RawFile::model().info("w", {48}, 8, 0),
             "tensor 'w': type Q8_0 needs rows of whole blocks of 32 weights, but ne[0] is 48");
  expect_bad(RawFile::model().info("w", {64, 2}, 36, 0),
             "tensor 'w': type I2_S needs rows of whole blocks of 128 weights, but ne[0] is 64");
}

TEST(Parse, RefusesUnknownTensorTypesByNumberAndName) {
  for (const uint32_t id : {45u, 141u, 144u, ~0u}) {
    expect_bad(RawFile::model().info("blk.0.w", {256}, id, 0),
               fmt::format("tensor 'blk.0.w' has type {}, which this engine does not know; it knows ggml's types below "
                           "43, PQ2_0 (142) and PTQ1_0 (143)",
                           id),
               ErrorCode::kUnsupported);
  }
}

TEST(Parse, SaysWhoseTypeAnUnknownIdIs) {
  expect_bad(RawFile::model().info("w", {256}, 135, 0), "tensor 'w' has type 135 (IQ2_BN of ik_llama.cpp)",
             ErrorCode::kUnsupported);
  expect_bad(RawFile::model().info("w", {256}, 31, 0), "tensor 'w' has type 31 (Q4_0_4_4, removed from ggml)",
             ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tern::gguf
