// The vector operations of the kernel bodies in the compiler's own 16-byte vectors: the tier of every machine, and the
// meaning of the same names in the kernel_simd_*.h of real instruction sets.
//
// A vector has kLanes 32-bit lanes, one a weight row. An Int holds in each lane an int32 or four bytes (four
// consecutive columns); a Part is a partial sum of byte products that `end` turns into int32 lanes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/float16.h"

namespace tern::cpu {
namespace {

struct Simd {
  static constexpr int kLanes = 4;
  static constexpr bool kSignedBytes = true;            // 8-bit codes are signed bytes; otherwise they are stored + 128
  static constexpr bool kPairs = false;                 // tiles multiply pairs of rows by pairs of activations
  static constexpr int kDirectActs = 4;                 // rows of 5 to 8 that share one unpacking in registers
  static constexpr int kDirectPanels = 1;               // of one scale a row that share a reading of the activations
  static constexpr int kTilePanels = 1, kTileActs = 2;  // accumulators of the integer tile
  static constexpr int kFloatRows = 2, kFloatActs = 2;  // and of the float tile
  typedef int32_t Int __attribute__((vector_size(16)));
  typedef float Float __attribute__((vector_size(16)));
  using Part = Int;
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  typedef int8_t SignedBytes __attribute__((vector_size(16)));
  typedef int16_t Words __attribute__((vector_size(32)));
  typedef int32_t Pairs __attribute__((vector_size(32)));

  static Int zero() { return Int{}; }
  static Int load(const void* p) {
    Int v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(void* p, Int v) { __builtin_memcpy(p, &v, sizeof v); }
  static Int splat8(int v) { return (Int)(Bytes{} + static_cast<uint8_t>(v)); }
  /// Four bytes (or one int32) at p, in every lane.
  static Int splat32(const void* p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return Int{v, v, v, v};
  }
  /// kLanes bytes at p, widened to int32 lanes.
  static Int lanes_i8(const void* p) {
    const auto* q = static_cast<const int8_t*>(p);
    return Int{q[0], q[1], q[2], q[3]};
  }
  static Int lanes_u8(const void* p) {
    const auto* q = static_cast<const uint8_t*>(p);
    return Int{q[0], q[1], q[2], q[3]};
  }
  static Int bit_and(Int a, Int b) { return a & b; }
  static Int bit_or(Int a, Int b) { return a | b; }
  /// Logical shifts of 32-bit lanes: mask what crosses bytes.
  template <int N>
  static Int shr(Int a) {
    return (Int)((Unsigned)a >> N);
  }
  template <int N>
  static Int shl(Int a) {
    return (Int)((Unsigned)a << N);
  }
  /// Of signed lanes.
  template <int N>
  static Int shift_right(Int a) {
    return a >> N;
  }
  static Int mul32(Int a, int32_t b) { return (Int)((Unsigned)a * static_cast<uint32_t>(b)); }
  static Int shift_left(Int a, int n) { return (Int)((Unsigned)a << n); }
  static Int add8(Int a, Int b) { return (Int)((Bytes)a + (Bytes)b); }
  static Int sub8(Int a, Int b) { return (Int)((Bytes)a - (Bytes)b); }
  static Int min_u8(Int a, Int b) { return (Int)((Bytes)a < (Bytes)b ? (Bytes)a : (Bytes)b); }
  static Int add32(Int a, Int b) { return a + b; }
  static Int sub32(Int a, Int b) { return a - b; }
  static Int max32(Int a, Int b) { return a > b ? a : b; }
  /// Bytes table[index], index 0..15; the table is 16 bytes at p.
  static Int load_table16(const void* p) { return load(p); }
  static Int table16(Int table, Int index) {
    uint8_t t[16], x[16];
    __builtin_memcpy(t, &table, 16);
    __builtin_memcpy(x, &index, 16);
    for (uint8_t& v : x) v = t[v & 15];
    return load(x);
  }

  /// Steps of four columns that may be chained onto one Part when no code is above kMaxCode.
  template <int kMaxCode>
  static constexpr int kChain = 1 << 20;
  static Part begin() { return zero(); }
  /// Adds, in each lane, the dot product of four codes and four int8 activations (-127..127).
  template <int kMaxCode>
  static Part dot(Part acc, Int codes, Int q) {
    const Words w = kMaxCode > 127 ? __builtin_convertvector((SignedBytes)codes, Words)
                                   : __builtin_convertvector((Bytes)codes, Words);
    const Words product = w * __builtin_convertvector((SignedBytes)q, Words);  // at most 128 * 127: fits
    const auto twos = (Pairs)product;
    const Pairs pair = ((twos << 16) >> 16) + (twos >> 16);
    return acc + __builtin_shufflevector(pair, pair, 0, 2, 4, 6) + __builtin_shufflevector(pair, pair, 1, 3, 5, 7);
  }
  template <int kMaxCode>
  static Int end(Part acc) {
    return acc;
  }

  static Float zero_f() { return Float{}; }
  static Float load_f(const float* p) {
    Float v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static void store_f(float* p, Float v) { __builtin_memcpy(p, &v, sizeof v); }
  static Float splat_f(float v) { return Float{v, v, v, v}; }
  static Float to_float(Int v) { return __builtin_convertvector(v, Float); }
  static Float bits_to_float(Int v) { return (Float)v; }
  /// kLanes binary16 / bfloat16 values at p.
  static Float load_f16(const void* p) {
    uint16_t h[4];
    __builtin_memcpy(h, p, 8);
    return Float{f16_to_f32(h[0]), f16_to_f32(h[1]), f16_to_f32(h[2]), f16_to_f32(h[3])};
  }
  static Float load_bf16(const void* p) {
    uint16_t h[4];
    __builtin_memcpy(h, p, 8);
    return Float{bf16_to_f32(h[0]), bf16_to_f32(h[1]), bf16_to_f32(h[2]), bf16_to_f32(h[3])};
  }
  static Float add(Float a, Float b) { return a + b; }
  static Float mul(Float a, Float b) { return a * b; }
  static Float div(Float a, Float b) { return a / b; }
  static Float fma(Float a, Float b, Float c) { return a * b + c; }
  static Float max(Float a, Float b) { return a > b ? a : b; }
  static Float magnitude(Float a) { return a < 0.0f ? -a : a; }
  static float sum(Float a) { return (a[0] + a[1]) + (a[2] + a[3]); }
  static float largest(Float a) {
    const float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
  }

  /// Rounds 16 values x[i] * multiplier (magnitude below 2^22) to nearest even into q; returns their sum.
  static int32_t round16(const float* x, float multiplier, int8_t* q) {
    int32_t total = 0;
    for (int i = 0; i < 16; ++i) {
      const float magic = x[i] * multiplier + 0x1.8p23f;  // the integer is left in the low mantissa bits
      uint32_t bits;
      __builtin_memcpy(&bits, &magic, 4);
      const auto v = static_cast<int32_t>(bits & 0x7fffffu) - 0x400000;
      q[i] = static_cast<int8_t>(v);
      total += v;
    }
    return total;
  }
  static void prefetch(const void*) {}
};

}  // namespace
}  // namespace tern::cpu
