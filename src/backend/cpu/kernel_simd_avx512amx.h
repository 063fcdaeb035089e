// The vector operations of the AVX-512 VNNI tier, and AMX's tiles. Included by kernels_avx512amx.cpp only.
//
// Tiles in assembly: GCC 12's intrinsics do not say that they read memory, so what they load may be stored behind them.
#pragma once
#include "backend/cpu/kernel_simd_avx512.h"

namespace tern::cpu {
namespace {

/// The eight tile registers as the products use them: 0..3 sums [acts][16] of int32, 4 and 5 activations [acts][bytes],
/// 6 and 7 codes [bytes / 4][16][4]. A thread's registers have this shape as long as the object lives and then the one
/// they had: another library on the same thread may have set its own once and for all.
class AmxTiles {
 public:
  static constexpr int kSums = 0, kActs = 4, kCodes = 6;

  /// acts <= 16; bytes, the columns of a tile: a multiple of 4 up to 64.
  AmxTiles(int64_t acts, int bytes) {
    asm volatile("sttilecfg %0" : "=m"(before_));
    Shape shape;
    shape.palette = 1;
    for (int i = 0; i < 8; ++i) {
      shape.row_bytes[i] = static_cast<uint16_t>(i >= kActs && i < kCodes ? bytes : 64);
      shape.rows[i] = static_cast<uint8_t>(i < kCodes ? acts : bytes / 4);
    }
    asm volatile("ldtilecfg %0" ::"m"(shape) : "memory");
  }
  ~AmxTiles() {
    if (before_.palette == 0) {
      asm volatile("tilerelease" ::: "memory");
    } else {
      asm volatile("ldtilecfg %0" ::"m"(before_) : "memory");
    }
  }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  /// Rows `stride` bytes apart.
  template <int kTile>
  static void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  /// sums[a][r] += acts[a] . codes[r], signed bytes.
  template <int kSumsTile, int kActsTile, int kCodesTile>
  static void dot() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSumsTile), "i"(kActsTile), "i"(kCodesTile));
  }
  /// The same of unsigned codes.
  template <int kSumsTile, int kActsTile, int kCodesTile>
  static void dot_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSumsTile), "i"(kActsTile), "i"(kCodesTile));
  }

 private:
  struct Shape {
    uint8_t palette = 0, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  Shape before_;
};

}  // namespace
}  // namespace tern::cpu
