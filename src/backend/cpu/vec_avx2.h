// Eight floats: AVX2 with FMA and F16C (every CPU with AVX2 that matters has all three).
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

struct Vec {
  using F = __m256;
  static constexpr int kWidth = 8;
  static constexpr bool kByteDots = false;
  static constexpr int kTileRows = 6, kTileVecs = 2;

  static F zero() noexcept { return _mm256_setzero_ps(); }
  static F set(float x) noexcept { return _mm256_set1_ps(x); }
  static F load(const float* p) noexcept { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) noexcept { _mm256_storeu_ps(p, x); }
  static F load_f16(const uint16_t* p) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_f16(uint16_t* p, F x) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static float half(uint16_t h) noexcept { return _cvtsh_ss(h); }
  static uint16_t to_half(float x) noexcept {
    return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F load_i8(const int8_t* p) noexcept {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  /// The low or high nibbles of 8 bytes, less 8.
  static F load_nibbles(const uint8_t* p, bool high) noexcept {
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    x = _mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(high ? 4 : 0)), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(x, _mm256_set1_epi32(8)));
  }
  /// Bits [shift, shift + 2) of 8 bytes.
  static F load_crumbs(const uint8_t* p, int shift) noexcept {
    const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(3)));
  }
  static F add(F a, F b) noexcept { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) noexcept { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) noexcept { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) noexcept { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) noexcept { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) noexcept { return _mm256_max_ps(a, b); }
  static F min(F a, F b) noexcept { return _mm256_min_ps(a, b); }
  static F abs(F a) noexcept { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static float sum(F a) noexcept {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float top(F a) noexcept {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  static bool any_above(F a, float b) noexcept { return _mm256_movemask_ps(_mm256_cmp_ps(a, set(b), _CMP_GT_OQ)) != 0; }
  /// a * 2^n for integral n in [-126, 127].
  static F scale2(F a, F n) noexcept {
    const __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
  }
  static F round(F a) noexcept { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F zero_below(F x, float least, F y) noexcept {  // y where x >= least, else 0
    return _mm256_and_ps(_mm256_cmp_ps(x, set(least), _CMP_GE_OQ), y);
  }
  struct Squares {
    __m256d a = _mm256_setzero_pd(), b = _mm256_setzero_pd();
    void add(F x) noexcept {
      const __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x)), hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
      a = _mm256_fmadd_pd(lo, lo, a);
      b = _mm256_fmadd_pd(hi, hi, b);
    }
    double total() const noexcept {
      const __m256d s = _mm256_add_pd(a, b);
      const __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
      return _mm_cvtsd_f64(t) + _mm_cvtsd_f64(_mm_unpackhi_pd(t, t));
    }
  };
  static F hadamard(F x) noexcept {
    const F s1 = _mm256_castsi256_ps(_mm256_setr_epi32(0, kSign, 0, kSign, 0, kSign, 0, kSign));
    const F s2 = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, kSign, kSign, 0, 0, kSign, kSign));
    const F s4 = _mm256_castsi256_ps(_mm256_setr_epi32(0, 0, 0, 0, kSign, kSign, kSign, kSign));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0xb1), _mm256_xor_ps(x, s1));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4e), _mm256_xor_ps(x, s2));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 1), _mm256_xor_ps(x, s4));
  }

 private:
  static constexpr int kSign = static_cast<int>(0x80000000u);
};

}  // namespace
