// The product of a chunk (128 columns) of weight tiles and rounded activations: what the matrix-vector kernel and the
// tiled one share.
#pragma once
#include "backend/cuda/formats.h"

namespace tern::cuda {

/// Sums of one chunk under way: tile m, eight activation rows n, places of mma.h.
template <int kM, int kN>
using Sums = int[kM][kN][4];

/// y += the finished sums of fold kJ of the unit, group j of the chunk's activations.
template <typename L, int kJ, int kStep, int kM, int kN, typename D>
__device__ __forceinline__ void add_fold(const typename L::Frag (&w)[kM], const Sums<kM, kN>& sum,
                                         const int (&ones)[kN][4], D d, int j, float (&y)[kM][kN][4]) {
  using Scales = typename L::Scales;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const float scale[2] = {w[m].scales.template scale<kJ, 0>() * L::Codes::kCodeScale,
                            w[m].scales.template scale<kJ, 1>() * L::Codes::kCodeScale};
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 act = d(n, j);
#pragma unroll
      for (int e = 0; e < 4; e += kStep) {
        const float x = e % 2 == 0 ? act.x : act.y;
        y[m][n][e] += scale[e / 2] * (x * from_magic(sum[m][n][e]));
        if constexpr (Scales::kMinima) {
          const float low = e / 2 == 0 ? w[m].scales.template minimum<kJ, 0>() : w[m].scales.template minimum<kJ, 1>();
          y[m][n][e] += low * (x * static_cast<float>(ones[n][e]));
        }
      }
    }
  }
}

/// y += the integer sums of a chunk under the scales of its super-block.
template <typename L, int kStep, int kM, int kN, typename D>
__device__ __forceinline__ void add_super(const typename L::Frag (&w)[kM], const Sums<kM, kN>& super,
                                          const Sums<kM, kN>& minima, D d, float (&y)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const float scale[2] = {w[m].scales.template super<0>() * L::Codes::kCodeScale,
                            w[m].scales.template super<1>() * L::Codes::kCodeScale};
    const float low[2] = {w[m].scales.template super_minimum<0>(), w[m].scales.template super_minimum<1>()};
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 act = d(n, 0);
#pragma unroll
      for (int e = 0; e < 4; e += kStep) {
        const float x = e % 2 == 0 ? act.x : act.y;
        y[m][n][e] += scale[e / 2] * (x * static_cast<float>(super[m][n][e]));
        if constexpr (L::Scales::kMinima) y[m][n][e] -= low[e / 2] * (x * static_cast<float>(minima[m][n][e]));
      }
    }
  }
}

template <int kM, int kN>
__device__ __forceinline__ void fill(Sums<kM, kN>& sums, int value) {
#pragma unroll
  for (int i = 0; i < kM * kN * 4; ++i) (&sums[0][0][0])[i] = value;
}

