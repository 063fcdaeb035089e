// The vector operations of the tiers with AVX-512 VNNI + VBMI, under the names the kernel bodies use
// (kernel_simd_scalar.h says what each means).
#pragma once
// GCC 12 reports its own _mm512_undefined_ps() inside the reductions and conversions of <immintrin.h>.
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tern::cpu {
namespace {

struct Simd {
  static constexpr int kLanes = 16;
  static constexpr bool kSignedBytes = false;
  static constexpr bool kPairs = false;
  // Of 32 registers: 8 integer, 8 group and 8 row sums, 5 steps of weights; or 16 integer sums and 10 steps of weights.
  static constexpr int kDirectActs = 8, kDirectPanels = 2;
  static constexpr int kTilePanels = 2, kTileActs = 6;  // 12 integer + 12 float accumulators, 2 weights, 1 activation
  static constexpr int kFloatRows = 4, kFloatActs = 6;
  using Int = __m512i;
  using Float = __m512;
  using Part = __m512i;

  static Int zero() { return _mm512_setzero_si512(); }
  static Int load(const void* p) { return _mm512_loadu_si512(p); }
  static void store(void* p, Int v) { _mm512_storeu_si512(p, v); }
  static Int splat8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static Int splat32(const void* p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
  }
  static Int lanes_i8(const void* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static Int lanes_u8(const void* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int bit_or(Int a, Int b) { return _mm512_or_si512(a, b); }
  template <int N>
  static Int shr(Int a) {
    return _mm512_srli_epi32(a, N);
  }
  template <int N>
  static Int shl(Int a) {
    return _mm512_slli_epi32(a, N);
  }
  /// Of signed lanes.
  template <int N>
  static Int shift_right(Int a) {
    return _mm512_srai_epi32(a, N);
  }
  static Int mul32(Int a, int32_t b) { return _mm512_mullo_epi32(a, _mm512_set1_epi32(b)); }
  static Int shift_left(Int a, int n) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)); }
  static Int add8(Int a, Int b) { return _mm512_add_epi8(a, b); }
  static Int sub8(Int a, Int b) { return _mm512_sub_epi8(a, b); }
  static Int min_u8(Int a, Int b) { return _mm512_min_epu8(a, b); }
  static Int add32(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int sub32(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int max32(Int a, Int b) { return _mm512_max_epi32(a, b); }
  static Int table16(Int table, Int index) { return _mm512_shuffle_epi8(table, index); }
  static Int load_table16(const void* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Int table128(Int low, Int high, Int index) { return _mm512_permutex2var_epi8(low, index, high); }

  template <int kMaxCode>
  static constexpr int kChain = 1 << 20;
  static Part begin() { return zero(); }
  template <int kMaxCode>
  static Part dot(Part acc, Int codes, Int q) {
    return _mm512_dpbusd_epi32(acc, codes, q);
  }
  template <int kMaxCode>
  static Int end(Part acc) {
    return acc;
  }

  static Float zero_f() { return _mm512_setzero_ps(); }
  static Float load_f(const float* p) { return _mm512_loadu_ps(p); }
  static void store_f(float* p, Float v) { _mm512_storeu_ps(p, v); }
  static Float splat_f(float v) { return _mm512_set1_ps(v); }
  static Float to_float(Int v) { return _mm512_cvtepi32_ps(v); }
  static Float bits_to_float(Int v) { return _mm512_castsi512_ps(v); }
  static Float load_f16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
  static Float load_bf16(const void* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
  }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float magnitude(Float a) { return _mm512_abs_ps(a); }
  static float sum(Float a) { return _mm512_reduce_add_ps(a); }
  /// to[i] += sum(v[i]), to the bit, in half of the instructions.
  static void add_sums(const Float (&v)[4], float* to) {
    const Float ab = add(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    const Float cd = add(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    Float x = add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    x = add(x, _mm512_permute_ps(x, 0x4e));
    x = add(x, _mm512_permute_ps(x, 0xb1));
    const __m128 sums = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, x));
    _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), sums));
  }
  static float largest(Float a) { return _mm512_reduce_max_ps(a); }

  /// 16 values x * multiplier, to nearest even, to q; returns their sum.
  static int32_t round16(const float* x, float multiplier, int8_t* q) {
    const __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(multiplier)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtsepi32_epi8(i));
    return _mm512_reduce_add_epi32(i);
  }
  static void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
};

}  // namespace
}  // namespace tern::cpu
