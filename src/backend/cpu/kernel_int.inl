// The integer products: panels of kLanes rows packed as (Codes, Scales), activations rounded by a rule.
//
// A unit's scales lie behind its codes where the pair fills whole cache lines, else behind all codes of the panel. One
// stream of memory is read faster than two: from memory with two threads, Q4_0 45 -> 64 GB/s, Q8_0 57 -> 70, Q6_K 54
// -> 68, Q4_K 53 -> 67, PTQ1_0 47 -> 53; but codes across line ends cost base-3 TQ2_0 3%.
//
// Here few activation rows: each unit is unpacked in registers and multiplied at once; four columns of the activation
// are broadcast to all lanes, so nothing is added across lanes. Many rows: kernel_tile.inl.
#pragma once
#include "backend/cpu/kernel_act.inl"
#include "backend/cpu/kernel_blocks.inl"

namespace tern::cpu {
namespace {

/// What the tiled product needs to know of a layout. Formats that agree in it share one body.
template <int kSegmentColumns, int64_t kGroupColumns, int kCodes, bool kWithBias, bool kWithScale, bool kWithOffset>
struct Shape {
  /// Columns of one integer sum: neither the weights' nor the activations' scale changes inside.
  static constexpr int kSegment = kSegmentColumns, kSteps = kSegment / 4;
  static constexpr int64_t kGroup = kGroupColumns;  // columns under one activation scale
  static constexpr bool kRow = kGroup > (int64_t{1} << 32);
  static constexpr bool kOneScale = kSegment == kGroup;
  static constexpr int kSumLevel = sum_level(kSegment);
  static constexpr int kMaxCode = kCodes;
  static constexpr bool kBiased = kWithBias, kScaled = kWithScale, kOffset = kWithOffset;
};

template <typename B, typename C, typename S, Activation R>
struct Product {
  using Block = B;
  using Codes = C;
  using Scales = S;
  static constexpr Activation kRule = R;
  static constexpr int kUnit = Codes::kUnit;
  static constexpr int64_t kGroup = group_of(R);
  static constexpr int kSegment = static_cast<int>(kGroup < Scales::kSegment ? kGroup : Scales::kSegment);
  /// The tile cares for the codes only where they limit the chain of byte products, or are signed bytes.
  static constexpr bool kAnyCode = Simd::kChain<Codes::kMaxCode> >= kSegment / 4 && Codes::kMaxCode <= 127;
  static constexpr int kTileCode = kAnyCode || !Simd::kSignedBytes ? 1 : Codes::kMaxCode;
  using Tile = Shape<kSegment, kGroup, kTileCode, Codes::kBias != 0, Scales::kScaled, Scales::kOffset>;
  static constexpr bool kRow = Tile::kRow;
  /// One integer sum of all columns, where it has the range: exact in f32 as well up to 2^24, which the codes of 66,000
  /// columns do not reach.
  static constexpr bool kWhole =
      kRow && !Scales::kScaled && !Scales::kOffset && Simd::kChain<Codes::kMaxCode> >= (1 << 20);
  /// The products of its quanta are a loop where it would be 18 KB of code: fast at some addresses, and half as fast at
  /// others, where it does not fit into the cache of decoded instructions.
  static constexpr bool kRolled = kWhole && requires { Codes::kAlike; };
  static constexpr int kSegments = kUnit / kSegment, kSegmentSteps = kSegment / 4;
  static constexpr int kBias = Codes::kBias, kBiasShift = kBias == 0 ? 0 : __builtin_ctz(kBias);
  static constexpr int kMaxCode = Codes::kMaxCode;
  static_assert(kUnit % kSegment == 0 && (kRow || kUnit % kGroup == 0) && (kBias & (kBias - 1)) == 0);
  /// Independent partial sums of a segment: enough to hide the latency of a byte product, and within the Part's range.
  static constexpr int kForLatency = kSegmentSteps >= 32 ? 8 : kSegmentSteps >= 16 ? 4 : kSegmentSteps >= 8 ? 2 : 1;
  static constexpr int kForRange = (kSegmentSteps + Simd::kChain<kMaxCode> - 1) / Simd::kChain<kMaxCode>;
  /// Raw codes where the divisions are far fewer than the shifts they save.
  static constexpr bool kRaw = Codes::kHasRaw && !Simd::kSignedBytes && kSegmentSteps >= 4 * Codes::kSteps;
  static constexpr int kWays = kRaw ? Codes::kSteps : kForLatency > kForRange ? kForLatency : kForRange;

