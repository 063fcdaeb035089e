// Four floats: NEON of any ARMv8 (its f16 conversions and fused products are part of the base).
#pragma once
#include <arm_neon.h>

#include <cstdint>

namespace {

struct Vec {
  using F = float32x4_t;
  static constexpr int kWidth = 4;
  static constexpr bool kByteDots = false;
  static constexpr int kTileRows = 6, kTileVecs = 4;  // 24 sums of 32 registers

  static F zero() noexcept { return vdupq_n_f32(0); }
  static F set(float x) noexcept { return vdupq_n_f32(x); }
  static F load(const float* p) noexcept { return vld1q_f32(p); }
  static void store(float* p, F x) noexcept { vst1q_f32(p, x); }
  static F load_f16(const uint16_t* p) noexcept { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void store_f16(uint16_t* p, F x) noexcept { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static float half(uint16_t h) noexcept {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
  }
  static uint16_t to_half(float x) noexcept { return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(set(x))), 0); }
  static F load_i8(const int8_t* p) noexcept { return widen(vreinterpret_s8_u8(four_bytes(p))); }
  /// The low or high nibbles of 4 bytes, less 8.
  static F load_nibbles(const uint8_t* p, bool high) noexcept {
    const uint8x8_t x = vand_u8(shift_right(four_bytes(p), high ? 4 : 0), vdup_n_u8(15));
    return widen(vsub_s8(vreinterpret_s8_u8(x), vdup_n_s8(8)));
  }
  /// Bits [shift, shift + 2) of 4 bytes.
  static F load_crumbs(const uint8_t* p, int shift) noexcept {
    return widen(vreinterpret_s8_u8(vand_u8(shift_right(four_bytes(p), shift), vdup_n_u8(3))));
  }
  static F add(F a, F b) noexcept { return vaddq_f32(a, b); }
  static F sub(F a, F b) noexcept { return vsubq_f32(a, b); }
  static F mul(F a, F b) noexcept { return vmulq_f32(a, b); }
  static F div(F a, F b) noexcept { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) noexcept { return vfmaq_f32(c, a, b); }
  static F max(F a, F b) noexcept { return vmaxq_f32(a, b); }
  static F min(F a, F b) noexcept { return vminq_f32(a, b); }
  static F abs(F a) noexcept { return vabsq_f32(a); }
  static float sum(F a) noexcept { return vaddvq_f32(a); }
  static float top(F a) noexcept { return vmaxvq_f32(a); }
  static bool any_above(F a, float b) noexcept { return vmaxvq_u32(vcgtq_f32(a, set(b))) != 0; }
  /// a * 2^n for integral n in [-126, 127].
  static F scale2(F a, F n) noexcept {
    const int32x4_t e = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(a, vreinterpretq_f32_s32(e));
  }
  static F round(F a) noexcept { return vrndnq_f32(a); }
  static F zero_below(F x, float least, F y) noexcept {  // y where x >= least, else 0
    return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x, set(least)), vreinterpretq_u32_f32(y)));
  }
  struct Squares {
    float64x2_t a = vdupq_n_f64(0), b = vdupq_n_f64(0);
    void add(F x) noexcept {
      const float64x2_t lo = vcvt_f64_f32(vget_low_f32(x)), hi = vcvt_high_f64_f32(x);
      a = vfmaq_f64(a, lo, lo);
      b = vfmaq_f64(b, hi, hi);
    }
    double total() const noexcept { return vaddvq_f64(vaddq_f64(a, b)); }
  };
  static F hadamard(F x) noexcept {
    x = vaddq_f32(vrev64q_f32(x), negate(x, uint32x4_t{0, kSign, 0, kSign}));
    return vaddq_f32(vextq_f32(x, x, 2), negate(x, uint32x4_t{0, 0, kSign, kSign}));
  }

 private:
  static constexpr uint32_t kSign = 0x80000000u;
  static F negate(F x, uint32x4_t signs) noexcept {
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), signs));
  }
  static uint8x8_t four_bytes(const void* p) noexcept {
    uint32_t v;
    __builtin_memcpy(&v, p, 4);
    return vreinterpret_u8_u32(vdup_n_u32(v));
  }
  static uint8x8_t shift_right(uint8x8_t x, int n) noexcept { return vshl_u8(x, vdup_n_s8(static_cast<int8_t>(-n))); }
  static F widen(int8x8_t x) noexcept { return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(x)))); }
};

}  // namespace
