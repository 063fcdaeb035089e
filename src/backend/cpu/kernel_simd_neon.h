// What the NEON tiers share of the vector operations (kernel_simd_scalar.h says what each means): ARMv8.2 with dotprod.
// sdot multiplies signed bytes, so 8-bit codes stay signed; smaller codes are the same bytes either way.
#pragma once
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace tern::cpu {
namespace {

struct Neon {
  static constexpr int kLanes = 4;
  static constexpr bool kSignedBytes = true;
  static constexpr int kFloatRows = 4, kFloatActs = 4;
  using Int = int32x4_t;
  using Float = float32x4_t;
  using Part = int32x4_t;

  static uint8x16_t bytes(Int v) { return vreinterpretq_u8_s32(v); }
  static Int of(uint8x16_t v) { return vreinterpretq_s32_u8(v); }

  static Int zero() { return vdupq_n_s32(0); }
  static Int load(const void* p) { return of(vld1q_u8(static_cast<const uint8_t*>(p))); }
  static void store(void* p, Int v) { vst1q_u8(static_cast<uint8_t*>(p), bytes(v)); }
  static Int splat8(int v) { return of(vdupq_n_u8(static_cast<uint8_t>(v))); }
  static Int splat32(const void* p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return vdupq_n_s32(v);
  }
  static int8x8_t four_bytes(const void* p) {
    uint32_t v;
    __builtin_memcpy(&v, p, 4);
    return vreinterpret_s8_u32(vdup_n_u32(v));
  }
  static Int lanes_i8(const void* p) { return vmovl_s16(vget_low_s16(vmovl_s8(four_bytes(p)))); }
  static Int lanes_u8(const void* p) {
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_s8(four_bytes(p))))));
  }
  static Int bit_and(Int a, Int b) { return vandq_s32(a, b); }
  static Int bit_or(Int a, Int b) { return vorrq_s32(a, b); }
  template <int N>
  static Int shr(Int a) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), N));
  }
  template <int N>
  static Int shl(Int a) {
    return vshlq_n_s32(a, N);
  }
  template <int N>
  static Int shift_right(Int a) {
    return vshrq_n_s32(a, N);
  }
  static Int mul32(Int a, int32_t b) { return vmulq_n_s32(a, b); }
  static Int shift_left(Int a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
  static Int add8(Int a, Int b) { return of(vaddq_u8(bytes(a), bytes(b))); }
  static Int sub8(Int a, Int b) { return of(vsubq_u8(bytes(a), bytes(b))); }
  static Int min_u8(Int a, Int b) { return of(vminq_u8(bytes(a), bytes(b))); }
  static Int add32(Int a, Int b) { return vaddq_s32(a, b); }
  static Int sub32(Int a, Int b) { return vsubq_s32(a, b); }
  static Int max32(Int a, Int b) { return vmaxq_s32(a, b); }
  static Int load_table16(const void* p) { return load(p); }
  static Int table16(Int table, Int index) { return of(vqtbl1q_u8(bytes(table), bytes(index))); }

  template <int kMaxCode>
  static constexpr int kChain = 1 << 20;
  static Part begin() { return zero(); }
  template <int kMaxCode>
  static Part dot(Part acc, Int codes, Int q) {
    return vdotq_s32(acc, vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(q));
  }
  template <int kMaxCode>
  static Int end(Part acc) {
    return acc;
  }

  static Float zero_f() { return vdupq_n_f32(0); }
  static Float load_f(const float* p) { return vld1q_f32(p); }
  static void store_f(float* p, Float v) { vst1q_f32(p, v); }
  static Float splat_f(float v) { return vdupq_n_f32(v); }
  static Float to_float(Int v) { return vcvtq_f32_s32(v); }
  static Float bits_to_float(Int v) { return vreinterpretq_f32_s32(v); }
  static Float load_f16(const void* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(static_cast<const uint16_t*>(p))));
  }
  static Float load_bf16(const void* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(static_cast<const uint16_t*>(p)), 16));
  }
  static Float add(Float a, Float b) { return vaddq_f32(a, b); }
  static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
  static Float div(Float a, Float b) { return vdivq_f32(a, b); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float max(Float a, Float b) { return vmaxq_f32(a, b); }
  static Float magnitude(Float a) { return vabsq_f32(a); }
  static float sum(Float a) { return vaddvq_f32(a); }
  static float largest(Float a) { return vmaxvq_f32(a); }

  static int32_t round16(const float* x, float multiplier, int8_t* q) {
    int32x4_t v[4];
    for (int i = 0; i < 4; ++i) v[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), multiplier));
    const int16x8_t low = vcombine_s16(vqmovn_s32(v[0]), vqmovn_s32(v[1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32(v[2]), vqmovn_s32(v[3]));
    vst1q_s8(q, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    return vaddvq_s32(vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3])));
  }
  static void prefetch(const void* p) { __builtin_prefetch(p); }
};

}  // namespace
}  // namespace tern::cpu