  static constexpr bool kInterleaved = (Codes::kUnitBytes + Scales::kUnitBytes) % 64 == 0;
  static constexpr int kCodesStride = Codes::kUnitBytes + (kInterleaved ? Scales::kUnitBytes : 0);
  static constexpr int kScalesStride = kInterleaved ? kCodesStride : Scales::kUnitBytes;

  static int64_t panel_bytes(int64_t cols) {
    return round_up(cols / kUnit * (Codes::kUnitBytes + Scales::kUnitBytes), 64);
  }
  /// Of the first unit, from the start of the panel.
  static int64_t scales_offset(int64_t cols) { return (kInterleaved ? 1 : cols / kUnit) * Codes::kUnitBytes; }
  static bool supports(int64_t, int64_t cols) noexcept { return cols % kUnit == 0; }
  static size_t packed_bytes(int64_t rows, int64_t cols) noexcept {
    return static_cast<size_t>(parts(rows, kLanes) * panel_bytes(cols));
  }
};

template <typename P>
void pack_panel(const std::byte* rows_bytes, int64_t rows, int64_t cols, std::byte* panel) {
  using Block = typename P::Block;
  constexpr int kBlocks = P::kUnit / Block::kElements;
  const int64_t row_bytes = cols / Block::kElements * static_cast<int64_t>(sizeof(Block));
  std::byte* scales = panel + P::scales_offset(cols);
  for (int64_t u = 0; u < cols / P::kUnit; ++u) {
    for (int r = 0; r < kLanes; ++r) {
      UnitRow unit;
      if (r < rows) {
        const auto* block = reinterpret_cast<const Block*>(rows_bytes + r * row_bytes) + u * kBlocks;
        for (int i = 0; i < kBlocks; ++i) split(block[i], unit, i);
      } else {
        unit = {};  // lanes past the last row: never stored
      }
      P::Codes::put(unit.codes, panel + u * P::kCodesStride, r);
      P::Scales::put(unit, scales + u * P::kScalesStride, r);
    }
  }
}

template <typename P>
void pack(const std::byte* tensor, int64_t rows, int64_t cols, std::byte* packed, int64_t row_begin,
          int64_t row_end) noexcept {
  const int64_t row_bytes = cols / P::Block::kElements * static_cast<int64_t>(sizeof(typename P::Block));
  for (int64_t row = row_begin; row < row_end; row += kLanes) {
    pack_panel<P>(tensor + row * row_bytes, rows - row < kLanes ? rows - row : kLanes, cols,
                  packed + row / kLanes * P::panel_bytes(cols));
  }
}

template <typename P>
bool holds_ternary(const std::byte* tensor, int64_t rows, int64_t cols) noexcept {
  const auto* block = reinterpret_cast<const typename P::Block*>(tensor);
  for (int64_t i = 0; i < rows * cols / P::Block::kElements; ++i) {
    if (has_code_3(block[i])) return false;
  }
  return true;
}

/// A row of activations from some column on.
template <typename P>
struct ActRow {
  const std::byte* q = nullptr;
  const float* scales = nullptr;
  const int32_t* sums = nullptr;

