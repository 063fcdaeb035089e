// The vector operations of the NEON dot-product tier. Included by kernels_neondot.cpp only.
#pragma once
#include "backend/cpu/kernel_simd_neon.h"

namespace tern::cpu {
namespace {

struct Simd : Neon {
  static constexpr bool kPairs = false;
  static constexpr int kDirectActs = 4, kDirectPanels = 1;
  static constexpr int kTilePanels = 4, kTileActs = 3;  // 12 integer + 12 float accumulators of 32 registers
};

}  // namespace
}  // namespace tern::cpu
