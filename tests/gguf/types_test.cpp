#include "gguf/types.h"

#include <gtest/gtest.h>

#include <set>

#include "gguf/file.h"
#include "gguf/refusal.h"

namespace tern {
namespace {

using gguf::tensor_bytes;
using gguf::testing::expect_refused;

TEST(Types, EachIdAndNameOccursOnce) {
  std::set<TensorType> ids;
  std::set<std::string_view> names;
  for (const TypeInfo& t : type_table()) {
    EXPECT_TRUE(ids.insert(t.type).second) << t.name;
    EXPECT_TRUE(names.insert(t.name).second) << t.name;
    EXPECT_EQ(&type_info(t.type), &t);
    EXPECT_EQ(find_type(t.name), &t);
  }
  EXPECT_EQ(ids.size(), 40u);
}

TEST(Types, AreFoundByIdAndByNameInAnyCase) {
  EXPECT_EQ(find_type(143)->name, "PTQ1_0");
  EXPECT_EQ(find_type("ptq1_0")->type, TensorType::PTQ1_0);
  EXPECT_EQ(find_type("iq4_NL")->type, TensorType::IQ4_NL);
  EXPECT_EQ(find_type(31), nullptr);
  EXPECT_EQ(find_type("Q4_2"), nullptr);
  EXPECT_EQ(find_type("Q4"), nullptr);
}

// One row of 256 or 1024 weights in bits a weight, from the published figures.
TEST(Types, HaveTheirPublishedSizes) {
  const std::pair<TensorType, double> bits[] = {
      {TensorType::Q4_0, 4.5},    {TensorType::Q8_0, 8.5},    {TensorType::Q2_K, 2.625},   {TensorType::Q3_K, 3.4375},
      {TensorType::Q4_K, 4.5},    {TensorType::Q6_K, 6.5625}, {TensorType::TQ1_0, 1.6875}, {TensorType::TQ2_0, 2.0625},
      {TensorType::MXFP4, 4.25},  {TensorType::NVFP4, 4.5},   {TensorType::Q1_0, 1.125},   {TensorType::Q2_0, 2.25},
      {TensorType::PQ2_0, 2.125}, {TensorType::PTQ1_0, 1.75}};
  for (const auto& [type, bpw] : bits)
    EXPECT_EQ(tensor_bytes(type, {1024, 2, 1, 1}) * 8, 2048 * bpw) << type_info(type).name;
}

// The embedding and head of the released 27B in both packings (docs/formats.md, section 7).
TEST(TensorBytes, CountsLargeTensorsAndTails) {
  EXPECT_EQ(tensor_bytes(TensorType::PTQ1_0, {5120, 248320, 1, 1}), 278118400u);
  EXPECT_EQ(tensor_bytes(TensorType::PQ2_0, {5120, 248320, 1, 1}), 337715200u);
  EXPECT_EQ(tensor_bytes(TensorType::I2_S, {2560, 6912, 1, 1}), 2560u * 6912u / 4u + 32u);
  EXPECT_EQ(tensor_bytes(TensorType::I8_S, {100, 3, 1, 1}), 332u);
  EXPECT_EQ(tensor_bytes(TensorType::F16, {8, 4, 3, 2}), 384u);
}

TEST(TensorBytes, RefusesPartialBlocksAndOverflow) {
  expect_refused(
      [] {
        tensor_bytes(TensorType::PTQ1_0, {192, 1, 1, 1});
      },
      ErrorCode::kBadFile, "type PTQ1_0 needs rows of whole blocks of 128 weights, but ne[0] is 192");
  const int64_t big = int64_t{1} << 31;
  expect_refused(
      [&] {
        tensor_bytes(TensorType::F32, {big, big, big, 1});
      },
      ErrorCode::kBadFile, "has a dimension below 1 or more than 2^63-1 elements");
  expect_refused([&] { tensor_bytes(TensorType::F64, {big, big, 1, 1}); }, ErrorCode::kBadFile, "has too many bytes");
  expect_refused([&] { tensor_bytes(TensorType::F32, {4, -1, 1, 1}); }, ErrorCode::kBadFile, "has a dimension below 1");
}

}  // namespace
}  // namespace tern