  ActRow() = default;
  ActRow(const std::byte* row, const ActOffsets& at)
      : q(row),
        scales(reinterpret_cast<const float*>(row + at.scales)),
        sums(reinterpret_cast<const int32_t*>(row + at.sums[P::Tile::kSumLevel])) {}
};

/// The sum of a segment as weights see it: biased codes corrected by the sum of its activations.
template <bool kBiased>
TERN_INLINE inline Float corrected(Int sum, const int32_t* act_sum, int bias_shift) {
  if constexpr (kBiased) sum = Simd::sub32(sum, Simd::shift_left(Simd::splat32(act_sum), bias_shift));
  return Simd::to_float(sum);
}

/// The scale by which a finished group enters the sum of a row; kI8Row divides once at the end instead.
template <typename P>
TERN_INLINE inline Float group_scale_of(const ActRow<P>& x, int64_t group) {
  return Simd::splat_f(x.scales[group]);
}

template <typename P>
TERN_INLINE inline Float finished(Float total, const Matrix& w, const float* scales) {
  if constexpr (P::kRow) total = Simd::div(total, Simd::splat_f(scales[0]));
  return Simd::mul(total, Simd::splat_f(w.tensor_scale));
}

inline void store_rows(float* out, int64_t rows, Float v) {
  if (rows >= kLanes) return Simd::store_f(out, v);
  float lanes[kLanes];
  Simd::store_f(lanes, v);
  for (int64_t r = 0; r < rows; ++r) out[r] = lanes[r];
}

/// Bytes ahead of the codes being multiplied that are asked for: at 36 GB/s a thread has 5 KB on their way. Scales with
/// a stream of their own are asked for one panel ahead; without that each panel begins with misses that nothing
/// predicts (PTQ1_0 from memory: 8 GB/s without, 27 with, one thread beside a busy neighbour).
constexpr int kPrefetch = 6144;

/// Where one unit of a panel lies.
struct UnitPlace {
  const std::byte *codes, *scales;
};

/// Sums of kActs rows with kPanels panels.
template <typename P, int kPanels, int kActs>
struct DirectSums {
  // Several rows are independent sums enough, and share the shifts.
  static constexpr bool kRaw = kActs == 1 && P::kRaw;
  static constexpr int kWays = kActs == 1 ? P::kWays : P::kForRange;
  Simd::Part part[kPanels][kActs][kWays];  // of a segment, or of all columns
  Float total[kPanels][kActs];

  /// f(panel, act) of every sum, unrolled.
  template <typename F>
  TERN_INLINE static void each(F&& f) {
#pragma GCC unroll 8
    for (int n = 0; n < kActs; ++n) {
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) f(p, n);
    }
  }
  TERN_INLINE void begin(int p, int n) {
#pragma GCC unroll 8
    for (int i = 0; i < kWays; ++i) part[p][n][i] = Simd::begin();
  }
  /// What the parts amount to.
  TERN_INLINE Int end(int p, int n) const {
    Int sum = Simd::end<P::kMaxCode>(part[p][n][0]);
    unroll<kWays - 1>([&](auto i) TERN_INLINE {
      Int other = Simd::end<P::kMaxCode>(part[p][n][i.value + 1]);
      if constexpr (kRaw) other = divide_exactly<P::Codes::kWeight[decltype(i)::value + 1]>(other);
      sum = Simd::add32(sum, other);
    });
    return sum;
  }
};

/// sums += the products of quantum Q behind `codes` with the columns behind `q`.
template <typename P, int Q, int kPanels, int kActs>
TERN_INLINE inline void quantum_product(const UnitPlace (&w)[kPanels], const std::byte* const (&q)[kActs],
                                        int64_t skipped, DirectSums<P, kPanels, kActs>& sums) {
  using Codes = typename P::Codes;
  Int codes[kPanels][Codes::kSteps];
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) Codes::template quantum<Q>(w[p].codes + skipped * kVector, codes[p]);
  unroll<Codes::kSteps>([&](auto d) TERN_INLINE {
    constexpr int kStep = Q * Codes::kSteps + decltype(d)::value;
    if constexpr (kStep < P::kUnit / 4) {
      sums.each([&](int p, int n) TERN_INLINE {
        auto& v = sums.part[p][n][0];
        v = Simd::dot<P::kMaxCode>(v, codes[p][d.value], Simd::splat32(q[n] + 4 * (skipped * Codes::kSteps + kStep)));
      });
    }
  });
}

