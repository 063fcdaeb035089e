// Integer products of several activation rows by AMX. Sixteen steps of a panel are one operand as they are unpacked:
// 64 columns of 16 weight rows. The codes lose their bias there, so that the sums of a segment need no correction;
// where a row has one sum they keep it, and that is corrected.
//
// The sums are the integers of the other tiers; what follows in f32 is done in the order of kernel_int.inl (a few rows:
// a row gets the bits it gets alone) or of kernel_tile.inl (more).
#pragma once
#include "backend/cpu/kernel_tile.inl"

namespace tern::cpu {
namespace {

constexpr int kTileRows = 16;  // activation rows of a tile

/// From how many activation rows on tiles are faster than the codes multiplied as they are unpacked in registers. With
/// short segments the sums of a tile are scaled as often as they are multiplied, which fewer than 16 rows do not pay.
template <typename T>
constexpr int64_t kFewestTileRows = T::kSegment >= 128 ? 5 : kDirectRows + 1;
/// Segments of 16 columns with offsets (Q2_K) are faster in registers however many rows there are.
template <typename T>
constexpr bool kInTiles = T::kSegment >= 32 || !T::kOffset;

/// Up to 16 activation rows, the same kPanelColumns columns of each.
struct AmxRows {
  const std::byte* act;  // the first row, from its first column on
  Float* total;          // [row] of the panel, running over the blocks; rows kTilePanels apart
};

/// kPanels unpacked panels times kTiles tiles of activation rows over one block of columns.
template <typename P, bool kFew, int kPanels, int kTiles>
struct AmxBlock {
  using T = typename P::Tile;
  static constexpr bool kWhole = P::kWhole;  // unscaled sums end with the block: they are exact in f32
  static constexpr int kColumns = T::kSegment < 64 ? T::kSegment : 64;  // of a tile
  using Sums = int32_t[kPanels][kTiles][kTileRows * kLanes];

  const Unpacked<T>* w;
  const ActOffsets& at;
  int64_t column, cols;  // of the block
  int64_t acts;          // rows of a tile
  AmxRows rows[kTiles];

  /// The integer sums of columns [from, from + count) of the block.
  TERN_INLINE void multiply(int64_t from, int64_t count, Sums& sums) const {
    unroll<kPanels * kTiles>([](auto i) TERN_INLINE { AmxTiles::zero<AmxTiles::kSums + i.value>(); });
    for (int64_t k = from; k < from + count; k += kColumns) {
      unroll<kTiles>([&](auto t) TERN_INLINE {
        AmxTiles::load<AmxTiles::kActs + t.value>(rows[t.value].act + column + k, at.row_bytes);
      });
      unroll<kPanels>([&](auto p) TERN_INLINE {
        AmxTiles::load<AmxTiles::kCodes + p.value>(w[p.value].codes + k / 4 * kVector, kVector);
        unroll<kTiles>([&](auto t) TERN_INLINE {
          constexpr int kP = decltype(p)::value, kT = decltype(t)::value;
          AmxTiles::dot<AmxTiles::kSums + kP * kTiles + kT, AmxTiles::kActs + kT, AmxTiles::kCodes + kP>();
        });
      });
    }
    unroll<kPanels * kTiles>([&](auto i) TERN_INLINE {
      AmxTiles::store<AmxTiles::kSums + i.value>(sums[i.value / kTiles][i.value % kTiles], kVector);
    });
  }

  void run() const {
    if constexpr (kWhole) {
      alignas(64) Sums sums;
      multiply(0, cols, sums);
      for (int p = 0; p < kPanels; ++p) {
        for (int t = 0; t < kTiles; ++t) {
          for (int64_t n = 0; n < acts; ++n) {
            Float& total = rows[t].total[n * Simd::kTilePanels + p];
            total = Simd::add(Simd::to_float(Simd::load(sums[p][t] + n * kLanes)), total);
          }
        }
      }
    } else {
      scaled();
    }
  }

  /// Each segment is multiplied while the one before it is scaled.
  void scaled() const {
    alignas(64) Sums sums[2];
    Float group[kPanels][kTiles][kTileRows];
    for (auto& panel : group) {
      for (auto& tile : panel) {
#pragma GCC unroll 16
        for (Float& g : tile) g = Simd::zero_f();
      }
    }
    const int64_t segments = cols / T::kSegment;
    multiply(0, T::kSegment, sums[0]);
#pragma GCC unroll 1
    for (int64_t s = 0; s < segments; ++s) {
      if (s + 1 < segments) multiply((s + 1) * T::kSegment, T::kSegment, sums[(s + 1) % 2]);
      unroll<kPanels>([&](auto p) TERN_INLINE {
        unroll<kTiles>([&](auto t) TERN_INLINE {
          constexpr int kP = decltype(p)::value, kT = decltype(t)::value;
          add_segment(s, s + 1 == segments, kP, rows[kT], sums[s % 2][kP][kT], group[kP][kT]);
        });
      });
    }
  }

