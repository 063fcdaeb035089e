// How the scales of a panel are kept, and what a file's block holds: the other half of a tuned layout.
// weight = (code - bias) * scale + offset, one scale a kSegment columns.
#pragma once
#include "backend/cpu/kernel_codes.inl"

namespace tern::cpu {
namespace {

/// One row of a unit, taken apart.
struct UnitRow {
  uint8_t codes[256];  // in the order of the columns
  uint16_t d[8];       // the bits of the f16 scales, or of an exponent
  uint16_t m[8];       // and of the f16 offsets
  uint8_t scale[16];   // K formats: integer scales of groups (signed where the layout says so)
  uint8_t minimum[16];
};

inline void put_half(std::byte* at, int row, uint16_t bits) {
  __builtin_memcpy(at + row * 2, &bits, 2);
}

/// The scale is the tensor's: nothing is stored.
template <int U>
struct NoScale {
  static constexpr int kSegment = U, kUnitBytes = 0;
  static constexpr bool kOffset = false, kScaled = false;
  static void put(const UnitRow&, std::byte*, int) {}
  static Float scale(const std::byte*, int) { return Simd::splat_f(1.0f); }
};

/// One f16 a segment.
template <int U, int S>
struct HalfScale {
  static constexpr int kSegment = S, kUnitBytes = U / S * kLanes * 2;
  static constexpr bool kOffset = false, kScaled = true;
  static void put(const UnitRow& r, std::byte* unit, int row) {
    for (int s = 0; s < U / S; ++s) put_half(unit + s * kLanes * 2, row, r.d[s]);
  }
  static Float scale(const std::byte* unit, int s) { return Simd::load_f16(unit + s * kLanes * 2); }
};

/// An f16 scale and an f16 offset a segment of 32 (Q4_1, Q5_1).
template <int U>
struct HalfScaleOffset {
  static constexpr int kSegment = 32, kPair = kLanes * 4, kUnitBytes = U / 32 * kPair;
  static constexpr bool kOffset = true, kScaled = true;
  static void put(const UnitRow& r, std::byte* unit, int row) {
    for (int s = 0; s < U / 32; ++s) {
      put_half(unit + s * kPair, row, r.d[s]);
      put_half(unit + s * kPair + kLanes * 2, row, r.m[s]);
    }
  }
  static Float scale(const std::byte* unit, int s) { return Simd::load_f16(unit + s * kPair); }
  static Float offset(const std::byte* unit, int s) { return Simd::load_f16(unit + s * kPair + kLanes * 2); }
};

/// 2^(e - 128) from one byte a segment of 32 (MXFP4); e = 0 and 1 are subnormal, 255 is 2^127.
template <int U>
struct ExponentScale {
  static constexpr int kSegment = 32, kUnitBytes = U / 32 * kLanes;
  static constexpr bool kOffset = false, kScaled = true;
  static void put(const UnitRow& r, std::byte* unit, int row) {
    for (int s = 0; s < U / 32; ++s) unit[s * kLanes + row] = static_cast<std::byte>(r.d[s]);
  }
  static Float scale(const std::byte* unit, int s) {
    const Int e = Simd::lanes_u8(unit + s * kLanes);
    const Int minus_one = Simd::splat8(-1);  // -1 in every lane
    const Int normal = Simd::shl<23>(Simd::add32(e, minus_one));
    const Int subnormal = Simd::shl<21>(Simd::sub32(e, minus_one));
    return Simd::bits_to_float(Simd::max32(normal, subnormal));
  }
};

/// K formats: f16 d a unit of 256 and an i8 a segment; with kMinimum also f16 dmin and a u8 a segment.
template <int S, bool kMinimum>
struct GroupScale {
  static constexpr int kSegment = S, kGroups = 256 / S;
  static constexpr int kHead = kLanes * 2, kGroupBytes = kGroups * kLanes;
  /// Whole cache lines, so that units of codes and scales can alternate.
  static constexpr int kUnitBytes = ((kMinimum ? 2 : 1) * (kHead + kGroupBytes) + 63) / 64 * 64;
  static constexpr bool kOffset = kMinimum, kScaled = true;
  static constexpr int kMinima = kHead + kGroupBytes;
  static void put(const UnitRow& r, std::byte* unit, int row) {
    put_half(unit, row, r.d[0]);
    for (int s = 0; s < kGroups; ++s) unit[kHead + s * kLanes + row] = static_cast<std::byte>(r.scale[s]);
    if constexpr (kMinimum) {
      put_half(unit + kMinima, row, r.m[0]);
      for (int s = 0; s < kGroups; ++s) {
        unit[kMinima + kHead + s * kLanes + row] = static_cast<std::byte>(-static_cast<int>(r.minimum[s]));
      }
    }
  }
  static Float product(const std::byte* part, int s) {
    return Simd::mul(Simd::load_f16(part), Simd::to_float(Simd::lanes_i8(part + kHead + s * kLanes)));
  }
  static Float scale(const std::byte* unit, int s) { return product(unit, s); }
  static Float offset(const std::byte* unit, int s) { return product(unit + kMinima, s); }
};

}  // namespace
}  // namespace tern::cpu