/// sums += the products of unit u of the panels with the rows. The order of additions depends neither on kPanels nor on
/// kActs: a row gets the same bits whoever shares its step.
template <typename P, int kPanels, int kActs>
TERN_INLINE inline void unit_product(const UnitPlace (&w)[kPanels], const ActRow<P> (&x)[kActs], int64_t u,
                                     DirectSums<P, kPanels, kActs>& sums) {
  using Codes = typename P::Codes;
  using Scales = typename P::Scales;
  using Sums = DirectSums<P, kPanels, kActs>;
  Float group[kPanels][kActs];
  const std::byte* q[kActs];
#pragma GCC unroll 8
  for (int n = 0; n < kActs; ++n) q[n] = x[n].q + u * P::kUnit;
  if constexpr (P::kRolled && kActs > 1) {
#pragma GCC unroll 1
    for (int i = 0; i + 1 < Codes::kQuanta; ++i) quantum_product<P, 0>(w, q, i, sums);
    return quantum_product<P, Codes::kQuanta - 1>(w, q, 0, sums);
  }
  if constexpr (!P::kWhole) {
    Sums::each([&](int p, int n) TERN_INLINE {
      sums.begin(p, n);
      group[p][n] = Simd::zero_f();
    });
  }
  unroll<Codes::kQuanta>([&](auto quantum) TERN_INLINE {
    Int codes[kPanels][Codes::kSteps];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (Sums::kRaw) {
        Codes::template raw<quantum.value>(w[p].codes, codes[p]);
      } else {
        Codes::template quantum<quantum.value>(w[p].codes, codes[p]);
      }
    }
    unroll<Codes::kSteps>([&](auto d) TERN_INLINE {
      constexpr int kStep = decltype(quantum)::value * Codes::kSteps + decltype(d)::value;
      if constexpr (kStep < P::kUnit / 4) {
        Sums::each([&](int p, int n) TERN_INLINE {
          auto& v = sums.part[p][n][kStep % Sums::kWays];  // of raw codes: one sum a step of the quantum
          v = Simd::dot<P::kMaxCode>(v, codes[p][d.value], Simd::splat32(q[n] + 4 * kStep));
        });
        if constexpr (!P::kWhole && (kStep + 1) % P::kSegmentSteps == 0) {
          constexpr int kSeg = kStep / P::kSegmentSteps;
          constexpr int kScale = kSeg * P::kSegment / Scales::kSegment;
          Sums::each([&](int p, int n) TERN_INLINE {
            const int32_t* act_sum = x[n].sums + u * P::kSegments + kSeg;
            const Float value = corrected<P::kBias != 0>(sums.end(p, n), act_sum, P::kBiasShift);
            sums.begin(p, n);
            Float& g = group[p][n];
            if constexpr (Scales::kScaled) {
              g = Simd::fma(value, Scales::scale(w[p].scales, kScale), g);
            } else {
              g = Simd::add(value, g);
            }
            if constexpr (Scales::kOffset) {
              g = Simd::fma(Scales::offset(w[p].scales, kScale), Simd::splat_f(static_cast<float>(*act_sum)), g);
            }
            if constexpr (!P::kRow && (kStep + 1) * 4 % P::kGroup == 0) {
              constexpr int kGroup = static_cast<int>(kStep * 4 / P::kGroup);
              Float& total = sums.total[p][n];
              total = Simd::fma(g, group_scale_of<P>(x[n], u * (P::kUnit / P::kGroup) + kGroup), total);
              g = Simd::zero_f();
            }
          });
        }
      }
    });
  });
  if constexpr (P::kRow && !P::kWhole) {
    Sums::each([&](int p, int n) TERN_INLINE { sums.total[p][n] = Simd::add(sums.total[p][n], group[p][n]); });
  }
}

