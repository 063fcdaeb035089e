#include <gtest/gtest.h>

#include "gguf/refusal.h"

namespace tern::gguf {
namespace {

using testing::expect_refused;

TEST(Metadata, KeepsOrderAndReplacesInPlace) {
  Metadata m;
  m.set_u32("a", 1);
  m.set_bool("b", true);
  m.set_f32("c", 0.5f);
  m.set_string("a", "x");
  ASSERT_EQ(m.items().size(), 3u);
  EXPECT_EQ(m.items()[0].first, "a");
  EXPECT_EQ(m.get_string("a"), "x");
}

TEST(Metadata, FindsTheRestAfterErasing) {
  Metadata m;
  for (const char* key : {"a", "b", "c"}) m.set_string(key, key);
  m.erase("a");
  m.erase("absent");
  EXPECT_FALSE(m.has("a"));
  EXPECT_EQ(m.get_string("b"), "b");
  EXPECT_EQ(m.get_string("c"), "c");
  m.set_u32("d", 4);
  EXPECT_EQ(m.items()[2].first, "d");
  EXPECT_EQ(m.require_int("d"), 4);
}

TEST(Metadata, AbsentKeysAreNotErrorsUnlessRequired) {
  const Metadata m;
  EXPECT_EQ(m.get_int("k"), std::nullopt);
  EXPECT_EQ(m.get_float("k"), std::nullopt);
  EXPECT_EQ(m.get_bool("k"), std::nullopt);
  EXPECT_EQ(m.get_string("k"), std::nullopt);
  EXPECT_EQ(m.get_strings("k"), nullptr);
  EXPECT_EQ(m.get_ints("k"), std::nullopt);
  EXPECT_EQ(m.get_floats("k"), std::nullopt);
  expect_refused([&] { m.require_int("k"); }, ErrorCode::kBadFile, "the file has no metadata key 'k' (an integer)");
  expect_refused([&] { m.require_float("k"); }, ErrorCode::kBadFile, "the file has no metadata key 'k' (f32 or f64)");
  expect_refused([&] { m.require_string("k"); }, ErrorCode::kBadFile, "the file has no metadata key 'k' (a string)");
}

TEST(Metadata, NamesWantedAndFoundTypes) {
  Metadata m;
  m.set_string("s", "x");
  m.set_f32("f", 1);
  m.set_strings("ss", {"x"});
  m.set_u32("u", 1);
  expect_refused([&] { m.get_int("s"); }, ErrorCode::kBadFile,
                 "metadata key 's' must be an integer, but the file has string");
  expect_refused([&] { m.get_int("f"); }, ErrorCode::kBadFile, "must be an integer, but the file has f32");
  expect_refused([&] { m.get_float("u"); }, ErrorCode::kBadFile, "must be f32 or f64, but the file has u32");
  expect_refused([&] { m.get_bool("u"); }, ErrorCode::kBadFile, "must be bool, but the file has u32");
  expect_refused([&] { m.get_string("ss"); }, ErrorCode::kBadFile,
                 "must be a string, but the file has array of string");
  expect_refused([&] { m.get_strings("s"); }, ErrorCode::kBadFile,
                 "must be an array of strings, but the file has string");
  expect_refused([&] { m.get_ints("ss"); }, ErrorCode::kBadFile,
                 "must be an array of integers, but the file has array of string");
  expect_refused([&] { m.get_floats("u"); }, ErrorCode::kBadFile,
                 "must be an array of f32 or f64, but the file has u32");
}

TEST(Metadata, RangeChecksUnsigned64) {
  Metadata m;
  m.set("ok", {ValueType::U64, uint64_t{1} << 62});
  m.set("big", {ValueType::U64, uint64_t{1} << 63});
  EXPECT_EQ(m.get_int("ok"), int64_t{1} << 62);
  expect_refused([&] { m.get_int("big"); }, ErrorCode::kBadFile,
                 "metadata key 'big' is 9223372036854775808, which is out of range (at most 2^63-1)");
}

}  // namespace
}  // namespace tern::gguf
