#include "base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/cgroup.h"
#include "base/error.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

TEST(Memory, IsZeroFilledAndAligned) {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{4097}, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    const Memory m(bytes);
    ASSERT_EQ(m.size(), bytes);
    const size_t alignment = bytes >= (size_t{2} << 20) ? size_t{2} << 20 : 64;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data()) % alignment, 0u) << bytes;
    EXPECT_TRUE(std::all_of(m.data(), m.data() + bytes, [](std::byte b) { return b == std::byte{0}; })) << bytes;
    std::fill_n(m.data(), bytes, std::byte{0xff});  // all of it is ours
  }
}

TEST(Memory, MovesItsBytes) {
  Memory a(4096);
  a.as<int>()[7] = 42;
  Memory b(std::move(a));
  EXPECT_EQ(b.as<int>()[7], 42);
  Memory c;
  c = std::move(b);
  EXPECT_EQ(c.as<int>()[7], 42);
  EXPECT_EQ(c.size(), 4096u);
}

TEST(Memory, RefusesMoreThanTheAddressSpaceWithTheNumber) {
  try {
    const Memory m(size_t{1} << 62);
    FAIL() << "2^62 bytes were granted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(e.what()).find("4611686018427387904"), std::string::npos) << e.what();
  }
}

TEST(Memory, HugePagesAreCountedInsideTheRangeOnly) {
  const Memory m(size_t{8} << 20);
  std::fill_n(m.data(), m.size(), std::byte{1});
  EXPECT_LE(huge_page_bytes(m.data(), m.size()), m.size());
  EXPECT_EQ(huge_page_bytes(nullptr, 0), 0u);
}

TEST(AvailableMemory, IsNeitherZeroNorUnknown) {
  EXPECT_GT(available_memory(), uint64_t{1} << 20);
  EXPECT_LT(available_memory(), uint64_t{1} << 60);
}

/// A directory with the files of /proc and /sys that the cgroup code reads.
class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

TEST_F(CgroupTest, NoLimitsWithoutFiles) {
  EXPECT_EQ(cgroup_memory_left(root()), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota(root()), std::nullopt);
}

TEST_F(CgroupTest, V2TakesTheTightestAncestorAndCountsCacheAsFree) {
  write("proc/self/cgroup", "0::/slice/unit\n");
  write("sys/fs/cgroup/slice/unit/memory.max", "max\n");
  write("sys/fs/cgroup/slice/unit/memory.current", "500\n");
  write("sys/fs/cgroup/slice/memory.max", "1000\n");
  write("sys/fs/cgroup/slice/memory.current", "700\n");
  write("sys/fs/cgroup/slice/memory.stat", "anon 400\ninactive_file 100\n");
  write("sys/fs/cgroup/slice/unit/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/slice/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_memory_left(root()), 400u);
  EXPECT_EQ(cgroup_cpu_quota(root()), 1.5);
}

TEST_F(CgroupTest, V1ReadsTheControllersOwnTree) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/box\n4:memory:/box\n");
  write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4096\n");
  write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "5000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // v1's "no limit"
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_memory_left(root()), 0u);
  EXPECT_EQ(cgroup_cpu_quota(root()), 4.0);
}

TEST_F(CgroupTest, V1QuotaOfMinusOneIsNoLimit) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root()), std::nullopt);
}

}  // namespace
}  // namespace tern
