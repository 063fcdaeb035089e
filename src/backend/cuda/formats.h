// How weights lie in device memory: one layout a format, made of a plane of codes and a plane of scales.
//
// A matrix is cut into tiles of 16 rows, a tile into units of kUnit columns; a unit is one record of kUnitBytes, and
// the records of a tile follow each other. Inside a unit the codes lie as the lanes of a warp want them (mma.h): 16
// bytes a lane and load, coalesced, each byte read once. Rows and columns that pad a tile or a unit hold zeros.
//
// A layout multiplies code by code in int8. `codes` gives the operands of one k-step, times kCodeScale, a power of two
// that is applied to the finished sum: biased codes are made signed by flipping the top bit of their byte, which costs
// nothing, where shifting them down and subtracting the bias would not.
#pragma once
#include <cstdint>
#include <type_traits>

#include "backend/cuda/mma.h"
#include "quant/iq4_nl.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"

namespace tern::cuda {

/// How the integer sums of a fold (kFold columns) become floats.
enum class Fold : uint8_t {
  kFloat,  // y += scale of the group * scale of the activations * sum, fold by fold
  kSuper,  // integer scales first: y += d * scale of the activations * (sum over 128 columns of sub * sum), minus
           // minima
  kWhole,  // one scale a tensor and one a row: integers to the end
};

template <int kBegin, int kEnd, typename F>
__device__ __forceinline__ void unrolled(F f) {
  if constexpr (kBegin < kEnd) {
    f(std::integral_constant<int, kBegin>{});
    unrolled<kBegin + 1, kEnd>(f);
  }
}

__device__ __forceinline__ float half_low(uint32_t pair) {
  float f;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(pair));
  return f;
}
__device__ __forceinline__ float half_high(uint32_t pair) {
  float f;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(pair));
  return f;
}
/// From global or shared memory, whichever the compiler sees.
template <typename T>
__device__ __forceinline__ T load_word(const uint8_t* p) {
  return *reinterpret_cast<const T*>(p);
}

/// Row g (0) or g + 8 (1) of a pair.
template <int kHalf>
__device__ __forceinline__ float half_of(uint32_t pair) {
  return kHalf == 0 ? half_low(pair) : half_high(pair);
}

/// The weight behind byte `byte` of operand `reg` (0..3) of k-step `step`, as lane `lane` holds it.
struct Place {
  int row, col;  // in the tile, in the unit
};
__host__ __device__ constexpr Place place(int lane, int step, int reg, int byte) {
  return {lane / 4 + reg % 2 * 8, step * 32 + reg / 2 * 16 + lane % 4 * 4 + byte};
}

// ---- Planes of codes ----

/// Words of a lane, loaded 16 (or 8) bytes at a time. word_of: which word of which lane the i-th word of memory is.
template <int kWords>
struct LaneWords {
  static constexpr int kBytes = kWords * 128;
  uint32_t w[kWords];
  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    if constexpr (kWords % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i) {
        const uint4 v = load_word<uint4>(p + i * 512 + lane * 16);
        w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
      }
    } else {
      static_assert(kWords == 2);
      const uint2 v = load_word<uint2>(p + lane * 8);
      w[0] = v.x, w[1] = v.y;
    }
  }
  struct At {
    int lane, word;
  };
  __device__ static At at(int i) {
    if constexpr (kWords % 4 == 0) return {i % 128 / 4, i / 128 * 4 + i % 4};
    return {i / 2, i % 2};
  }
};

/// Codes of kBits: operand r of k-step s lies in the bytes of one word, kBits from bit shift(s, r) of each.
template <int kBits, int kUnit>
struct BitPlane : LaneWords<kUnit * kBits / 64> {
  using Words = LaneWords<kUnit * kBits / 64>;
  static constexpr int word(int s, int r) { return (4 * s + r) * kBits / 8; }
  static constexpr int shift(int s, int r) { return (4 * s + r) * kBits % 8; }
  /// Operand kR of step kS with each code moved to bit kTo of its byte; other bits are left over.
  template <int kS, int kR, int kTo>
  __device__ __forceinline__ uint32_t moved() const {
    constexpr int kFrom = shift(kS, kR);
    const uint32_t v = this->w[word(kS, kR)];
    return kFrom >= kTo ? v >> (kFrom - kTo) : v << (kTo - kFrom);
  }
  /// Word i of the unit's plane, of codes code(row, col).
  template <typename Code>
  __device__ static uint32_t pack(int i, Code code) {
    const auto at = Words::at(i);
    uint32_t v = 0;
    for (int c = at.word * 8 / kBits; c < (at.word + 1) * 8 / kBits; ++c) {
      for (int b = 0; b < 4; ++b) {
        const Place p = place(at.lane, c / 4, c % 4, b);
        v |= static_cast<uint32_t>(code(p.row, p.col)) << (8 * b + c * kBits % 8);
      }
    }
    return v;
  }
};

