// A file's block taken apart into codes and scales: split(block, row, i) fills UnitRow with block i of a unit.
#pragma once
#include "backend/cpu/kernel_scales.inl"
#include "quant/i2_s.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/pq2_0.h"
#include "quant/ptq1_0.h"
#include "quant/q1_0.h"
#include "quant/q2_0.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

namespace tern::cpu {
namespace {

using namespace quant;

// Rewritten from quant's index arithmetic: repacking is most of the time to load. Ternary codes are taken apart in
// vectors of the compiler's own, each stored as it is read again or in larger parts: a vector loaded from two stores
// waits for both to leave the core.

template <int N>
struct Bytes {
  typedef uint8_t Vector __attribute__((vector_size(N)));
};
using Bytes16 = Bytes<16>::Vector;
TERN_INLINE inline Bytes16 zip_low(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
TERN_INLINE inline Bytes16 zip_high(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/// kDigits codes a byte in base 3, the most significant first: byte m of N holds the codes m, m + N, m + 2 N ... Of v / 256
/// the next digit is the whole part of 3 v.
template <int kDigits, int N>
TERN_INLINE inline void split_trits(const uint8_t* bytes, uint8_t* codes) {
  using Vector = typename Bytes<N>::Vector;
  Vector v;
  __builtin_memcpy(&v, bytes, N);
  for (int n = 0; n < kDigits; ++n) {
    const Vector digit = -(reinterpret_cast<Vector>(v > 85) + reinterpret_cast<Vector>(v > 170));
    __builtin_memcpy(codes + n * N, &digit, N);
    v = v + v + v;
  }
}
/// Four codes a byte, the first in the low bits.
template <int kCodes>
TERN_INLINE inline void split_pairs(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < kCodes; i += 64) {
    Bytes16 v;
    __builtin_memcpy(&v, bytes + i / 4, 16);
    const Bytes16 pairs[2] = {zip_low(v & 15, v >> 4), zip_high(v & 15, v >> 4)};
    for (int h = 0; h < 2; ++h) {
      const Bytes16 first = pairs[h] & 3, second = pairs[h] >> 2;
      const Bytes16 four[2] = {zip_low(first, second), zip_high(first, second)};
      __builtin_memcpy(codes + i + 32 * h, &four[0], 16);
      __builtin_memcpy(codes + i + 32 * h + 16, &four[1], 16);
    }
  }
}
TERN_INLINE inline void split(const BlockTQ1_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_trits<5, 32>(b.qs, r.codes + 256 * i);
  split_trits<5, 16>(b.qs + 32, r.codes + 256 * i + 160);
  split_trits<4, 4>(b.qh, r.codes + 256 * i + 240);
}
TERN_INLINE inline void split(const BlockPTQ1_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_trits<5, 16>(b.qs, r.codes + 128 * i);
  split_trits<5, 8>(b.qs + 16, r.codes + 128 * i + 80);
  uint32_t v = b.qh[0] | static_cast<uint32_t>(b.qh[1]) << 16;  // two bytes at a time: the same digits
  uint64_t last = 0;
  for (int n = 0; n < 4; ++n) {
    v = (v & 0x00ff00ffu) * 3;
    const uint32_t pair = (v >> 8) & 0x00030003u;
    last |= uint64_t{(pair | pair >> 8) & 0xffffu} << (16 * n);
  }
  __builtin_memcpy(r.codes + 128 * i + 120, &last, 8);
}
TERN_INLINE inline void split(const BlockPQ2_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_pairs<128>(b.qs, r.codes + 128 * i);
}
TERN_INLINE inline void split(const BlockQ2_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_pairs<64>(b.qs, r.codes + 64 * i);
}

/// Nibbles of 32 weights: byte j holds weight j low, weight j + 16 high.
inline void split_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 15;
    codes[j + 16] = static_cast<uint8_t>(qs[j] >> 4);
  }
}
template <typename Block>
void split_fifth_bits(const Block& b, uint8_t* codes) {
  uint32_t bits;
  __builtin_memcpy(&bits, b.qh, 4);
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(codes[j] | ((bits >> j) & 1) << 4);
}
template <typename Block>
void split_k_scales(const Block& b, UnitRow& r) {
  r.d[0] = b.d;
  r.m[0] = b.dmin;
  for (int g = 0; g < 8; ++g) {
    const ScaleMin s = unpack_scale_min(b.scales, g);
    r.scale[g] = s.scale;
    r.minimum[g] = s.minimum;
  }
}
/// Nibbles of 256 weights as Q4_K and Q5_K lay them.
inline void split_k_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int g = 0; g < 4; ++g) {
    for (int j = 0; j < 32; ++j) {
      codes[64 * g + j] = qs[32 * g + j] & 15;
      codes[64 * g + 32 + j] = static_cast<uint8_t>(qs[32 * g + j] >> 4);
    }
  }
}
/// 2-bit fields of 256 weights as Q2_K and Q3_K lay them.
inline void split_k_pairs(const uint8_t* qs, uint8_t* codes) {
  for (int h = 0; h < 2; ++h) {
    for (int s = 0; s < 4; ++s) {
      for (int p = 0; p < 32; ++p) codes[128 * h + 32 * s + p] = (qs[32 * h + p] >> (2 * s)) & 3;
    }
  }
}

