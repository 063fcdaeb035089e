// The vector operations of the AVX2 tier, and with __AVXVNNI__ of the AVX-VNNI tier (kernel_simd_scalar.h says what
// each means). Included by kernels_avx2.cpp and kernels_avxvnni.cpp only.
//
// Without VNNI the byte product is vpmaddubsw, whose 16-bit pair sums saturate: codes up to kMaxCode allow kChain steps
// before they are widened. Bytes of 8 significant bits stay signed there and the sign moves to the activation, so that
// a pair is at most 128 * 127 * 2 = 32512.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tern::cpu {
namespace {

struct Simd {
  static constexpr int kLanes = 8;
  static constexpr bool kPairs = false;
#ifdef __AVXVNNI__
  static constexpr bool kSignedBytes = false;
#else
  static constexpr bool kSignedBytes = true;
#endif
  static constexpr int kDirectActs = 4, kDirectPanels = 1;
  static constexpr int kTilePanels = 2, kTileActs = 3;  // 6 integer + 6 float accumulators of 16 registers
  static constexpr int kFloatRows = 2, kFloatActs = 4;
  using Int = __m256i;
  using Float = __m256;
  using Part = __m256i;

  static Int zero() {
    return _mm256_setzero_si256();
  }
  static Int load(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static void store(void* p, Int v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), v);
  }
  static Int splat8(int v) {
    return _mm256_set1_epi8(static_cast<char>(v));
  }
  static Int splat32(const void* p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
  }
  static Int lanes_i8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static Int lanes_u8(const void* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static Int bit_and(Int a, Int b) {
    return _mm256_and_si256(a, b);
  }
  static Int bit_or(Int a, Int b) {
    return _mm256_or_si256(a, b);
  }
  template <int N>
  static Int shr(Int a) {
    return _mm256_srli_epi32(a, N);
  }
  template <int N>
  static Int shl(Int a) {
    return _mm256_slli_epi32(a, N);
  }
  /// Of signed lanes.
  template <int N>
  static Int shift_right(Int a) {
    return _mm256_srai_epi32(a, N);
  }
  static Int mul32(Int a, int32_t b) {
    return _mm256_mullo_epi32(a, _mm256_set1_epi32(b));
  }
  static Int shift_left(Int a, int n) {
    return _mm256_sll_epi32(a, _mm_cvtsi32_si128(n));
  }
  static Int add8(Int a, Int b) {
    return _mm256_add_epi8(a, b);
  }
  static Int sub8(Int a, Int b) {
    return _mm256_sub_epi8(a, b);
  }
  static Int min_u8(Int a, Int b) {
    return _mm256_min_epu8(a, b);
  }
  static Int add32(Int a, Int b) {
    return _mm256_add_epi32(a, b);
  }
  static Int sub32(Int a, Int b) {
    return _mm256_sub_epi32(a, b);
  }
  static Int max32(Int a, Int b) {
    return _mm256_max_epi32(a, b);
  }
  static Int table16(Int table, Int index) {
    return _mm256_shuffle_epi8(table, index);
  }
  static Int load_table16(const void* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }

  static Part begin() {
    return zero();
  }
#ifdef __AVXVNNI__
  template <int kMaxCode>
  static constexpr int kChain = 1 << 20;
  template <int kMaxCode>
  static Part dot(Part acc, Int codes, Int q) {
    return _mm256_dpbusd_avx_epi32(acc, codes, q);
  }
  template <int kMaxCode>
  static Int end(Part acc) {
    return acc;
  }
#else
  template <int kMaxCode>
  static constexpr int kChain = kMaxCode > 127 ? 1 : 32767 / (2 * 127 * kMaxCode);
  template <int kMaxCode>
  static Part dot(Part acc, Int codes, Int q) {
    if constexpr (kMaxCode > 127) return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes));
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, q));
  }
  template <int kMaxCode>
  static Int end(Part acc) {
    return _mm256_madd_epi16(acc, _mm256_set1_epi16(1));
  }
#endif

  static Float zero_f() {
    return _mm256_setzero_ps();
  }
  static Float load_f(const float* p) {
    return _mm256_loadu_ps(p);
  }
  static void store_f(float* p, Float v) {
    _mm256_storeu_ps(p, v);
  }
  static Float splat_f(float v) {
    return _mm256_set1_ps(v);
  }
  static Float to_float(Int v) {
    return _mm256_cvtepi32_ps(v);
  }
  static Float bits_to_float(Int v) {
    return _mm256_castsi256_ps(v);
  }
  static Float load_f16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static Float load_bf16(const void* p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))), 16));
  }
  static Float add(Float a, Float b) {
    return _mm256_add_ps(a, b);
  }
  static Float mul(Float a, Float b) {
    return _mm256_mul_ps(a, b);
  }
  static Float div(Float a, Float b) {
    return _mm256_div_ps(a, b);
  }
  static Float fma(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static Float max(Float a, Float b) {
    return _mm256_max_ps(a, b);
  }
  static Float magnitude(Float a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
  }
  static float sum(Float a) {
    const __m128 h = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 q = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
  static float largest(Float a) {
    const __m128 h = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 q = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
  }

  static int32_t round16(const float* x, float multiplier, int8_t* q) {
    const __m256 m = _mm256_set1_ps(multiplier);
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), m));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), m));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q),
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    const __m256i s = _mm256_add_epi32(a, b);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
  }
  static void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace tern::cpu