/// Two's complement of minus the weight in two bits: -1, 0, 1 and 2 all fit, and no sum of activations is needed. The
/// four words of a chunk hold k-steps 0 and 1 of row g, of row g + 8, then k-steps 2 and 3 of these: as they are, they
/// are also the operand of products of bits (multiply_bits).
template <int kUnit>
struct TernaryCodes : LaneWords<kUnit / 32> {
  using Words = LaneWords<kUnit / 32>;
  static constexpr float kCodeScale = -1.0f / 64;
  static constexpr int kWholeShift = 6;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) {
      const uint32_t v = this->w[kS / 4 * 4 + kS % 4 / 2 * 2 + r % 2];
      a[r] = (v << (6 - 2 * (kS % 2 * 2 + r / 2))) & 0xc0c0c0c0u;
    });
  }
  template <typename Code>
  __device__ static uint32_t pack(int i, Code code) {
    const auto at = Words::at(i);
    uint32_t v = 0;
    for (int n = 0; n < 16; ++n) {
      const int j = n / 4;  // of the four operands in a word
      const Place p = place(at.lane, at.word / 4 * 4 + at.word % 4 / 2 * 2 + j / 2, j % 2 * 2 + at.word % 2, n % 4);
      v |= static_cast<uint32_t>(code(p.row, p.col)) << (8 * (n % 4) + 2 * j);
    }
    return v;
  }
};

struct SignCodes : BitPlane<1, 128> {  // set bit: +1, clear bit: -1
  static constexpr float kCodeScale = -1.0f / 64;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = (this->template moved<kS, r, 7>() & 0x80808080u) | 0x40404040u; });
  }
};

template <int kUnit>
struct Unsigned2Codes : BitPlane<2, kUnit> {
  static constexpr float kCodeScale = 1;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = this->template moved<kS, r, 0>() & 0x03030303u; });
  }
};

struct Signed4Codes : BitPlane<4, 128> {  // code - 8
  static constexpr float kCodeScale = 1.0f / 16;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = (this->template moved<kS, r, 4>() & 0xf0f0f0f0u) ^ 0x80808080u; });
  }
};

template <int kUnit>
struct Unsigned4Codes : BitPlane<4, kUnit> {
  static constexpr float kCodeScale = 1;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = this->template moved<kS, r, 0>() & 0x0f0f0f0fu; });
  }
};

struct Signed8Codes : BitPlane<8, 128> {
  static constexpr float kCodeScale = 1;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = this->w[4 * kS + r]; });
  }
};