inline void split(const BlockTQ2_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_k_pairs(b.qs, r.codes + 256 * i);
}
inline void split(const BlockI2_S& b, UnitRow& r, int i) {
  for (int g = 0; g < 4; ++g) {
    for (int p = 0; p < 32; ++p) r.codes[128 * i + 32 * g + p] = (b.qs[p] >> (6 - 2 * g)) & 3;
  }
}
inline void split(const BlockQ4_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_nibbles(b.qs, r.codes + 32 * i);
}
inline void split(const BlockQ4_1& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  r.m[i] = b.m;
  split_nibbles(b.qs, r.codes + 32 * i);
}
inline void split(const BlockQ5_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_nibbles(b.qs, r.codes + 32 * i);
  split_fifth_bits(b, r.codes + 32 * i);
}
inline void split(const BlockQ5_1& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  r.m[i] = b.m;
  split_nibbles(b.qs, r.codes + 32 * i);
  split_fifth_bits(b, r.codes + 32 * i);
}
inline void split(const BlockQ8_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  for (int j = 0; j < 32; ++j) r.codes[32 * i + j] = static_cast<uint8_t>(b.qs[j] + Bits8<32>::kBias);
}
inline void split(const BlockIQ4_NL& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  split_nibbles(b.qs, r.codes + 32 * i);
}
inline void split(const BlockMXFP4& b, UnitRow& r, int i) {
  r.d[i] = b.e;
  split_nibbles(b.qs, r.codes + 32 * i);
}
/// A UE4M3 scale is an f16 exactly: 3 mantissa bits, 2^-10 .. 2^8.
inline void split(const BlockNVFP4& b, UnitRow& r, int) {
  for (int s = 0; s < 4; ++s) {
    r.d[s] = f32_to_f16(ue4m3_half(b.scales[s]));
    for (int j = 0; j < 8; ++j) {
      r.codes[16 * s + j] = b.qs[8 * s + j] & 15;
      r.codes[16 * s + j + 8] = static_cast<uint8_t>(b.qs[8 * s + j] >> 4);
    }
  }
}
inline void split(const BlockQ1_0& b, UnitRow& r, int i) {
  r.d[i] = b.d;
  for (int j = 0; j < 128; ++j) r.codes[128 * i + j] = static_cast<uint8_t>(((b.bits[j / 8] >> (j % 8)) & 1) * 2);
}
inline void split(const BlockQ4_K& b, UnitRow& r, int) {
  split_k_scales(b, r);
  split_k_nibbles(b.qs, r.codes);
}
inline void split(const BlockQ5_K& b, UnitRow& r, int) {
  split_k_scales(b, r);
  split_k_nibbles(b.qs, r.codes);
  for (int g = 0; g < 8; ++g) {
    for (int j = 0; j < 32; ++j)
      r.codes[32 * g + j] = static_cast<uint8_t>(r.codes[32 * g + j] | ((b.qh[j] >> g) & 1) << 4);
  }
}
inline void split(const BlockQ6_K& b, UnitRow& r, int) {
  r.d[0] = b.d;
  __builtin_memcpy(r.scale, b.scales, 16);
  for (int h = 0; h < 2; ++h) {
    for (int s = 0; s < 4; ++s) {
      const uint8_t* low = b.ql + 64 * h + s % 2 * 32;
      for (int p = 0; p < 32; ++p) {
        const int code = ((low[p] >> (s / 2 * 4)) & 15) | ((b.qh[32 * h + p] >> (2 * s)) & 3) << 4;
        r.codes[128 * h + 32 * s + p] = static_cast<uint8_t>(code);
      }
    }
  }
}
inline void split(const BlockQ2_K& b, UnitRow& r, int) {
  r.d[0] = b.d;
  r.m[0] = b.dmin;
  for (int g = 0; g < 16; ++g) {
    r.scale[g] = b.scales[g] & 15;
    r.minimum[g] = static_cast<uint8_t>(b.scales[g] >> 4);
  }
  split_k_pairs(b.qs, r.codes);
}
inline void split(const BlockQ3_K& b, UnitRow& r, int) {
  r.d[0] = b.d;
  for (int g = 0; g < 16; ++g) r.scale[g] = static_cast<uint8_t>(group_scale(b, g));
  split_k_pairs(b.qs, r.codes);
  for (int e = 0; e < 256; ++e) {
    r.codes[e] = static_cast<uint8_t>(r.codes[e] | ((b.hmask[e % 32] >> (e / 32)) & 1) << 2);
  }
}
inline void split(const BlockIQ4_XS& b, UnitRow& r, int) {
  r.d[0] = b.d;
  for (int g = 0; g < 8; ++g) {
    r.scale[g] = static_cast<uint8_t>(group_scale(b, g));
    split_nibbles(b.qs + 16 * g, r.codes + 32 * g);
  }
}

/// True when a 2-bit code of the block is 3, which base 3 cannot hold. Formats that cannot express it never have it.
template <typename Block>
bool has_code_3(const Block& b) {
  if constexpr (requires { b.qh; }) {
    return false;
  } else {
    unsigned any = 0;
    for (const uint8_t v : b.qs) any |= v & (v >> 1) & 0x55u;
    return any != 0;
  }
}

/// The code books of the IQ4 formats and of MXFP4, biased as the tier multiplies them.
struct BookBytes {
  uint8_t v[16];
};
constexpr BookBytes biased(const int8_t (&values)[16], int bias) {
  BookBytes b{};
  for (int i = 0; i < 16; ++i) b.v[i] = static_cast<uint8_t>(values[i] + bias);
  return b;
}
struct BookIq4 {
  static constexpr int kBias = Simd::kSignedBytes ? 0 : 128, kMaxCode = 255;
  static constexpr BookBytes kTable = biased(kIq4Values, kBias);
};
struct BookE2m1 {
  static constexpr int kBias = 16, kMaxCode = 28;
  static constexpr BookBytes kTable = biased(kE2m1Doubled, kBias);
};

}  // namespace
}  // namespace tern::cpu
