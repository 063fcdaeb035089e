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

template <typename Block>
void split(const Block& b, UnitRow& r, int i) {  // the ternary formats
  unpack_codes(b, r.codes + i * Block::kElements);
  if constexpr (requires { b.d; }) r.d[i] = b.d;
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

/// Rewritten from quant's index arithmetic as loops that vectorise: repacking is most of the time to load.
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
