// Integer products with many activation rows: kPanelColumns columns of kTilePanels panels are unpacked to bytes in the
// L1 cache and reused by every activation row, kTileActs at a time.
#pragma once
#include "backend/cpu/kernel_int.inl"

namespace tern::cpu {
namespace {

/// Up to so many rows multiply the codes as they are unpacked (BitNet 72M: 1.4 times the tiles at 16 rows, as fast at
/// 24).
constexpr int64_t kDirectRows = 16;
constexpr int kPanelColumns = 512;
/// Activation rows that share one unpacking of the weights; their running sums stay in the L1 cache.
constexpr int kActChunk = 96;

/// kPanelColumns columns of one panel as bytes and f32 scales.
template <typename T>
struct Unpacked {
  alignas(64) std::byte codes[kPanelColumns / 4 * kVector];
  alignas(64) float scales[kPanelColumns / T::kSegment * kLanes];
  alignas(64) float offsets[T::kOffset ? kPanelColumns / T::kSegment * kLanes : kLanes];
};

/// Steps as pairs of rows, for tiers that multiply those.
template <typename S>
void zip_steps(std::byte* steps, int count) {
  for (int i = 0; i < count; i += 2, steps += 2 * kVector) {
    Int a = S::load(steps), b = S::load(steps + kVector);
    S::zip_pair(a, b);
    S::store(steps, a);
    S::store(steps + kVector, b);
  }
}

/// kUnbiased: to signed bytes.
template <typename P, bool kUnbiased = false>
void unpack(const std::byte* codes, const std::byte* scales, int64_t units, Unpacked<typename P::Tile>& to) {
  using Codes = typename P::Codes;
  using Scales = typename P::Scales;
  std::byte* out = to.codes;
  int segment = 0;
  for (int64_t u = 0; u < units; ++u) {
    unroll<Codes::kQuanta>([&](auto quantum) TERN_INLINE {
      Int w[Codes::kSteps];
      Codes::template quantum<quantum.value>(codes, w);
      unroll<Codes::kSteps>([&](auto d) TERN_INLINE {
        constexpr int kStep = decltype(quantum)::value * Codes::kSteps + decltype(d)::value;
        if constexpr (kStep < P::kUnit / 4) {
          if constexpr (kUnbiased && P::kBias != 0) w[d.value] = Simd::sub8(w[d.value], Simd::splat8(P::kBias));
          Simd::store(out + kStep * kVector, w[d.value]);
        }
      });
    });
    for (int s = 0; s < P::kSegments; ++s, ++segment) {
      const int scale = s * P::kSegment / Scales::kSegment;
      if constexpr (Scales::kScaled) Simd::store_f(to.scales + segment * kLanes, Scales::scale(scales, scale));
      if constexpr (Scales::kOffset) Simd::store_f(to.offsets + segment * kLanes, Scales::offset(scales, scale));
    }
    if constexpr (Simd::kPairs) zip_steps<Simd>(out, P::kUnit / 4);
    out += P::kUnit / 4 * kVector;
    codes += P::kCodesStride;
    scales += P::kScalesStride;
  }
}

/// A block of columns for some activation rows.
struct TileArgs {
  const std::byte* act;  // first row of the tile
  const ActOffsets* at;
  int64_t column;  // first column of the block
  int64_t cols;    // columns of the block
  int bias_shift;  // log2 of the bias of the codes
  float* sums;     // [act][panel][lane], running over the blocks
};

/// sums += the product of kPanels unpacked panels with kActs activation rows over the block.
template <typename T, int kPanels, int kActs>
struct Tile {
  static constexpr int chain() {
    int steps = T::kSteps;
    while (steps > Simd::kChain<T::kMaxCode>) steps /= 2;
    return steps;
  }
  static constexpr int kChain = chain();  // divides kSteps, a power of two
  using Sums = Int[kPanels][kActs];
  using Totals = Float[kPanels][kActs];

  /// f(panel, act) of every accumulator, unrolled.
  template <typename F>
  TERN_INLINE static void each(F&& f) {
#pragma GCC unroll 8
    for (int n = 0; n < kActs; ++n) {
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) f(p, n);
    }
  }

