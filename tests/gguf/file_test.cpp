// Opening models: one file, split files, the models that ship.
#include <gtest/gtest.h>

#include <iostream>

#include "gguf/refusal.h"
#include "gguf/temp_folder.h"

namespace tern::gguf {
namespace {

using namespace testing;
namespace fs = std::filesystem;

void expect_not_opened(const std::string& path, ErrorCode code, std::string_view text) {
  expect_refused([&] { File::open(path); }, code, text);
}

TEST(File, GivesTheBytesOfATensor) {
  const TempFolder tmp;
  RawFile raw = RawFile::model().tensor("a", {1}, 0, "abcd").tensor("b", {2}, 0, "efghijkl");
  const File f = File::open(tmp.write("m.gguf", raw.build()));
  ASSERT_NE(f.find("b"), nullptr);
  const auto bytes = f.bytes(*f.find("b"));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "efghijkl");
  EXPECT_EQ(f.find("c"), nullptr);
  EXPECT_EQ(f.file_bytes(), raw.build().size());
}

TEST(File, RefusesAFileThatIsNotThere) {
  expect_not_opened("/nowhere/m.gguf", ErrorCode::kNotFound,
                    "cannot open '/nowhere/m.gguf': No such file or directory");
}

TEST(File, RequiresAnArchitecture) {
  const TempFolder tmp;
  expect_not_opened(tmp.write("m.gguf", RawFile().build()), ErrorCode::kBadFile,
                    "has no metadata key 'general.architecture'");
}

/// Part `index` of `count`, with one tensor named after it.
RawFile part(uint16_t index, uint16_t count, int32_t tensors) {
  RawFile f = index == 0 ? RawFile::model() : RawFile();
  f.key("split.no", kU16, le(index)).key("split.count", kU16, le(count)).key("split.tensors.count", kI32, le(tensors));
  return f.tensor(fmt::format("w{}", index), {1}, 0, std::string(4, static_cast<char>('a' + index)));
}

TEST(SplitFile, IsOneModel) {
  const TempFolder tmp;
  const std::string first = tmp.write("m-00001-of-00003.gguf", part(0, 3, 3).build());
  tmp.write("m-00002-of-00003.gguf", part(1, 3, 3).build());
  tmp.write("m-00003-of-00003.gguf", part(2, 3, 3).build());
  const File f = File::open(first);
  ASSERT_EQ(f.tensors().size(), 3u);
  EXPECT_EQ(f.find("w2")->shard, 2u);
  EXPECT_EQ(static_cast<char>(f.bytes(*f.find("w2"))[0]), 'c');
  std::byte copied{};
  ASSERT_TRUE(f.copy(f.bytes(*f.find("w2")).first(1), &copied));
  EXPECT_EQ(static_cast<char>(copied), 'c');
  EXPECT_EQ(f.metadata().get_string("general.architecture"), "llama");
  EXPECT_FALSE(f.metadata().has("split.count")) << "a rewrite in one file would be taken for a part";
  EXPECT_EQ(f.file_bytes(), part(0, 3, 3).build().size() + 2 * part(1, 3, 3).build().size());
}

TEST(SplitFile, OfOnePartIsAWholeModel) {
  const TempFolder tmp;
  EXPECT_EQ(File::open(tmp.write("any name.gguf", part(0, 1, 1).build())).tensors().size(), 1u);
}

TEST(SplitFile, NamesTheMissingParts) {
  const TempFolder tmp;
  const std::string first = tmp.write("m-00001-of-00003.gguf", part(0, 3, 3).build());
  expect_not_opened(
      first, ErrorCode::kNotFound,
      fmt::format("the model is split into 3 files and these are missing: '{}', '{}'; put them beside '{}'",
                  tmp / "m-00002-of-00003.gguf", tmp / "m-00003-of-00003.gguf", first));
}

TEST(SplitFile, SaysWhichPartToOpen) {
  const TempFolder tmp;
  const std::string second = tmp.write("m-00002-of-00002.gguf", part(1, 2, 2).build());
  expect_not_opened(second, ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is part 2 of 2 of a split model; open the first part, '{}'", second,
                                tmp / "m-00001-of-00002.gguf"));
}

