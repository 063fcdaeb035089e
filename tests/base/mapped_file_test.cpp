#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    std::string pattern = (fs::temp_directory_path() / "tern-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~MappedFileTest() override { fs::remove_all(folder_); }

  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }

  void expect_refused(const std::string& path, ErrorCode code, const std::string& message) const {
    try {
      const MappedFile f(path);
      FAIL() << "mapped " << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code);
      EXPECT_EQ(e.what(), message);
    }
  }

  fs::path folder_;
};

std::string_view text(const MappedFile& f) {
  return {reinterpret_cast<const char*>(f.bytes().data()), f.bytes().size()};
}

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  const std::string path = write("f", std::string_view("a\0b", 3));
  const MappedFile f(path);
  EXPECT_EQ(text(f), std::string_view("a\0b", 3));
  EXPECT_EQ(f.path(), path);
}

/// Bytes of the mapping at `data` that are in this process.
size_t resident(const void* data) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0, kb = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin == reinterpret_cast<uintptr_t>(data);
    if (inside && std::sscanf(line.c_str(), "Rss: %lu kB", &kb) == 1) return size_t{kb} << 10;
  }
  return SIZE_MAX;
}

TEST_F(MappedFileTest, NothingStaysOfPartsThatWereDroppedOneByOne) {
  constexpr size_t kBytes = 300'007, kPart = 25'001;  // neither ends where a page does
  const MappedFile f(write("f", std::string(kBytes, 'x')));
  EXPECT_EQ(std::count(text(f).begin(), text(f).end(), 'x'), static_cast<std::ptrdiff_t>(kBytes));
  EXPECT_GE(resident(f.bytes().data()), kBytes);
  for (size_t at = 0; at < kBytes; at += kPart) f.drop(at, std::min(kPart, kBytes - at));
  EXPECT_EQ(resident(f.bytes().data()), 0u);
  EXPECT_EQ(text(f).back(), 'x');
}

TEST_F(MappedFileTest, RefusesWhatIsNotAFileWithBytes) {
  const std::string missing = (folder_ / "missing").string(), empty = write("empty", "");
  expect_refused(missing, ErrorCode::kNotFound, "cannot open '" + missing + "': No such file or directory");
  expect_refused(folder_.string(), ErrorCode::kIo, "'" + folder_.string() + "' is not a regular file");
  expect_refused(empty, ErrorCode::kBadFile, "'" + empty + "' is empty (0 bytes)");
}

TEST_F(MappedFileTest, MovesWithoutMappingAgain) {
  MappedFile a(write("a", "first"));
  const std::byte* where = a.bytes().data();
  MappedFile b = std::move(a);
  EXPECT_EQ(b.bytes().data(), where);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT(bugprone-use-after-move): a moved-from file is empty by contract
  MappedFile c(write("c", "second"));
  c = std::move(b);
  EXPECT_EQ(text(c), "first");
}

TEST_F(MappedFileTest, StillReadsWhatWasDropped) {
  const std::string bytes(3 * 4096 + 100, 'x');
  const MappedFile f(write("f", bytes));
  EXPECT_EQ(text(f), bytes);
  f.drop(0, bytes.size());
  f.drop(1, 10);  // less than a page: nothing to drop
  EXPECT_EQ(text(f), bytes);
}

TEST_F(MappedFileTest, CopiesAPartAndSaysWhenTheFileHasGotShorter) {
  const std::string path = write("f", "0123456789");
  const MappedFile f(path);
  std::array<std::byte, 4> part{};
  ASSERT_TRUE(f.copy(3, part));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(part.data()), part.size()), "3456");
  std::filesystem::resize_file(path, 5);
  EXPECT_FALSE(f.copy(3, part));
  MappedFile moved(write("g", "abcdefgh"));
  const MappedFile holder = std::move(moved);
  EXPECT_TRUE(holder.copy(4, part));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(part.data()), part.size()), "efgh");
}

}  // namespace
}  // namespace tern
