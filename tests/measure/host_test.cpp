#include "measure/host.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/memory.h"

namespace tern::measure {
namespace {

TEST(Host, IsNamedWithItsCoresAndMemory) {
  const Host host = this_host();
  EXPECT_FALSE(host.cpu.empty());
  EXPECT_GE(host.cores, 1);
  EXPECT_GT(host.memory, uint64_t{64} << 20);
  EXPECT_NE(host.system.find("Linux"), std::string::npos);
}

TEST(PeakResident, KeepsTheMostThatWasInMemory) {
  const uint64_t before = peak_resident();
  constexpr size_t kBytes = size_t{64} << 20;
  {
    const Memory memory(kBytes);
    std::memset(memory.data(), 1, kBytes);
  }
  EXPECT_GE(peak_resident() + (size_t{8} << 20), before + kBytes);  // what was resident may have become less meanwhile
  if (!reset_peak_resident()) GTEST_SKIP() << "this system cannot reset the peak";
  EXPECT_LT(peak_resident(), before + kBytes);
}

}  // namespace
}  // namespace tern::measure
