// How the integer codes of a weight are packed: the byte layouts of the tuned kernels.
//
// A panel is kLanes weight rows, one 32-bit lane each. A vector of codes ("step") has four consecutive columns of every
// row, one byte a code; a "quantum" is the fewest packed vectors that hold whole steps; a "unit" is kUnit columns and
// begins with a scale. All integers are unsigned with a bias: weight = (code - kBias) * scale, so that u8 x i8 products
// serve and one sum of activations a segment corrects them. put() writes one row of a unit, quantum<Q>() reads back all
// rows.
//
// raw<Q>() leaves out the shifts: its step s is the code times kWeight[s]. A product that keeps one sum a step divides
// it once a segment, exactly, instead of shifting every vector. Only for byte products that do not saturate.
#pragma once
#include <utility>

#include "backend/cpu/kernel_tier.h"

namespace tern::cpu {
namespace {

#define TERN_INLINE __attribute__((always_inline))

template <int I>
struct Index {
  static constexpr int value = I;
};

template <typename F, int... I>
TERN_INLINE inline void unroll_over(std::integer_sequence<int, I...>, F&& f) {
  (f(Index<I>{}), ...);
}
/// f(Index<0>{}), f(Index<1>{}) ... f(Index<N-1>{}).
template <int N, typename F>
TERN_INLINE inline void unroll(F&& f) {
  unroll_over(std::make_integer_sequence<int, N>{}, f);
}

using Int = Simd::Int;
using Float = Simd::Float;
constexpr int kLanes = Simd::kLanes;
constexpr int kVector = kLanes * 4;  // bytes

inline uint32_t word(const uint8_t* four_codes) {
  uint32_t v;
  __builtin_memcpy(&v, four_codes, 4);
  return v;
}
inline void put_word(std::byte* unit, int vector, int row, uint32_t v) {
  __builtin_memcpy(unit + vector * kVector + row * 4, &v, 4);
}
inline Int vector_at(const std::byte* unit, int vector) {
  return Simd::load(unit + vector * kVector);
}

/// Bits [kFrom, kFrom + bits) of every byte moved to kTo; `mask` selects them there.
template <int kFrom, int kTo>
TERN_INLINE inline Int field(Int v, int mask) {
  if constexpr (kFrom > kTo) v = Simd::shr<kFrom - kTo>(v);
  if constexpr (kFrom < kTo) v = Simd::shl<kTo - kFrom>(v);
  return Simd::bit_and(v, Simd::splat8(mask));
}

/// v / kWeight of every lane, which is a multiple of it: the odd part by its inverse modulo 2^32.
template <uint32_t kWeight>
TERN_INLINE inline Int divide_exactly(Int v) {
  constexpr int kShift = __builtin_ctz(kWeight);
  if constexpr (kShift > 0) v = Simd::shift_right<kShift>(v);
  constexpr uint32_t kOdd = kWeight >> kShift;
  if constexpr (kOdd > 1) {
    uint32_t inverse = kOdd;  // correct to 3 bits; each step doubles them
    for (int i = 0; i < 4; ++i) inverse *= 2 - kOdd * inverse;
    v = Simd::mul32(v, static_cast<int32_t>(inverse));
  }
  return v;
}

/// Layouts without raw().
struct NoRaw {
  static constexpr bool kHasRaw = false;
};

/// 8 bits a code. Signed bytes with bias 0 where the tier multiplies those.
template <int U>
struct Bits8 : NoRaw {
  static constexpr int kUnit = U, kBias = Simd::kSignedBytes ? 0 : 128, kMaxCode = 255;
  static constexpr int kSteps = 1, kQuanta = U / 4, kUnitBytes = kQuanta * kVector;
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) put_word(unit, q, row, word(codes + 4 * q));
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    w[0] = vector_at(unit, Q);
  }
};

/// 4 bits: the low nibbles are columns 0..3 of 8, the high ones 4..7.
template <int U, int B>
struct Bits4 {
  static constexpr int kUnit = U, kBias = B, kMaxCode = 15;
  static constexpr int kSteps = 2, kQuanta = U / 8, kUnitBytes = kQuanta * kVector;
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) put_word(unit, q, row, word(codes + 8 * q) | word(codes + 8 * q + 4) << 4);
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int v = vector_at(unit, Q);
    w[0] = field<0, 0>(v, 15);
    w[1] = field<4, 0>(v, 15);
  }
  static constexpr bool kHasRaw = true;
  static constexpr uint32_t kWeight[kSteps] = {1, 16};
  template <int Q>
  TERN_INLINE static void raw(const std::byte* unit, Int (&w)[kSteps]) {
    const Int v = vector_at(unit, Q);
    w[0] = field<0, 0>(v, 15);
    w[1] = field<0, 0>(v, 240);
  }
};