/// Codes of kLow + kHigh bits in two planes.
template <int kLow, int kHigh, int kUnit>
struct TwoPlanes {
  using Low = BitPlane<kLow, kUnit>;
  using High = BitPlane<kHigh, kUnit>;
  static constexpr int kBytes = Low::kBytes + High::kBytes;
  Low low;
  High high;
  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    low.load(p, lane);
    high.load(p + Low::kBytes, lane);
  }
  template <typename Code>
  __device__ static uint32_t pack(int i, Code code) {
    constexpr int kLowWords = Low::kBytes / 4;
    if (i < kLowWords) return Low::pack(i, [&](int r, int c) { return code(r, c) & ((1 << kLow) - 1); });
    return High::pack(i - kLowWords, [&](int r, int c) { return code(r, c) >> kLow; });
  }
  /// Operand kR of step kS with its codes at bit kTo.
  template <int kS, int kR, int kTo>
  __device__ __forceinline__ uint32_t joined() const {
    constexpr uint32_t kLowMask = ((1u << kLow) - 1) * 0x01010101u << kTo;
    constexpr uint32_t kHighMask = ((1u << kHigh) - 1) * 0x01010101u << (kTo + kLow);
    return (low.template moved<kS, kR, kTo>() & kLowMask) | (high.template moved<kS, kR, kTo + kLow>() & kHighMask);
  }
};
/// code - 2^(bits - 1)
template <int kLow, int kHigh, int kUnit>
struct SignedTwoPlanes : TwoPlanes<kLow, kHigh, kUnit> {
  static constexpr int kTop = 8 - kLow - kHigh;
  static constexpr float kCodeScale = 1.0f / (1 << kTop);
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = this->template joined<kS, r, kTop>() ^ 0x80808080u; });
  }
};
template <int kLow, int kHigh, int kUnit>
struct UnsignedTwoPlanes : TwoPlanes<kLow, kHigh, kUnit> {
  static constexpr float kCodeScale = 1;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    unrolled<0, 4>([&](auto r) { a[r] = this->template joined<kS, r, 0>(); });
  }
};

/// Four bytes of an int8 table as a word.
constexpr uint32_t table_word(const int8_t* values, int i) {
  uint32_t v = 0;
  for (int b = 0; b < 4; ++b) v |= static_cast<uint32_t>(static_cast<uint8_t>(values[4 * i + b])) << (8 * b);
  return v;
}
struct Iq4Table {
  static constexpr uint32_t word(int i) { return table_word(quant::kIq4Values, i); }
};
struct E2m1Table {
  static constexpr uint32_t word(int i) { return table_word(quant::kE2m1Doubled, i); }
};
/// Indices into a table of sixteen int8: operand 2w in the low nibbles of word w, 2w + 1 in the high half, in order of
/// the bytes, as byte_perm takes them.
template <typename Table, int kUnit>
struct TableCodes : LaneWords<kUnit / 16> {
  using Words = LaneWords<kUnit / 16>;
  static constexpr float kCodeScale = 1;
  template <int kS>
  __device__ __forceinline__ void codes(uint32_t (&a)[4]) const {
    constexpr uint32_t k0 = Table::word(0), k1 = Table::word(1), k2 = Table::word(2), k3 = Table::word(3);
    unrolled<0, 2>([&](auto i) {
      const uint32_t nibbles = this->w[2 * kS + i];
      const uint32_t low = nibbles & 0x77777777u, which = ((nibbles >> 1) & 0x44444444u) | 0x32103210u;
      unrolled<0, 2>([&](auto h) {
        const uint32_t sel = low >> (16 * h);
        a[2 * i + h] = __byte_perm(__byte_perm(k0, k1, sel), __byte_perm(k2, k3, sel), which >> (16 * h));
      });
    });
  }
  template <typename Code>
  __device__ static uint32_t pack(int i, Code code) {
    const auto at = Words::at(i);
    uint32_t v = 0;
    for (int n = 0; n < 8; ++n) {
      const int c = 2 * at.word + n / 4;
      const Place p = place(at.lane, c / 4, c % 4, n % 4);
      v |= static_cast<uint32_t>(code(p.row, p.col)) << (4 * n);
    }
    return v;
  }
};

// ---- Planes of scales ----
// pack(i, source): word i of the plane from source.scale(row, fold), .minimum, .sub, .sub_minimum (row in the tile,
// fold in the unit; zeros outside of the matrix).

template <typename Tile>
__device__ uint32_t scale_pair(const Tile& s, int g, int fold) {
  return s.scale(g, fold) | static_cast<uint32_t>(s.scale(g + 8, fold)) << 16;
}
template <typename Tile>
__device__ uint32_t minimum_pair(const Tile& s, int g, int fold) {
  return s.minimum(g, fold) | static_cast<uint32_t>(s.minimum(g + 8, fold)) << 16;
}

/// Words of lane / 4, kWords together.
template <int kWords>
__device__ __forceinline__ void load_row(uint32_t (&w)[kWords], const uint8_t* p) {
  if constexpr (kWords == 1) {
    w[0] = load_word<uint32_t>(p);
  } else if constexpr (kWords == 2) {
    const uint2 v = load_word<uint2>(p);
    w[0] = v.x, w[1] = v.y;
  } else {
    static_assert(kWords == 4);
    const uint4 v = load_word<uint4>(p);
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
  }
}

