// Tests that need a GPU: skipped, loudly, where there is none.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>

#include "backend/cuda/cuda_backend.h"

namespace tern::test {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_free_memory() > 0) return;
    std::fprintf(stderr, "\n*** NOT TESTED: no CUDA GPU here ***\n\n");
    GTEST_SKIP();
  }
};

}  // namespace tern::test