  /// group += scale * the sums of segment s; total += what is complete.
  TERN_INLINE void add_segment(int64_t s, bool last, int p, const AmxRows& r, const int32_t* sums,
                               Float (&group)[kTileRows]) const {
    const int64_t stride = at.row_bytes;
    const std::byte* scales = r.act + at.scales + (T::kRow ? 0 : (column + s * T::kSegment) / T::kGroup * 4);
    const std::byte* act_sums = r.act + at.sums[T::kSumLevel] + (column / T::kSegment + s) * 4;
    const Float scale = Simd::load_f(w[p].scales + s * kLanes);
    constexpr bool kScaleFirst = T::kOneScale && !kFew;
    const bool unit_ends = (s + 1) * T::kSegment % P::kUnit == 0;
    const bool ends = T::kRow || kScaleFirst ? last || (kFew && unit_ends) : (s + 1) * T::kSegment % T::kGroup == 0;
    const auto add = [&](int64_t n) TERN_INLINE {
      Float& g = group[n];
      const Float value = Simd::to_float(Simd::load(sums + n * kLanes));
      Float act_scale = Simd::zero_f();
      if constexpr (T::kOneScale) act_scale = Simd::splat_f(*reinterpret_cast<const float*>(scales + n * stride));
      g = Simd::fma(value, kScaleFirst ? Simd::mul(scale, act_scale) : scale, g);
      if constexpr (T::kOffset) {
        Float x = Simd::to_float(Simd::splat32(act_sums + n * stride));
        if constexpr (kScaleFirst) x = Simd::mul(x, act_scale);
        g = Simd::fma(Simd::load_f(w[p].offsets + s * kLanes), x, g);
      }
    };
    const auto finish = [&](int64_t n) TERN_INLINE {
      Float& total = r.total[n * Simd::kTilePanels + p];
      if constexpr (T::kRow || kScaleFirst) {
        total = Simd::add(total, group[n]);
      } else {
        total = Simd::fma(group[n], Simd::splat_f(*reinterpret_cast<const float*>(scales + n * stride)), total);
      }
      group[n] = Simd::zero_f();
    };
    if constexpr (kFew) {
      for (int64_t n = 0; n < acts; ++n) add(n);
      for (int64_t n = 0; ends && n < acts; ++n) finish(n);
    } else {
#pragma GCC unroll 16
      for (int64_t n = 0; n < kTileRows; ++n) add(n);
      if (!ends) return;
#pragma GCC unroll 16
      for (int64_t n = 0; n < kTileRows; ++n) finish(n);
    }
  }
};

/// kTilePanels panels from `row` on for `chunk` activation rows from `first` on. kFew: all rows, at most 16.
template <typename P, bool kFew>
void amx_panels(const MatmulArgs& a, const ActOffsets& at, int64_t row, int64_t first, int64_t chunk) {
  constexpr int kPanels = Simd::kTilePanels;
  const Matrix& w = *a.w;
  const int64_t acts = a.act_rows < kTileRows ? a.act_rows : kTileRows;
  const int64_t tiles = parts(chunk, kTileRows);
  /// The last tile of all rows begins early enough to be whole.
  const auto first_of = [&](int64_t tile) {
    const int64_t n = first + tile * kTileRows;
    return n + acts <= a.act_rows ? n : a.act_rows - acts;
  };
  const auto rows_of = [&](int64_t tile, Float* total) {
    return AmxRows{a.act + first_of(tile) * at.row_bytes, total + tile * kTileRows * kPanels};
  };
  Float total[kFew ? kTileRows * kPanels : kActChunk * kPanels];
  for (int64_t i = 0; i < tiles * kTileRows * kPanels; ++i) total[i] = Simd::zero_f();
  Unpacked<typename P::Tile> unpacked[kPanels];
  /// Of short segments the scaled sums of one tile fill the registers.
  constexpr bool kWide = P::Tile::kSegment >= 128 && !kFew;
  for (int64_t column = 0; column < w.cols; column += kPanelColumns) {
    const int64_t cols = w.cols - column < kPanelColumns ? w.cols - column : kPanelColumns;
    unpack_panels<P, true>(a, row, column, cols, unpacked);
    int64_t tile = 0;
    if constexpr (kWide) {
      for (; tile + 1 < tiles; tile += 2) {
        AmxBlock<P, kFew, kPanels, 2>{unpacked, at,   column,
                                      cols,     acts, {rows_of(tile, total), rows_of(tile + 1, total)}}
            .run();
      }
    }
    for (; tile < tiles; ++tile) {
      if constexpr (AmxBlock<P, kFew, kPanels, 1>::kWhole) {
        AmxBlock<P, kFew, kPanels, 1>{unpacked, at, column, cols, acts, {rows_of(tile, total)}}.run();
      } else {
        for (int p = 0; p < kPanels; ++p)
          AmxBlock<P, kFew, 1, 1>{unpacked + p, at, column, cols, acts, {rows_of(tile, total + p)}}.run();
      }
    }
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int64_t n = 0; n < acts; ++n) {
      const int64_t act = first_of(tile) + n;
      const auto* scales = reinterpret_cast<const float*>(a.act + act * at.row_bytes + at.scales);
      for (int64_t p = 0, to = row; p < kPanels && to < a.row_end; ++p, to += kLanes) {
        store_rows(a.out + act * a.out_stride + to, a.row_end - to,
                   finished<P>(total[(tile * kTileRows + n) * kPanels + p], w, scales));
      }
    }
  }
}

/// kTilePanels panels from `row` on for at most 16 activation rows whose sums stay in their tiles along all columns.
/// Codes keep their bias, which the sum of a row's activations corrects in the end.
template <typename P>
void amx_whole_rows(const MatmulArgs& a, const ActOffsets& at, int64_t row, const int32_t* act_sums) {
  constexpr int kPanels = Simd::kTilePanels;
  constexpr int64_t kBlock = P::kUnit < 256 ? 256 : P::kUnit;  // unpacking overlaps with the tiles of the block before
  unroll<kPanels>([](auto p) TERN_INLINE { AmxTiles::zero<AmxTiles::kSums + p.value>(); });
  Unpacked<typename P::Tile> unpacked[kPanels];
  for (int64_t column = 0; column < a.w->cols; column += kBlock) {
    const int64_t cols = a.w->cols - column < kBlock ? a.w->cols - column : kBlock;
    unpack_panels<P, false>(a, row, column, cols, unpacked);
    for (int64_t k = 0; k < cols; k += AmxBlock<P, true, 1, 1>::kColumns) {
      AmxTiles::load<AmxTiles::kActs>(a.act + column + k, at.row_bytes);
      unroll<kPanels>([&](auto p) TERN_INLINE {
        AmxTiles::load<AmxTiles::kCodes + p.value>(unpacked[p.value].codes + k / 4 * kVector, kVector);
        AmxTiles::dot_unsigned<AmxTiles::kSums + p.value, AmxTiles::kActs, AmxTiles::kCodes + p.value>();
      });
    }
  }
  alignas(64) int32_t sums[kPanels][kTileRows * kLanes];
  unroll<kPanels>([&](auto p) TERN_INLINE { AmxTiles::store<AmxTiles::kSums + p.value>(sums[p.value], kVector); });
  for (int64_t n = 0; n < a.act_rows; ++n) {
    const auto* scales = reinterpret_cast<const float*>(a.act + n * at.row_bytes + at.scales);
    for (int64_t p = 0, to = row; p < kPanels && to < a.row_end; ++p, to += kLanes) {
      const Int sum = Simd::load(reinterpret_cast<const std::byte*>(sums[p] + n * kLanes));
      store_rows(a.out + n * a.out_stride + to, a.row_end - to,
                 finished<P>(corrected<P::kBias != 0>(sum, act_sums + n, P::kBiasShift), *a.w, scales));
    }
  }
}

template <typename P>
void matmul_amx(const MatmulArgs& a) noexcept {
  using T = typename P::Tile;
  if (!kInTiles<T> || a.act_rows < kFewestTileRows<T>) return matmul_int<P>(a);
  const ActOffsets at(P::kRule, a.w->cols);
  const AmxTiles shape(a.act_rows < kTileRows ? a.act_rows : kTileRows, AmxBlock<P, false, 1, 1>::kColumns);
  if (a.act_rows > kTileRows) {
    return each_chunk(a, kTileRows,
                      [&](int64_t row, int64_t first, int64_t acts) { amx_panels<P, false>(a, at, row, first, acts); });
  }
  if constexpr (P::kWhole) {
    int32_t act_sums[kTileRows] = {};
    for (int64_t n = 0; n < a.act_rows; ++n) {
      const auto* sums = reinterpret_cast<const int32_t*>(a.act + n * at.row_bytes + at.sums[0]);
      for (int64_t i = 0; i < a.w->cols / kSmallestSum; ++i) act_sums[n] += sums[i];
    }
    each_chunk(a, kTileRows, [&](int64_t row, int64_t, int64_t) { amx_whole_rows<P>(a, at, row, act_sums); });
  } else {
    each_chunk(a, kTileRows,
               [&](int64_t row, int64_t first, int64_t acts) { amx_panels<P, true>(a, at, row, first, acts); });
  }
}

}  // namespace
}  // namespace tern::cpu