  /// The integer sums of one segment.
  TERN_INLINE static void segment(const std::byte* const (&codes)[kPanels], const std::byte* q, int64_t stride,
                                  Sums& sum) {
    if constexpr (Simd::kPairs) return segment_of_pairs<Simd>(codes, q, stride, sum);
    each([&](int p, int n) TERN_INLINE { sum[p][n] = Simd::zero(); });
#pragma GCC unroll 1
    for (int first = 0; first < T::kSteps; first += kChain) {
      Simd::Part part[kPanels][kActs];
      each([&](int p, int n) TERN_INLINE { part[p][n] = Simd::begin(); });
      constexpr int kUnrolled = kChain < 4 ? kChain : 4;
      for (int i = first; i < first + kChain; i += kUnrolled) {
        unroll<kUnrolled>([&](auto j) TERN_INLINE {
          Int v[kPanels];
          for (int p = 0; p < kPanels; ++p) v[p] = Simd::load(codes[p] + (i + j.value) * kVector);
          each([&](int p, int n) TERN_INLINE {
            part[p][n] = Simd::dot<T::kMaxCode>(part[p][n], v[p], Simd::splat32(q + n * stride + 4 * (i + j.value)));
          });
        });
      }
      each([&](int p, int n) TERN_INLINE {
        const Int widened = Simd::end<T::kMaxCode>(part[p][n]);
        sum[p][n] = kChain == T::kSteps ? widened : Simd::add32(sum[p][n], widened);
      });
    }
  }

  /// The same in pairs of rows and of activations; an odd last activation is its own partner.
  template <typename S>
  TERN_INLINE static void segment_of_pairs(const std::byte* const (&codes)[kPanels], const std::byte* q, int64_t stride,
                                           Sums& sum) {
    constexpr int kPairs = (kActs + 1) / 2;
    Int part[kPanels][kPairs][2];
    for (auto& panel : part) {
      for (auto& pair : panel) pair[0] = pair[1] = S::zero();
    }
    for (int i = 0; i < T::kSteps; i += 2) {
      Int acts[kPairs];
      for (int n = 0; n < kPairs; ++n) {
        const std::byte* x = q + 2 * n * stride + 4 * i;
        acts[n] = S::act_pair(x, 2 * n + 1 < kActs ? x + stride : x);
      }
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        const Int rows[2] = {S::load(codes[p] + i * kVector), S::load(codes[p] + (i + 1) * kVector)};
#pragma GCC unroll 8
        for (int n = 0; n < kPairs; ++n) {
          for (int h = 0; h < 2; ++h) part[p][n][h] = S::dot_pair(part[p][n][h], rows[h], acts[n]);
        }
      }
    }
    each([&](int p, int n) TERN_INLINE {
      if (n % 2 == 0) S::unzip_pair(part[p][n / 2][0], part[p][n / 2][1]);
      sum[p][n] = part[p][n / 2][n % 2];
    });
  }

  /// total += scale * (the running sums), which start anew.
  template <typename Scale>
  TERN_INLINE static void flush(float* sums, Totals& total, Scale&& scale) {
    each([&](int p, int n) TERN_INLINE {
      float* to = sums + (n * kPanels + p) * kLanes;
      Simd::store_f(to, Simd::fma(total[p][n], Simd::splat_f(scale(n)), Simd::load_f(to)));
      total[p][n] = Simd::zero_f();
    });
  }

  static void run(const Unpacked<T>* w, const TileArgs& t) {
    const int64_t stride = t.at->row_bytes;
    const std::byte* q = t.act + t.column;
    const std::byte* scales = t.act + t.at->scales + (T::kRow ? 0 : t.column / T::kGroup * 4);
    const std::byte* act_sums = t.act + t.at->sums[T::kSumLevel] + t.column / T::kSegment * 4;
    const auto act_scale = [&](int n, int64_t group)
                               TERN_INLINE { return reinterpret_cast<const float*>(scales + n * stride)[group]; };
    Totals total;
    each([&](int p, int n) TERN_INLINE { total[p][n] = Simd::zero_f(); });
    for (int64_t s = 0; s < t.cols / T::kSegment; ++s) {
      Sums sum;
      const std::byte* codes[kPanels];
      for (int p = 0; p < kPanels; ++p) codes[p] = w[p].codes + s * T::kSteps * kVector;
      segment(codes, q + s * T::kSegment, stride, sum);
      each([&](int p, int n) TERN_INLINE {
        const int32_t* act_sum = reinterpret_cast<const int32_t*>(act_sums + n * stride) + s;
        const Float value = corrected<T::kBiased>(sum[p][n], act_sum, t.bias_shift);
        if constexpr (!T::kScaled) {
          total[p][n] = Simd::add(value, total[p][n]);
          return;
        }
        Float scale = Simd::load_f(w[p].scales + s * kLanes);
        if constexpr (T::kOneScale) scale = Simd::mul(scale, Simd::splat_f(act_scale(n, s)));
        total[p][n] = Simd::fma(value, scale, total[p][n]);
        if constexpr (T::kOffset) {
          float x = static_cast<float>(*act_sum);
          if constexpr (T::kOneScale) x *= act_scale(n, s);
          total[p][n] = Simd::fma(Simd::load_f(w[p].offsets + s * kLanes), Simd::splat_f(x), total[p][n]);
        }
      });
      if constexpr (!T::kOneScale && !T::kRow) {
        if ((s + 1) * T::kSegment % T::kGroup == 0) {
          flush(t.sums, total, [&](int n) TERN_INLINE { return act_scale(n, s * T::kSegment / T::kGroup); });
        }
      }
    }
    if constexpr (T::kOneScale || T::kRow) flush(t.sums, total, [](int) TERN_INLINE { return 1.0f; });
  }
};