/// 4-bit indices of a table of 16 values (Table::kTable, already biased for this tier).
template <int U, typename Table>
struct Book4 : NoRaw {
  static constexpr int kUnit = U, kBias = Table::kBias, kMaxCode = Table::kMaxCode;
  using Nibbles = Bits4<U, 0>;
  static constexpr int kSteps = 2, kQuanta = Nibbles::kQuanta, kUnitBytes = Nibbles::kUnitBytes;
  static void put(const uint8_t* codes, std::byte* unit, int row) { Nibbles::put(codes, unit, row); }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    Nibbles::template quantum<Q>(unit, w);
    const Int table = Simd::load_table16(Table::kTable.v);
    for (Int& v : w) v = Simd::table16(table, v);
  }
};

/// 2 bits: bits 2s of a byte are columns 4s..4s+3 of 16.
template <int U, int B>
struct Bits2 {
  static constexpr int kUnit = U, kBias = B, kMaxCode = 3;
  static constexpr int kSteps = 4, kQuanta = U / 16, kUnitBytes = kQuanta * kVector;
  static uint32_t pack(const uint8_t* c) { return word(c) | word(c + 4) << 2 | word(c + 8) << 4 | word(c + 12) << 6; }
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) put_word(unit, q, row, pack(codes + 16 * q));
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int v = vector_at(unit, Q);
    unroll<4>([&](auto s) TERN_INLINE { w[s.value] = field<2 * s.value, 0>(v, 3); });
  }
  static constexpr bool kHasRaw = true;
  static constexpr uint32_t kWeight[kSteps] = {1, 4, 16, 64};
  template <int Q>
  TERN_INLINE static void raw(const std::byte* unit, Int (&w)[kSteps]) {
    const Int v = vector_at(unit, Q);
    unroll<4>([&](auto s) TERN_INLINE { w[s.value] = field<0, 0>(v, 3 << (2 * s.value)); });
  }
};

/// 32 columns of one bit each as one word: bit s of byte j is column 4s + j.
inline uint32_t pack_bits(const uint8_t* codes, int shift) {
  uint32_t v = 0;
  for (int s = 0; s < 8; ++s) v |= ((word(codes + 4 * s) >> shift) & 0x01010101u) << s;
  return v;
}

/// 1 bit; the codes are 0 and 2 with bias 1, so that the weight is +-scale.
template <int U>
struct Bits1 {
  static constexpr int kUnit = U, kBias = 1, kMaxCode = 2;
  static constexpr int kSteps = 8, kQuanta = U / 32, kUnitBytes = kQuanta * kVector;
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) put_word(unit, q, row, pack_bits(codes + 32 * q, 1));
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int v = vector_at(unit, Q);
    unroll<8>([&](auto s) TERN_INLINE { w[s.value] = field<s.value, 1>(v, 2); });
  }
  static constexpr bool kHasRaw = false;
};

/// 3 bits: two vectors with the low two bits of 32 columns, one with the third.
template <int U, int B>
struct Bits3 : NoRaw {
  static constexpr int kUnit = U, kBias = B, kMaxCode = 7;
  static constexpr int kSteps = 8, kQuanta = U / 32, kUnitBytes = kQuanta * 3 * kVector;
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) {
      uint8_t low[32];
      for (int i = 0; i < 32; ++i) low[i] = codes[32 * q + i] & 3;
      put_word(unit, 3 * q, row, Bits2<32, 0>::pack(low));
      put_word(unit, 3 * q + 1, row, Bits2<32, 0>::pack(low + 16));
      put_word(unit, 3 * q + 2, row, pack_bits(codes + 32 * q, 2));
    }
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int low[2] = {vector_at(unit, 3 * Q), vector_at(unit, 3 * Q + 1)}, high = vector_at(unit, 3 * Q + 2);
    unroll<8>([&](auto s) TERN_INLINE {
      w[s.value] = Simd::bit_or(field<s.value % 4 * 2, 0>(low[s.value / 4], 3), field<s.value, 2>(high, 4));
    });
  }
};

/// 5 bits: four vectors of nibbles, one with the fifth bits.
template <int U, int B>
struct Bits5 : NoRaw {
  static constexpr int kUnit = U, kBias = B, kMaxCode = 31;
  static constexpr int kSteps = 8, kQuanta = U / 32, kUnitBytes = kQuanta * 5 * kVector;
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) {
      for (int v = 0; v < 4; ++v) {
        const uint8_t* c = codes + 32 * q + 8 * v;
        put_word(unit, 5 * q + v, row, (word(c) & 0x0f0f0f0fu) | (word(c + 4) & 0x0f0f0f0fu) << 4);
      }
      put_word(unit, 5 * q + 4, row, pack_bits(codes + 32 * q, 4));
    }
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int high = vector_at(unit, 5 * Q + 4);
    unroll<8>([&](auto s) TERN_INLINE {
      const Int low = field<s.value % 2 * 4, 0>(vector_at(unit, 5 * Q + s.value / 2), 15);
      w[s.value] = Simd::bit_or(low, field<s.value, 4>(high, 16));
    });
  }
};

