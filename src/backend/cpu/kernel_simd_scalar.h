// The vector operations of the kernel bodies, written as loops over four lanes: the tier of every machine, and the
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
  static constexpr int kTilePanels = 1, kTileActs = 2;  // accumulators of the integer tile
  static constexpr int kFloatRows = 2, kFloatActs = 2;  // and of the float tile
  struct Int {
    int32_t v[4];
  };
  struct Float {
    float v[4];
  };
  using Part = Int;

  template <typename F>
  static Int make(F lane) {
    return {{lane(0), lane(1), lane(2), lane(3)}};
  }
  template <typename F>
  static Float make_f(F lane) {
    return {{lane(0), lane(1), lane(2), lane(3)}};
  }
  /// The same function of every byte.
  template <typename F>
  static Int bytes(Int a, Int b, F byte) {
    uint8_t x[16], y[16];
    __builtin_memcpy(x, &a, 16);
    __builtin_memcpy(y, &b, 16);
    for (int i = 0; i < 16; ++i) x[i] = static_cast<uint8_t>(byte(x[i], y[i]));
    __builtin_memcpy(&a, x, 16);
    return a;
  }

  static Int zero() { return {}; }
  static Int load(const void* p) {
    Int v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(void* p, Int v) { __builtin_memcpy(p, &v, sizeof v); }
  static Int splat8(int v) {
    return bytes({}, {}, [v](int, int) { return v; });
  }
  /// Four bytes (or one int32) at p, in every lane.
  static Int splat32(const void* p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return {{v, v, v, v}};
  }
  /// kLanes bytes at p, widened to int32 lanes.
  static Int lanes_i8(const void* p) {
    return make([q = static_cast<const int8_t*>(p)](int i) -> int32_t { return q[i]; });
  }
  static Int lanes_u8(const void* p) {
    return make([q = static_cast<const uint8_t*>(p)](int i) -> int32_t { return q[i]; });
  }
  static Int bit_and(Int a, Int b) {
    return make([&](int i) { return a.v[i] & b.v[i]; });
  }
  static Int bit_or(Int a, Int b) {
    return make([&](int i) { return a.v[i] | b.v[i]; });
  }
  /// Logical shifts of 32-bit lanes: mask what crosses bytes.
  template <int N>
  static Int shr(Int a) {
    return make([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> N); });
  }
  template <int N>
  static Int shl(Int a) {
    return make([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << N); });
  }
  /// Of signed lanes.
  template <int N>
  static Int shift_right(Int a) {
    return make([&](int i) { return a.v[i] >> N; });
  }
  static Int mul32(Int a, int32_t b) {
    return make([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) * static_cast<uint32_t>(b)); });
  }
  static Int shift_left(Int a, int n) {
    return make([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << n); });
  }
  static Int add8(Int a, Int b) {
    return bytes(a, b, [](int x, int y) { return x + y; });
  }
  static Int sub8(Int a, Int b) {
    return bytes(a, b, [](int x, int y) { return x - y; });
  }
  static Int min_u8(Int a, Int b) {
    return bytes(a, b, [](int x, int y) { return x < y ? x : y; });
  }
  static Int add32(Int a, Int b) {
    return make([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Int sub32(Int a, Int b) {
    return make([&](int i) { return a.v[i] - b.v[i]; });
  }
  static Int max32(Int a, Int b) {
    return make([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  /// Bytes table[index], index 0..15; the table is 16 bytes at p.
  static Int load_table16(const void* p) { return load(p); }
  static Int table16(Int table, Int index) {
    uint8_t t[16];
    __builtin_memcpy(t, &table, 16);
    return bytes(index, index, [&t](int x, int) { return t[x & 15]; });
  }

  /// Steps of four columns that may be chained onto one Part when no code is above kMaxCode.
  template <int kMaxCode>
  static constexpr int kChain = 1 << 20;
  static Part begin() { return {}; }
  /// Adds, in each lane, the dot product of four codes and four int8 activations (-127..127).
  template <int kMaxCode>
  static Part dot(Part acc, Int codes, Int q) {
    int8_t s[16], a[16];
    uint8_t u[16];
    __builtin_memcpy(u, &codes, 16);
    __builtin_memcpy(s, &codes, 16);
    __builtin_memcpy(a, &q, 16);
    for (int i = 0; i < 16; ++i) acc.v[i / 4] += (kMaxCode > 127 ? s[i] : u[i]) * a[i];
    return acc;
  }
  template <int kMaxCode>
  static Int end(Part acc) {
    return acc;
  }

  static Float zero_f() { return {}; }
  static Float load_f(const float* p) {
    return make_f([p](int i) { return p[i]; });
  }
  static void store_f(float* p, Float v) { __builtin_memcpy(p, &v, sizeof v); }
  static Float splat_f(float v) { return {{v, v, v, v}}; }
  static Float to_float(Int v) {
    return make_f([&](int i) { return static_cast<float>(v.v[i]); });
  }
  static Float bits_to_float(Int v) {
    Float f;
    __builtin_memcpy(&f, &v, sizeof f);
    return f;
  }
  /// kLanes binary16 / bfloat16 values at p.
  static Float load_f16(const void* p) {
    uint16_t h[4];
    __builtin_memcpy(h, p, 8);
    return make_f([&](int i) { return f16_to_f32(h[i]); });
  }
  static Float load_bf16(const void* p) {
    uint16_t h[4];
    __builtin_memcpy(h, p, 8);
    return make_f([&](int i) { return bf16_to_f32(h[i]); });
  }
  static Float add(Float a, Float b) {
    return make_f([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Float mul(Float a, Float b) {
    return make_f([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Float div(Float a, Float b) {
    return make_f([&](int i) { return a.v[i] / b.v[i]; });
  }
  static Float fma(Float a, Float b, Float c) {
    return make_f([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static Float max(Float a, Float b) {
    return make_f([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Float magnitude(Float a) {
    return make_f([&](int i) { return a.v[i] < 0 ? -a.v[i] : a.v[i]; });
  }
  static float sum(Float a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }
  static float largest(Float a) {
    float m = a.v[0];
    for (int i = 1; i < 4; ++i) m = a.v[i] > m ? a.v[i] : m;
    return m;
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
