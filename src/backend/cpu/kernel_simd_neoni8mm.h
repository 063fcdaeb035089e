// The vector operations of the NEON tier with int8 matrix products (ARMv8.6, i8mm): tiles multiply pairs of rows by
// pairs of activations, twice the products an instruction. Included by kernels_neoni8mm.cpp only.
#pragma once
#include "backend/cpu/kernel_simd_neon.h"

namespace tern::cpu {
namespace {

struct Simd : Neon {
  static constexpr bool kPairs = true;
  static constexpr int kDirectActs = 4, kDirectPanels = 1;
  static constexpr int kTilePanels = 2, kTileActs = 4;  // 8 integer + 8 float accumulators, 4 weights, 2 activations

  /// Two steps of four rows, 4 columns each -> 8 columns of rows 0 and 1, 8 columns of rows 2 and 3.
  static void zip_pair(Int& a, Int& b) {
    const Int first = vzip1q_s32(a, b);
    b = vzip2q_s32(a, b);
    a = first;
  }
  /// 8 columns of two activation rows.
  static Int act_pair(const void* x, const void* y) {
    return vreinterpretq_s32_s8(
        vcombine_s8(vld1_s8(static_cast<const int8_t*>(x)), vld1_s8(static_cast<const int8_t*>(y))));
  }
  /// acc[r][a] += row r of `rows` . activation a of `acts`, [2][2].
  static Int dot_pair(Int acc, Int rows, Int acts) {
    return vmmlaq_s32(acc, vreinterpretq_s8_s32(rows), vreinterpretq_s8_s32(acts));
  }
  /// Sums of rows (0, 1) and (2, 3) with two activations -> rows 0..3 with the first and with the second.
  static void unzip_pair(Int& low, Int& high) {
    const Int first = vuzp1q_s32(low, high);
    high = vuzp2q_s32(low, high);
    low = first;
  }
};

}  // namespace
}  // namespace tern::cpu