/// kPanels panels from `row` on times kActs activation rows from `first` on; those missing at the end are copies of
/// the first and not stored.
template <typename P, int kPanels, int kActs>
void direct_product(const MatmulArgs& a, const ActOffsets& at, int64_t row, int64_t first) {
  const Matrix& w = *a.w;
  const int64_t units = w.cols / P::kUnit, panel_bytes = P::panel_bytes(w.cols);
  const int64_t acts = a.act_rows - first < kActs ? a.act_rows - first : kActs;
  ActRow<P> x[kActs];
#pragma GCC unroll 8
  for (int n = 0; n < kActs; ++n) x[n] = ActRow<P>(a.act + (first + (n < acts ? n : 0)) * at.row_bytes, at);
  const std::byte* codes = w.data + row / kLanes * panel_bytes;
  const std::byte* scales = codes + P::scales_offset(w.cols);
  // Of several panels only as near as the L2 cache: on their way to the first they hold up what is multiplied meanwhile
  // (two panels of I2_S from memory times 8 rows, two threads: 34 us so, 20 us thus, and 24 us one by one).
  constexpr int kLocality = kPanels > 1 ? 2 : 3;
  const std::byte* ahead =
      codes + (kPanels * panel_bytes > kPrefetch && kPanels > 1 ? kPanels * panel_bytes : kPrefetch);
  DirectSums<P, kPanels, kActs> sums;
  using Sums = decltype(sums);
  Sums::each([&](int p, int n) TERN_INLINE {
    sums.begin(p, n);
    sums.total[p][n] = Simd::zero_f();
  });
  for (int64_t u = 0; u < units; ++u) {
    UnitPlace place[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      place[p] = {codes + p * panel_bytes + u * P::kCodesStride, scales + p * panel_bytes + u * P::kScalesStride};
    for (int i = 0; i < kPanels * P::kCodesStride; i += 64) __builtin_prefetch(ahead + i, 0, kLocality);
    ahead += kPanels * P::kCodesStride;
    if constexpr (!P::kInterleaved) {
      for (const UnitPlace& p : place)
        for (int i = 0; i < P::kScalesStride; i += 64) Simd::prefetch(p.scales + panel_bytes + i);
    }
    unit_product<P, kPanels, kActs>(place, x, u, sums);
  }
  if constexpr (P::kWhole) {
    int32_t bias[kActs] = {};
    for (int64_t i = 0; i < units * P::kSegments; ++i)
      for (int n = 0; n < kActs; ++n) bias[n] += x[n].sums[i];
    Sums::each([&](int p, int n) TERN_INLINE {
      sums.total[p][n] = corrected<P::kBias != 0>(sums.end(p, n), bias + n, P::kBiasShift);
    });
  }
#pragma GCC unroll 8
  for (int n = 0; n < kActs; ++n) {
    if (n >= acts) break;
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      const int64_t to = row + p * kLanes;
      store_rows(a.out + (first + n) * a.out_stride + to, a.row_end - to,
                 finished<P>(sums.total[p][n], w, x[n].scales));
    }
  }
}

/// Several panels share the broadcasts of the activations and hide the latency of a byte product, where all sums stay
/// in registers.
template <typename P, int kActs>
void matvec(const MatmulArgs& a) {
  constexpr int kPanels = kActs > 1 && P::kRolled ? Simd::kDirectPanels : 1;
  const ActOffsets at(P::kRule, a.w->cols);
  int64_t row = a.row_begin;
  for (; row + (kPanels - 1) * kLanes < a.row_end; row += kPanels * kLanes)
    for (int64_t first = 0; first < a.act_rows; first += kActs) direct_product<P, kPanels, kActs>(a, at, row, first);
  if constexpr (kPanels > 1) {
    for (; row < a.row_end; row += kLanes)
      for (int64_t first = 0; first < a.act_rows; first += kActs) direct_product<P, 1, kActs>(a, at, row, first);
  }
}

}  // namespace
}  // namespace tern::cpu