struct NoScales {  // I2_S
  static constexpr Fold kFold = Fold::kWhole;
  static constexpr int kFoldCols = 128, kBytes = 0;
  static constexpr bool kMinima = false;
  __device__ __forceinline__ void load(const uint8_t*, int) {}
  template <int kJ, int kHalf>
  __device__ __forceinline__ float scale() const {
    return 1.0f;
  }
  template <typename Tile>
  __device__ static uint32_t pack(int, const Tile&) {
    return 0;
  }
};

/// An f16 scale every kRepeat folds: word j of lane / 4 = rows g and g + 8.
template <int kCols, int kUnit, int kRepeat = 1>
struct HalfScales {
  static constexpr Fold kFold = Fold::kFloat;
  static constexpr int kFoldCols = kCols, kWords = kUnit / kCols / kRepeat, kBytes = kWords * 32;
  static constexpr bool kMinima = false;
  uint32_t w[kWords];
  __device__ __forceinline__ void load(const uint8_t* p, int lane) { load_row(w, p + lane / 4 * kWords * 4); }
  template <int kJ, int kHalf>
  __device__ __forceinline__ float scale() const {
    return half_of<kHalf>(w[kJ / kRepeat]);
  }
  template <typename Tile>
  __device__ static uint32_t pack(int i, const Tile& s) {
    return scale_pair(s, i / kWords, i % kWords * kRepeat);
  }
};

/// f16 scales and minima of 32 columns.
struct HalfScalesMinima {
  static constexpr Fold kFold = Fold::kFloat;
  static constexpr int kFoldCols = 32, kBytes = 256;
  static constexpr bool kMinima = true;
  uint32_t d[4], m[4];
  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    load_row(d, p + lane / 4 * 16);
    load_row(m, p + 128 + lane / 4 * 16);
  }
  template <int kJ, int kHalf>
  __device__ __forceinline__ float scale() const {
    return half_of<kHalf>(d[kJ]);
  }
  template <int kJ, int kHalf>
  __device__ __forceinline__ float minimum() const {
    return half_of<kHalf>(m[kJ]);
  }
  template <typename Tile>
  __device__ static uint32_t pack(int i, const Tile& s) {
    return i < 32 ? scale_pair(s, i / 4, i % 4) : minimum_pair(s, (i - 32) / 4, i % 4);
  }
};

struct E8m0 {
  __device__ static float value(uint32_t e) { return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23); }
};
struct Ue4m3 {
  __device__ static float value(uint32_t x) { return quant::ue4m3_half(static_cast<uint8_t>(x)); }
};
/// A byte a fold, the folds of a row together.
template <typename Kind, int kCols>
struct ByteScales {
  static constexpr Fold kFold = Fold::kFloat;
  static constexpr int kFoldCols = kCols, kWords = 128 / kCols / 4, kBytes = kWords * 64;
  static constexpr bool kMinima = false;
  uint32_t w[2][kWords];
  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    load_row(w[0], p + lane / 4 * kWords * 4);
    load_row(w[1], p + (lane / 4 + 8) * kWords * 4);
  }
  template <int kJ, int kHalf>
  __device__ __forceinline__ float scale() const {
    return Kind::value((w[kHalf][kJ / 4] >> (kJ % 4 * 8)) & 255u);
  }
  template <typename Tile>
  __device__ static uint32_t pack(int i, const Tile& s) {
    uint32_t v = 0;
    for (int b = 0; b < 4; ++b) v |= static_cast<uint32_t>(s.sub(i / kWords, i % kWords * 4 + b)) << (8 * b);
    return v;
  }
};

