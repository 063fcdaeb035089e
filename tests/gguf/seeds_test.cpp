// The committed seeds of fuzz_gguf are what examples.h spells. After a change there:
//   TERN_WRITE_SEEDS=1 test_gguf --gtest_filter=Seeds.*
#include <gtest/gtest.h>

#include <cstdlib>

#include "gguf/examples.h"
#include "gguf/temp_folder.h"

namespace tern::gguf {
namespace {

using namespace testing;
namespace fs = std::filesystem;

TEST(Seeds, AreCommittedAsTheyAreSpelled) {
  const fs::path folder = fs::path(TERN_SOURCE_DIR) / "fuzz/corpus/gguf";
  if (std::getenv("TERN_WRITE_SEEDS")) {
    fs::create_directories(folder);
    for (const auto& [name, bytes] : seeds()) std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  for (const auto& [name, bytes] : seeds()) {
    EXPECT_EQ(read_all(folder / name), bytes) << name;
    EXPECT_LT(bytes.size(), 16384u) << name;
  }
}

}  // namespace
}  // namespace tern::gguf