/// y[m][n] += tile m x eight activation rows n over chunk kC of the unit.
///   b(s, words): the two operands of k-step s of every n for this lane
///   d(n, j): scales of the activations 2t and 2t + 1 in group j of the chunk (0 unless Layout::kAct32)
/// kOne: only activation row 0 of the eight exists: b gives it to all lanes, and y gets what lies in a lane's columns
/// (multiply_s8).
/// Sums are exact integers over a fold; folds are added in f32 in ascending order of columns. Fold::kWhole: y holds the
/// bits of integers.
template <typename L, int kC, bool kOne, int kM, int kN, typename B, typename D>
__device__ __forceinline__ void multiply_chunk(const typename L::Frag (&w)[kM], B b, D d, float (&y)[kM][kN][4]) {
  using Scales = typename L::Scales;
  constexpr Fold kFold = Scales::kFold;
  constexpr int kFoldCols = Scales::kFoldCols, kFolds = 128 / kFoldCols, kStep = kOne ? 2 : 1;
  constexpr int kSteps = kFoldCols < 32 ? 1 : kFoldCols / 32;  // k-steps of a fold
  constexpr int kHalves = kFoldCols < 32 ? 2 : 1;              // folds of a k-step
  constexpr uint32_t kOnes[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
  Sums<kM, kN> sum;
  [[maybe_unused]] Sums<kM, kN> super = {}, minima = {};
  [[maybe_unused]] int ones[kN][4];  // sums of the activations
  if constexpr (kFold == Fold::kWhole) {
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) (&sum[0][0][0])[i] = __float_as_int((&y[0][0][0])[i]);
  }
  unrolled<0, 4>([&](auto s) {
    uint32_t words[kN][2], a[kM][4];
    b(s, words);
#pragma unroll
    for (int m = 0; m < kM; ++m) w[m].codes.template codes<kC * 4 + s>(a[m]);
    unrolled<0, kHalves>([&](auto half) {
      [[maybe_unused]] constexpr int kFoldOfChunk = s * 32 / kFoldCols + half, kJ = kC * kFolds + kFoldOfChunk;
      if constexpr (kFold != Fold::kWhole && s % kSteps == 0) {
        fill<kM, kN>(sum, kFold == Fold::kFloat ? kMagicBits : 0);
#pragma unroll
        for (int i = 0; i < kN * 4; ++i) ones[i / 4][i % 4] = 0;
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        [[maybe_unused]] uint32_t low[4] = {};
        if constexpr (kFold == Fold::kSuper && Scales::kMinima) {
          low[0] = low[2] = w[m].scales.template minimum_operand<kJ, 0>();
          low[1] = low[3] = w[m].scales.template minimum_operand<kJ, 1>();
        }
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          if constexpr (kHalves == 2) {
            multiply_s8_half<kOne>(sum[m][n], a[m][2 * half], a[m][2 * half + 1], words[n][half]);
            if constexpr (Scales::kMinima) multiply_s8_half<kOne>(minima[m][n], low[0], low[1], words[n][half]);
          } else {
            multiply_s8<kOne>(sum[m][n], a[m], words[n][0], words[n][1]);
            if constexpr (kFold == Fold::kSuper && Scales::kMinima)
              multiply_s8<kOne>(minima[m][n], low, words[n][0], words[n][1]);
            if constexpr (kFold == Fold::kFloat && Scales::kMinima) {
              if (m == 0) multiply_s8<kOne>(ones[n], kOnes, words[n][0], words[n][1]);
            }
          }
        }
      }
      if constexpr (kFold == Fold::kFloat && s % kSteps == kSteps - 1) {
        add_fold<L, kJ, kStep>(w, sum, ones, d, L::kAct32 ? kFoldOfChunk * kFoldCols / 32 : 0, y);
      }
      if constexpr (kFold == Fold::kSuper) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const int sub[2] = {w[m].scales.template sub<kJ, 0>(), w[m].scales.template sub<kJ, 1>()};
#pragma unroll
          for (int i = 0; i < kN * 4; i += kStep) super[m][i / 4][i % 4] += sub[i % 4 / 2] * sum[m][i / 4][i % 4];
        }
      }
    });
  });
  if constexpr (kFold == Fold::kSuper) add_super<L, kStep>(w, super, minima, d, y);
  if constexpr (kFold == Fold::kWhole) {
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) (&y[0][0][0])[i] = __int_as_float((&sum[0][0][0])[i]);
  }
}

/// The same for one activation row and two-bit codes (Layout::kBits), bit by bit: column n of the operand `acts` holds
/// bit n of the activations in the even places, which those of `odd` are moved from, so that the products count the
/// bits that codes and activations have in common. y[0] and y[2] (rows g and g + 8) are in units of bit_unit(lane), and
/// the lanes t of a row add up to the sum.
__device__ __forceinline__ int bit_unit(int lane) {
  return -(1 << 2 * (lane % 4));
}
template <typename L, int kC>
__device__ __forceinline__ void multiply_bits(const typename L::Frag& w, uint2 acts, float act_scale, int lane,
                                              float (&y)[4]) {
  constexpr bool kWhole = L::Scales::kFold == Fold::kWhole;
  const uint32_t(&a)[4] = reinterpret_cast<const uint32_t(&)[4]>(w.codes.w[4 * kC]);
  const int start[4] = {kWhole ? 0 : kMagicBits, 0, kWhole ? 0 : kMagicBits, 0}, none[4] = {};
  int low[4], high[4];  // of the codes: minus the weight is low - 2 high
  count_bits(low, a, acts.x, acts.y, start);
  count_bits(high, a, acts.x << 1, acts.y << 1, none);
  const int next = lane % 4 == 3 ? -2 : 2;  // bits 2t and 2t + 1 of the activations; bit 7 is the sign
  unrolled<0, 2>([&](auto h) {
    const int sum = low[2 * h] - 2 * high[2 * h] + next * (low[2 * h + 1] - 2 * high[2 * h + 1]);
    float& to = y[2 * h];
    if constexpr (kWhole) {
      to = __int_as_float(__float_as_int(to) + sum);
    } else {
      to += w.scales.template scale<kC, h>() * (act_scale * from_magic(sum));
    }
  });
}

/// Whether a warp has the registers for two tiles beside many activation rows.
template <typename L>
constexpr bool kTilesShareActs = L::Scales::kFold != Fold::kSuper && !L::Scales::kMinima;

/// A finished sum as the product: (W x) * scale + bias, after BitNet's division by the multiplier of the row.
template <typename L>
__device__ __forceinline__ float finish(float sum, float row_multiplier, float tensor_scale, float scale, float bias) {
  float v = sum;
  if constexpr (L::Scales::kFold == Fold::kWhole) {
    v = __int2float_rn(-__float_as_int(sum) >> L::Codes::kWholeShift);
  }
  if (row_multiplier != 1.0f) v = __fdiv_rn(v, row_multiplier);
  v = __fmul_rn(v, tensor_scale);
  return __fadd_rn(__fmul_rn(v, scale), bias);
}

}  // namespace tern::cuda