/// All activation rows of a chunk, the widest tiles first.
template <typename T, int kPanels, int kActs>
void tiles(const Unpacked<T>* w, TileArgs t, int64_t acts) {
  for (; acts >= kActs; acts -= kActs) {
    Tile<T, kPanels, kActs>::run(w, t);
    t.act += kActs * t.at->row_bytes;
    t.sums += kActs * kPanels * kLanes;
  }
  if constexpr (kActs > 1) {
    if (acts > 0) tiles<T, kPanels, kActs - 1>(w, t, acts);
  }
}

/// Columns from `column` on of kPanels panels from `row` on; a panel past the end of the range is a copy of the first.
template <typename P, bool kUnbiased = false, int kPanels>
TERN_INLINE inline void unpack_panels(const MatmulArgs& a, int64_t row, int64_t column, int64_t cols,
                                      Unpacked<typename P::Tile> (&to)[kPanels]) {
  const Matrix& w = *a.w;
  const int64_t panel_bytes = P::panel_bytes(w.cols), scales_offset = P::scales_offset(w.cols);
  const int64_t panels = parts(a.row_end - row, kLanes), unit = column / P::kUnit;
  for (int p = 0; p < kPanels; ++p) {
    const std::byte* panel = w.data + (row / kLanes + (p < panels ? p : 0)) * panel_bytes;
    unpack<P, kUnbiased>(panel + unit * P::kCodesStride, panel + scales_offset + unit * P::kScalesStride,
                         cols / P::kUnit, to[p]);
  }
}

/// kTilePanels panels from `row` on for activation rows [first, first + acts). A panel past the end is not stored.
template <typename P>
void panels_product(const MatmulArgs& a, const ActOffsets& at, int64_t row, int64_t first, int64_t acts) {
  constexpr int kPanels = Simd::kTilePanels;
  const Matrix& w = *a.w;
  const int64_t panels = parts(a.row_end - row, kLanes) < kPanels ? parts(a.row_end - row, kLanes) : kPanels;
  alignas(64) float sums[kActChunk * kPanels * kLanes];
  for (int64_t i = 0; i < acts * kPanels * kLanes; ++i) sums[i] = 0;
  Unpacked<typename P::Tile> unpacked[kPanels];
  for (int64_t column = 0; column < w.cols; column += kPanelColumns) {
    const int64_t cols = w.cols - column < kPanelColumns ? w.cols - column : kPanelColumns;
    unpack_panels<P>(a, row, column, cols, unpacked);
    const TileArgs t{.act = a.act + first * at.row_bytes,
                     .at = &at,
                     .column = column,
                     .cols = cols,
                     .bias_shift = P::kBiasShift,
                     .sums = sums};
    tiles<typename P::Tile, kPanels, Simd::kTileActs>(unpacked, t, acts);
  }
  for (int64_t n = 0; n < acts; ++n) {
    const auto* scales = reinterpret_cast<const float*>(a.act + (first + n) * at.row_bytes + at.scales);
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t from = row + p * kLanes;
      store_rows(a.out + (first + n) * a.out_stride + from, a.row_end - from,
                 finished<P>(Simd::load_f(sums + (n * kPanels + p) * kLanes), w, scales));
    }
  }
}

/// product(row, first, acts) for all of `a`: kTilePanels panels from `row` on and a chunk of activation rows, a
/// multiple of `tile` but for the last.
template <typename F>
void each_chunk(const MatmulArgs& a, int64_t tile, F&& product) {
  const int64_t chunk = round_up(parts(a.act_rows, parts(a.act_rows, kActChunk)), tile);
  for (int64_t first = 0; first < a.act_rows; first += chunk) {
    const int64_t acts = a.act_rows - first < chunk ? a.act_rows - first : chunk;
    for (int64_t row = a.row_begin; row < a.row_end; row += Simd::kTilePanels * kLanes) product(row, first, acts);
  }
}

template <typename P>
void matmul_int(const MatmulArgs& a) noexcept {
  if (a.act_rows == 1) return matvec<P, 1>(a);
  if (a.act_rows <= 4) return matvec<P, 4>(a);
  if (a.act_rows <= kDirectRows) return matvec<P, Simd::kDirectActs>(a);
  const ActOffsets at(P::kRule, a.w->cols);
  each_chunk(a, Simd::kTileActs,
             [&](int64_t row, int64_t first, int64_t acts) { panels_product<P>(a, at, row, first, acts); });
}

}  // namespace
}  // namespace tern::cpu