/// 256 columns under an f16 (and one for the minima), with an integer scale a fold.
enum class Subs : uint8_t {
  kBytes8,    // eight int8 a row
  kBytes16,   // sixteen int8 a row
  kWithMin8,  // eight u8 scales, then eight u8 minima a row
  kNibbles,   // sixteen bytes a row: scale in the low nibble, minimum in the high one
};
template <Subs kSubs>
struct SuperScales {
  static constexpr Fold kFold = Fold::kSuper;
  static constexpr bool kMinima = kSubs == Subs::kWithMin8 || kSubs == Subs::kNibbles;
  static constexpr int kFoldCols = kSubs == Subs::kBytes16 || kSubs == Subs::kNibbles ? 16 : 32;
  static constexpr int kWords = kSubs == Subs::kBytes8 ? 2 : 4, kSuper = kMinima ? 2 : 1;
  static constexpr int kBytes = kWords * 64 + kSuper * 32;
  uint32_t w[2][kWords], d[kSuper];
  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    load_row(w[0], p + lane / 4 * kWords * 4);
    load_row(w[1], p + (lane / 4 + 8) * kWords * 4);
    load_row(d, p + kWords * 64 + lane / 4 * kSuper * 4);
  }
  template <int kHalf>
  __device__ __forceinline__ float super() const {
    return half_of<kHalf>(d[0]);
  }
  template <int kHalf>
  __device__ __forceinline__ float super_minimum() const {
    return half_of<kHalf>(d[kSuper - 1]);
  }
  template <int kJ, int kHalf>
  __device__ __forceinline__ int sub() const {
    const uint32_t word = w[kHalf][kJ / 4];
    if constexpr (kSubs == Subs::kNibbles) return static_cast<int>((word >> (kJ % 4 * 8)) & 15u);
    if constexpr (kSubs == Subs::kWithMin8) return static_cast<int>((word >> (kJ % 4 * 8)) & 255u);
    return static_cast<int>(word << (24 - kJ % 4 * 8)) >> 24;
  }
  /// The minimum of fold kJ in all four bytes: an operand whose product with activations is minimum * their sum.
  template <int kJ, int kHalf>
  __device__ __forceinline__ uint32_t minimum_operand() const {
    if constexpr (kSubs == Subs::kNibbles) {
      return __byte_perm((w[kHalf][kJ / 4] >> 4) & 0x0f0f0f0fu, 0, kJ % 4 * 0x1111);
    } else {
      return __byte_perm(w[kHalf][2 + kJ / 4], 0, kJ % 4 * 0x1111);
    }
  }
  template <int kJ, int kHalf>
  __device__ __forceinline__ float scale() const {
    return __fmul_rn(super<kHalf>(), static_cast<float>(sub<kJ, kHalf>()));
  }
  template <int kJ, int kHalf>
  __device__ __forceinline__ float minimum() const {
    return -__fmul_rn(super_minimum<kHalf>(), static_cast<float>(minimum_operand<kJ, kHalf>() & 255u));
  }
  template <typename Tile>
  __device__ static uint32_t pack(int i, const Tile& s) {
    if (i >= kWords * 16) {
      i -= kWords * 16;
      return i % kSuper == 0 ? scale_pair(s, i / kSuper, 0) : minimum_pair(s, i / kSuper, 0);
    }
    const int row = i / kWords, first = i % kWords * 4;
    uint32_t v = 0;
    for (int b = 0; b < 4; ++b) {
      const int j = first + b;
      const bool minimum = kSubs == Subs::kWithMin8 && j >= 8;
      v |= static_cast<uint32_t>(minimum ? s.sub_minimum(row, j - 8) : s.sub(row, j)) << (8 * b);
    }
    return v;
  }
};

// ---- Layouts ----

template <typename CodesPlane, typename ScalesPlane, int kCols, bool kRule32>
struct Layout {
  using Codes = CodesPlane;
  using Scales = ScalesPlane;
  static constexpr int kUnit = kCols;
  static constexpr int kUnitBytes = Codes::kBytes + Scales::kBytes;
  static constexpr bool kAct32 = kRule32;  // scales of activations every 32 columns; otherwise every 128 or more
  /// Whether one activation row is multiplied bit by bit.
  static constexpr bool kBits = std::is_same_v<Codes, TernaryCodes<kCols>> && Scales::kFoldCols == 128;
  static_assert(kUnit % 128 == 0 && kUnitBytes % 16 == 0);
  struct Frag {
    Codes codes;
    Scales scales;
    __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
      codes.load(unit, lane);
      scales.load(unit + Codes::kBytes, lane);
    }
  };
};

}  // namespace tern::cuda
