// Sixteen floats: AVX-512 F, BW, DQ, VL and VNNI.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

struct Vec {
  using F = __m512;
  static constexpr int kWidth = 16;
  static constexpr bool kByteDots = true;
  static constexpr int kTileRows = 6, kTileVecs = 4;

  static F zero() noexcept { return _mm512_setzero_ps(); }
  static F set(float x) noexcept { return _mm512_set1_ps(x); }
  static F load(const float* p) noexcept { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) noexcept { _mm512_storeu_ps(p, x); }
  static F load_f16(const uint16_t* p) noexcept {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(uint16_t* p, F x) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static float half(uint16_t h) noexcept { return _cvtsh_ss(h); }
  static uint16_t to_half(float x) noexcept {
    return static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F load_i8(const int8_t* p) noexcept {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  /// The low or high nibbles of 16 bytes, less 8.
  static F load_nibbles(const uint8_t* p, bool high) noexcept {
    const F values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_permutexvar_ps(_mm512_srl_epi32(x, _mm_cvtsi32_si128(high ? 4 : 0)), values);  // by its low 4 bits
  }
  /// Bits [shift, shift + 2) of 16 bytes.
  static F load_crumbs(const uint8_t* p, int shift) noexcept {
    const F values = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    const __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_permutexvar_ps(_mm512_srl_epi32(x, _mm_cvtsi32_si128(shift)), values);
  }
  static F add(F a, F b) noexcept { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) noexcept { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) noexcept { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) noexcept { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) noexcept { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) noexcept { return _mm512_max_ps(a, b); }
  static F min(F a, F b) noexcept { return _mm512_min_ps(a, b); }
  static F abs(F a) noexcept { return _mm512_abs_ps(a); }
  static float sum(F a) noexcept { return _mm512_reduce_add_ps(a); }
  static float top(F a) noexcept { return _mm512_reduce_max_ps(a); }
  static bool any_above(F a, float b) noexcept { return _mm512_cmp_ps_mask(a, set(b), _CMP_GT_OQ) != 0; }
  static F scale2(F a, F n) noexcept { return _mm512_scalef_ps(a, n); }
  static F round(F a) noexcept { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F zero_below(F x, float least, F y) noexcept {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, set(least), _CMP_GE_OQ), y);
  }
  // ---- Four bytes a lane (ops_attend_bytes.h) ----
  using Int [[gnu::vector_size(64)]] = int32_t;  // sums of __m512i in an array are written back in every step by GCC 12
  static Int zero_int() noexcept { return Int{}; }
  static Int load_int(const void* p) noexcept { return Int(_mm512_loadu_si512(p)); }
  static void store_int(void* p, Int x) noexcept { _mm512_storeu_si512(p, __m512i(x)); }
  static Int splat_byte(int x) noexcept { return Int(_mm512_set1_epi8(static_cast<char>(x))); }
  static Int splat_four(const uint8_t* p) noexcept {
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return Int(_mm512_set1_epi32(x));
  }
  static Int negative(Int x) noexcept { return -x; }
  static Int to_int(F x) noexcept { return Int(_mm512_cvtps_epi32(x)); }
  static F to_float(Int x) noexcept { return _mm512_cvtepi32_ps(__m512i(x)); }
  /// Of every lane the low bytes of x[0], x[1], x[2], x[3].
  static Int four_bytes(const Int (&x)[4]) noexcept {
    const __m512i low = _mm512_mask_blend_epi8(0x2222222222222222, __m512i(x[0]), __m512i(x[1] << 8));
    const __m512i high = _mm512_mask_blend_epi8(0x8888888888888888, __m512i(x[2] << 16), __m512i(x[3] << 24));
    return Int(_mm512_mask_blend_epi16(0xaaaaaaaa, low, high));
  }
  /// The larger magnitude of each lane, where `top` is one. As integers, for which a NaN is the largest: no max of
  /// floats keeps it.
  static F larger(F top, F x) noexcept {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(top), _mm512_castps_si512(abs(x))));
  }
  /// 64 lanes of 0..255.
  static void store_bytes(uint8_t* p, const Int (&x)[4]) noexcept {
    const __m512i low = _mm512_packus_epi32(__m512i(x[0]), __m512i(x[1]));
    const __m512i high = _mm512_packus_epi32(__m512i(x[2]), __m512i(x[3]));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);  // of fours of bytes
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
  }
  /// sum + the products of the four bytes of u, unsigned, and s, signed.
  static Int dot(Int sum, Int u, Int s) noexcept {
    return Int(_mm512_dpbusd_epi32(__m512i(sum), __m512i(u), __m512i(s)));
  }
  struct Squares {
    __m512d a = _mm512_setzero_pd(), b = _mm512_setzero_pd();
    void add(F x) noexcept {
      const __m512d lo = _mm512_cvtps_pd(_mm512_castps512_ps256(x)), hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
      a = _mm512_fmadd_pd(lo, lo, a);
      b = _mm512_fmadd_pd(hi, hi, b);
    }
    double total() const noexcept { return _mm512_reduce_add_pd(_mm512_add_pd(a, b)); }
  };
  static F hadamard(F x) noexcept {
    const F sign = set(-0.0f);
    x = _mm512_add_ps(_mm512_permute_ps(x, 0xb1), _mm512_mask_xor_ps(x, 0xaaaa, x, sign));
    x = _mm512_add_ps(_mm512_permute_ps(x, 0x4e), _mm512_mask_xor_ps(x, 0xcccc, x, sign));
    x = _mm512_add_ps(_mm512_shuffle_f32x4(x, x, 0xb1), _mm512_mask_xor_ps(x, 0xf0f0, x, sign));
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, x, 0x4e), _mm512_mask_xor_ps(x, 0xff00, x, sign));
  }
};

}  // namespace