/// 6 bits: two vectors of nibbles of 16 columns, one with the high two bits.
template <int U, int B>
struct Bits6 : NoRaw {
  static constexpr int kUnit = U, kBias = B, kMaxCode = 63;
  static constexpr int kSteps = 4, kQuanta = U / 16, kUnitBytes = kQuanta * 3 * kVector;
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) {
      const uint8_t* c = codes + 16 * q;
      constexpr uint32_t kLow = 0x0f0f0f0fu;
      put_word(unit, 3 * q, row, (word(c) & kLow) | (word(c + 4) & kLow) << 4);
      put_word(unit, 3 * q + 1, row, (word(c + 8) & kLow) | (word(c + 12) & kLow) << 4);
      uint8_t high[16];
      for (int i = 0; i < 16; ++i) high[i] = static_cast<uint8_t>(c[i] >> 4);
      put_word(unit, 3 * q + 2, row, Bits2<16, 0>::pack(high));
    }
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int high = vector_at(unit, 3 * Q + 2);
    unroll<4>([&](auto s) TERN_INLINE {
      const Int low = field<s.value % 2 * 4, 0>(vector_at(unit, 3 * Q + s.value / 2), 15);
      w[s.value] = Simd::bit_or(low, field<2 * s.value, 4>(high, 48));
    });
  }
};

#ifdef TERN_BASE3  // where a byte table of 128 entries is one instruction
/// 2-bit codes of the four base-3 digits of 0..80, the first (lowest) digit in the low bits.
struct DigitTable {
  uint8_t packed[128];
};
constexpr DigitTable make_digit_table() {
  DigitTable t{};
  for (int i = 0; i < 81; ++i) {
    t.packed[i] = static_cast<uint8_t>(i % 3 | i / 3 % 3 << 2 | i / 9 % 3 << 4 | i / 27 << 6);
  }
  return t;
}
alignas(64) constexpr DigitTable kDigits = make_digit_table();

/// Base 3, five ternary codes a byte: byte = t0 + 3 t1 + 9 t2 + 27 t3 + 85 t4. The weight 85 instead of 81 leaves
/// byte - (byte mod 85) = 85 t4 with t4 in its two low bits, and min(b, b - 85, b - 170) in wrapping bytes is the
/// remainder, an index of a table of 128 bytes. 256 columns are 12 vectors of 20 columns and one of 16: 1.625 bits a
/// weight.
struct Base3 {
  static constexpr int kUnit = 256, kBias = 1, kMaxCode = 2;
  static constexpr int kSteps = 5, kQuanta = 13, kUnitBytes = kQuanta * kVector;
  static constexpr bool kAlike = true;  // quantum<Q> of a unit is quantum<0> behind Q vectors, but for the last
  static void put(const uint8_t* codes, std::byte* unit, int row) {
    for (int q = 0; q < kQuanta; ++q) {
      const uint8_t* c = codes + 20 * q;
      const uint32_t four = word(c) + 3 * word(c + 4) + 9 * word(c + 8) + 27 * word(c + 12);
      put_word(unit, q, row, q < 12 ? four + 85 * word(c + 16) : four);
    }
  }
  template <int Q>
  TERN_INLINE static void quantum(const std::byte* unit, Int (&w)[kSteps]) {
    const Int packed = four<Q>(unit, w[4]);
    w[4] = Simd::bit_and(w[4], Simd::splat8(3));
    unroll<4>([&](auto s) TERN_INLINE { w[s.value] = field<2 * s.value, 0>(packed, 3); });
  }
  static constexpr bool kHasRaw = true;
  static constexpr uint32_t kWeight[kSteps] = {1, 4, 16, 64, 85};
  template <int Q>
  TERN_INLINE static void raw(const std::byte* unit, Int (&w)[kSteps]) {
    const Int packed = four<Q>(unit, w[4]);
    unroll<4>([&](auto s) TERN_INLINE { w[s.value] = field<0, 0>(packed, 3 << (2 * s.value)); });
  }

 private:
  /// 2-bit codes of the first four digits; 85 t4 in `fifth`.
  template <int Q>
  TERN_INLINE static Int four(const std::byte* unit, Int& fifth) {
    const Int v = vector_at(unit, Q);
    Int rest = v;
    if constexpr (Q < 12) {
      rest = Simd::min_u8(Simd::min_u8(v, Simd::sub8(v, Simd::splat8(85))), Simd::sub8(v, Simd::splat8(170)));
    }
    fifth = Simd::sub8(v, rest);
    return Simd::table128(Simd::load(kDigits.packed), Simd::load(kDigits.packed + 64), rest);
  }
};
#endif

}  // namespace
}  // namespace tern::cpu