TEST(SplitFile, RefusesNamesThatHideTheOtherParts) {
  const TempFolder tmp;
  expect_not_opened(tmp.write("renamed.gguf", part(0, 2, 2).build()), ErrorCode::kBadFile,
                    "is part 1 of a model split into 2 files, so its name must end in '-00001-of-00002.gguf'");
}

TEST(SplitFile, RefusesPartsThatDisagree) {
  const TempFolder tmp;
  const std::string first = tmp.write("m-00001-of-00002.gguf", part(0, 2, 2).build());
  const std::string second = tmp.write("m-00002-of-00002.gguf", part(1, 3, 3).build());
  expect_not_opened(first, ErrorCode::kBadFile,
                    fmt::format("'{}' says it is part 2 of 3, but its name and '{}' say part 2 of 2", second, first));
  tmp.write("m-00002-of-00002.gguf", RawFile::model().tensor("x", {1}, 0, "abcd").build());
  expect_not_opened(first, ErrorCode::kBadFile, "says it is part 1 of 1, but its name and");
}

TEST(SplitFile, RefusesAnotherNumberOfTensors) {
  const TempFolder tmp;
  const std::string first = tmp.write("m-00001-of-00002.gguf", part(0, 2, 5).build());
  tmp.write("m-00002-of-00002.gguf", part(1, 2, 5).build());
  expect_not_opened(first, ErrorCode::kBadFile, "announces 5 tensors (split.tensors.count), but its 2 files have 2");
}

TEST(SplitFile, RefusesATensorInTwoParts) {
  const TempFolder tmp;
  const std::string first = tmp.write("m-00001-of-00002.gguf", part(0, 2, 2).build());
  RawFile second = part(1, 2, 2);
  second.tensor("w0", {1}, 0, "abcd");
  tmp.write("m-00002-of-00002.gguf", second.build());
  expect_not_opened(first, ErrorCode::kBadFile, "tensor 'w0' is already in an earlier file of the split model");
}

TEST(SplitFile, RefusesCountsThatMakeNoSense) {
  const TempFolder tmp;
  expect_not_opened(tmp.write("m.gguf", part(7, 2, 2).build()), ErrorCode::kBadFile,
                    "split.no 7 and split.count 2 make no sense together");
}

struct RealModel {
  std::string_view name, architecture, tensor;
  size_t tensors;
  TensorType type;
};

TEST(File, OpensTheRealModels) {
  const fs::path folder = fs::path(TERN_SOURCE_DIR) / "../shared/models";
  if (!fs::exists(folder)) {
    std::cerr << "\n*** NOT TESTED: " << folder << " is absent, so no real model was opened ***\n\n";
    GTEST_SKIP();
  }
  const RealModel models[] = {
      {"ternlet-hybrid-108m-PTQ1_0.gguf", "qwen35", "blk.0.attn_qkv.weight", 109, TensorType::PTQ1_0},
      {"ternlet-bitnet-72m-I2_S.gguf", "bitnet-b1.58", "blk.0.attn_q.weight", 112, TensorType::I2_S},
      {"ternlet-moe-29m-Q8_0.gguf", "qwen3moe", "blk.0.attn_q.weight", 75, TensorType::Q8_0},
  };
  for (const RealModel& m : models) {
    const File f = File::open((folder / m.name).string());
    EXPECT_EQ(f.metadata().get_string("general.architecture"), m.architecture);
    EXPECT_EQ(f.tensors().size(), m.tensors) << m.name;
    ASSERT_NE(f.find(m.tensor), nullptr) << m.name;
    EXPECT_EQ(f.find(m.tensor)->type, m.type) << m.name;
    EXPECT_EQ(f.metadata().get_strings("tokenizer.ggml.tokens")->size(), 12288u);
    uint64_t end = 0;
    for (const TensorInfo& t : f.tensors()) end += (t.nbytes + 31) / 32 * 32;
    EXPECT_LT(end, f.file_bytes());
    EXPECT_GT(end, f.file_bytes() * 9 / 10);
  }
}

}  // namespace
}  // namespace tern::gguf
