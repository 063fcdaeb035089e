// One float as a "vector": the body of ops_body.h compiled for any CPU.
#pragma once
#include <cstdint>

#include "base/float16.h"

namespace {

struct Vec {
  using F = float;
  static constexpr int kWidth = 1;
  static constexpr bool kByteDots = false;
  static constexpr int kTileRows = 4, kTileVecs = 4;  // of the small matrix product: accumulators that fit in registers

  static F zero() noexcept { return 0.0f; }
  static F set(float x) noexcept { return x; }
  static F load(const float* p) noexcept { return *p; }
  static void store(float* p, F x) noexcept { *p = x; }
  static F load_f16(const uint16_t* p) noexcept { return tern::f16_to_f32(*p); }
  static void store_f16(uint16_t* p, F x) noexcept { *p = tern::f32_to_f16(x); }
  static float half(uint16_t h) noexcept { return tern::f16_to_f32(h); }
  static uint16_t to_half(float x) noexcept { return tern::f32_to_f16(x); }
  static F load_i8(const int8_t* p) noexcept { return static_cast<float>(*p); }
  static F load_nibbles(const uint8_t* p, bool high) noexcept {
    return static_cast<float>((high ? *p >> 4 : *p & 15) - 8);
  }
  static F load_crumbs(const uint8_t* p, int shift) noexcept { return static_cast<float>(*p >> shift & 3); }
  static F add(F a, F b) noexcept { return a + b; }
  static F sub(F a, F b) noexcept { return a - b; }
  static F mul(F a, F b) noexcept { return a * b; }
  static F div(F a, F b) noexcept { return a / b; }
  static F fma(F a, F b, F c) noexcept { return a * b + c; }
  static F max(F a, F b) noexcept { return a > b ? a : b; }
  static F min(F a, F b) noexcept { return a < b ? a : b; }
  static F abs(F a) noexcept { return __builtin_fabsf(a); }
  static float sum(F a) noexcept { return a; }
  static float top(F a) noexcept { return a; }
  static bool any_above(F a, float b) noexcept { return a > b; }
  static F round(F a) noexcept { return __builtin_rintf(a); }
  /// Sum of squares of one vector, in double.
  struct Squares {
    double s = 0;
    void add(F x) noexcept { s += static_cast<double>(x) * static_cast<double>(x); }
    double total() const noexcept { return s; }
  };
  /// Butterflies of stride 1, 2 ... kWidth/2 inside a vector: none.
  static F hadamard(F x) noexcept { return x; }
};

}  // namespace
