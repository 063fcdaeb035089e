// Keys and values in pages, written and read: part of ops_body.h, over the same Vec. A page is read through an operand
// of the small matrix product, B [k][n], so that every type is widened in registers on its way into the sums.
#pragma once
#include "backend/cpu/ops.h"

namespace {

using namespace tern::cpu;

constexpr int64_t kPage = 64;  // tokens; kPageTokens of plan/step.h

float larger(float a, float b) noexcept {
  return a > b ? a : b;
}

void hadamard(float* x, int64_t n, int64_t block) noexcept;

// ---- Operands ----

struct F32Matrix {
  const float* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept { return Vec::load(b + k * ld + col); }
  float one(int64_t k, int64_t col) const noexcept { return b[k * ld + col]; }
};

struct F16Matrix {
  const uint16_t* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept { return Vec::load_f16(b + k * ld + col); }
  float one(int64_t k, int64_t col) const noexcept { return Vec::half(b[k * ld + col]); }
};

/// int8 codes, a row of `ld` after the other.
struct ByteCodes {
  const std::byte* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::load_i8(reinterpret_cast<const int8_t*>(b) + k * ld + col);
  }
};
/// 4-bit codes less 8. Dims j and j + 16 of 32 share a byte, never two tokens: those are written by several threads.
struct KeyNibbles {
  const std::byte* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::load_nibbles(reinterpret_cast<const uint8_t*>(b) + ((k >> 5) * 16 + (k & 15)) * ld + col,
                             (k & 16) != 0);
  }
};
struct ValueNibbles {
  const std::byte* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::load_nibbles(reinterpret_cast<const uint8_t*>(b) + k * (ld / 2) + (col >> 5) * 16 + (col & 15),
                             (col & 16) != 0);
  }
};

/// Codes times the scale of 32 dims of a token. `scales` in f32: of keys [dim/32][64], of values [64][dim/32].
template <typename Codes>
struct KeyMatrix {
  Codes codes;
  const float* scales;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::mul(codes.load(k, col), Vec::load(scales + (k >> 5) * kPage + col));
  }
  float one(int64_t, int64_t) const noexcept { return 0; }  // 64 columns leave none over
};
template <typename Codes>
struct ValueMatrix {
  Codes codes;
  const float* scales;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::mul(codes.load(k, col), Vec::set(scales[k * (codes.ld >> 5) + (col >> 5)]));
  }
  float one(int64_t, int64_t) const noexcept { return 0; }  // nor does a multiple of 32
};

/// Codes of 2 or 4 bits with a scale and a least value for 32 elements along a row. Of 16 bytes of them, byte j holds
/// codes j, j + 16 and so on, the first in its low bits.
template <int kBits>
struct GroupMatrix {
  static constexpr uint64_t kBlock = 16 * 8 / kBits;  // codes in 16 bytes
  const std::byte* codes;
  int64_t ld;
  const float *scales, *least;  // of 4 bits: what a code of 8 means
  Vec::F load(int64_t k, int64_t col) const noexcept { return at(static_cast<uint64_t>(k * ld + col)); }
  Vec::F at(uint64_t i) const noexcept {
    return element(i / kBlock * 16 + i % 16, static_cast<int>(i % kBlock / 16) * kBits, i / 32);
  }
  Vec::F element(uint64_t byte, int shift, uint64_t group) const noexcept {
    const uint8_t* p = reinterpret_cast<const uint8_t*>(codes) + byte;
    const Vec::F x = kBits == 2 ? Vec::load_crumbs(p, shift) : Vec::load_nibbles(p, shift > 0);
    return Vec::fma(x, Vec::set(scales[group]), Vec::set(least[group]));
  }
  float one(int64_t, int64_t) const noexcept { return 0; }
};

/// Consecutive vectors of row k of an operand. Inline, or the call would spill every sum of the tile.
template <int kVecs, typename B>
[[gnu::always_inline]] inline void load_row(const B& b, int64_t k, int64_t col, Vec::F (&x)[kVecs]) noexcept {
  for (int v = 0; v < kVecs; ++v) x[v] = b.load(k, col + v * Vec::kWidth);
}
template <int kVecs>
[[gnu::always_inline]] inline void load_row(const GroupMatrix<2>& b, int64_t k, int64_t col,
                                            Vec::F (&x)[kVecs]) noexcept {
  const auto at = static_cast<uint64_t>(k * b.ld + col);
  if (kVecs * Vec::kWidth == 64 && at % 64 == 0) {  // the same 16 bytes at four shifts
    for (int v = 0; v < kVecs; ++v) {
      const int i = v * Vec::kWidth;
      x[v] = b.element(at / 4 + static_cast<uint64_t>(i % 16), i / 16 * 2, at / 32 + static_cast<uint64_t>(i / 32));
    }
  } else {
    for (int v = 0; v < kVecs; ++v) x[v] = b.at(at + static_cast<uint64_t>(v * Vec::kWidth));
  }
}

// ---- Scaled pages: codes of all tokens, then f16 scales ----

constexpr int64_t code_bytes(PageType type, int64_t n) noexcept {
  return type == PageType::kQ8 ? n : type == PageType::kKivi ? n / 4 : n / 2;
}

/// The scales of a page, and the least values behind them, in f32.
const float* widen_scales(PageType type, const std::byte* page, int64_t dim, float* out) noexcept {
  const auto* scales = reinterpret_cast<const uint16_t*>(page + code_bytes(type, kPage * dim));
  const int64_t n = kPage * dim / 32 * (is_kivi(type) ? 2 : 1);
  for (int64_t i = 0; i < n; i += Vec::kWidth) Vec::store(out + i, Vec::load_f16(scales + i));
  return out;
}

template <int kBits>
GroupMatrix<kBits> group_matrix(const std::byte* page, int64_t dim, int64_t ld, float* scales) noexcept {
  const int64_t n = kPage * dim / 32;
  float* least = scales + n;
  widen_scales(kBits == 2 ? PageType::kKivi : PageType::kKivi4, page, dim, scales);
  if constexpr (kBits == 4) {  // codes are read less 8
    for (int64_t i = 0; i < n; i += Vec::kWidth) {
      Vec::store(least + i, Vec::fma(Vec::set(8.0f), Vec::load(scales + i), Vec::load(least + i)));
    }
  }
  return {page, ld, scales, least};
}

/// Calls f with the keys [dim][64] of a page as an operand. `scales`: 4 * dim floats of memory.
template <typename F>
void with_keys(PageType type, const std::byte* page, int64_t dim, float* scales, F f) noexcept {
  switch (type) {
    case PageType::kF32:
      return f(F32Matrix{reinterpret_cast<const float*>(page), kPage});
    case PageType::kF16:
      return f(F16Matrix{reinterpret_cast<const uint16_t*>(page), kPage});
    case PageType::kQ8:
      return f(KeyMatrix<ByteCodes>{{page, kPage}, widen_scales(type, page, dim, scales)});
    case PageType::kQ4:
      return f(KeyMatrix<KeyNibbles>{{page, kPage}, widen_scales(type, page, dim, scales)});
    case PageType::kKivi:
      return f(group_matrix<2>(page, dim, kPage, scales));
    case PageType::kKivi4:
      return f(group_matrix<4>(page, dim, kPage, scales));
  }
}

/// The values [64][dim] of a page.
template <typename F>
void with_values(PageType type, const std::byte* page, int64_t dim, float* scales, F f) noexcept {
  switch (type) {
    case PageType::kF32:
      return f(F32Matrix{reinterpret_cast<const float*>(page), dim});
    case PageType::kF16:
      return f(F16Matrix{reinterpret_cast<const uint16_t*>(page), dim});
    case PageType::kQ8:
      return f(ValueMatrix<ByteCodes>{{page, dim}, widen_scales(type, page, dim, scales)});
    case PageType::kQ4:
      return f(ValueMatrix<ValueNibbles>{{page, dim}, widen_scales(type, page, dim, scales)});
    case PageType::kKivi:
      return f(group_matrix<2>(page, dim, dim, scales));
    case PageType::kKivi4:
      return f(group_matrix<4>(page, dim, dim, scales));
  }
}

// ---- Writing ----

/// 32 values as q8_0: codes at q[i * step], nearest with halves away from zero, d = max|x| / 127. Returns the f16
/// scale.
uint16_t encode_q8(const float* x, int8_t* q, int64_t step) noexcept {
  float top = 0;
  for (int i = 0; i < 32; ++i) top = larger(top, __builtin_fabsf(x[i]));
  const float d = top / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float y = x[i] * inverse, whole = __builtin_truncf(y);
    const float away = __builtin_fabsf(y - whole) >= 0.5f ? __builtin_copysignf(1.0f, y) : 0.0f;
    q[i * step] = static_cast<int8_t>(whole + away);
  }
  return Vec::to_half(d);
}

/// 32 values as q4_0 (quant/q4_0.h): the value of largest magnitude lands on code 0 (-8), halves round up.
uint16_t encode_q4(const float* x, uint8_t* codes) noexcept {
  float top = 0, signed_top = 0;
  for (int i = 0; i < 32; ++i) {
    if (__builtin_fabsf(x[i]) > top) top = __builtin_fabsf(x[i]), signed_top = x[i];
  }
  const float d = signed_top / -8.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float t = x[i] * inverse + 8.5f;
    codes[i] = static_cast<uint8_t>(t >= 15 ? 15 : t > 0 ? static_cast<int>(t) : 0);
  }
  return Vec::to_half(d);
}

/// Writes 32 dims of a token, byte j of theirs at at[j * step], and returns their scale.
uint16_t write_codes(PageType type, const float* x, std::byte* at, int64_t step) noexcept {
  if (type == PageType::kQ8) return encode_q8(x, reinterpret_cast<int8_t*>(at), step);
  uint8_t codes[32];
  const uint16_t d = encode_q4(x, codes);
  for (int64_t j = 0; j < 16; ++j) at[j * step] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
  return d;
}

/// Writes x[i] to page element `first + i * step`.
void write_plain(const KvEntry& e, std::byte* page, int64_t first, int64_t step) noexcept {
  if (e.type == PageType::kF32) {
    auto* to = reinterpret_cast<float*>(page) + first;
    for (int64_t i = 0; i < e.dim; ++i) to[i * step] = e.x[i];
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(page) + first;
  int64_t i = 0;
  for (; i + Vec::kWidth <= e.dim; i += Vec::kWidth) {
    uint16_t half[Vec::kWidth];
    Vec::store_f16(half, Vec::load(e.x + i));
    for (int j = 0; j < Vec::kWidth; ++j) to[(i + j) * step] = half[j];
  }
  for (; i < e.dim; ++i) to[i * step] = Vec::to_half(e.x[i]);
}

bool is_plain(PageType type) noexcept {
  return type == PageType::kF32 || type == PageType::kF16;
}

/// Keys of 4 bits are kept in the basis of the normalised Walsh-Hadamard transform, where no dim stands out: over the
/// largest power of two that divides the head. Queries are rotated alike, which leaves every score as it was.
void rotate_keys(float* x, int64_t n, int64_t dim) noexcept {
  hadamard(x, n, dim & -dim);
}

void write_k(const KvEntry& e, std::byte* page) noexcept {
  if (is_plain(e.type)) return write_plain(e, page, e.token, kPage);
  auto* scales = reinterpret_cast<uint16_t*>(page + code_bytes(e.type, kPage * e.dim));
  const float* x = e.x;
  float rotated[kMostHeadDim];
  if (e.type == PageType::kQ4) {
    for (int64_t i = 0; i < e.dim; ++i) rotated[i] = e.x[i];
    rotate_keys(rotated, e.dim, e.dim);
    x = rotated;
  }
  for (int64_t i = 0; i < e.dim; i += 32) {
    scales[i / 32 * kPage + e.token] =
        write_codes(e.type, x + i, page + code_bytes(e.type, i * kPage) + e.token, kPage);
  }
}

void write_v(const KvEntry& e, std::byte* page) noexcept {
  if (is_plain(e.type)) return write_plain(e, page, e.token * e.dim, 1);
  auto* scales = reinterpret_cast<uint16_t*>(page + code_bytes(e.type, kPage * e.dim));
  for (int64_t i = 0; i < e.dim; i += 32) {
    const int64_t at = e.token * e.dim + i;
    scales[at / 32] = write_codes(e.type, e.x + i, page + code_bytes(e.type, at), 1);
  }
}

/// 32 values as codes 0..top: x = least + code * d, d = (most - least) / top, both in f16; nearest, halves up.
void pack_group(const float* x, int top, uint8_t* codes, uint16_t& scale, uint16_t& least) noexcept {
  float lo = x[0], hi = x[0];
  for (int i = 1; i < 32; ++i) lo = x[i] < lo ? x[i] : lo, hi = larger(hi, x[i]);
  scale = Vec::to_half((hi - lo) / static_cast<float>(top));
  least = Vec::to_half(lo);
  const float d = Vec::half(scale), m = Vec::half(least), inverse = d > 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float t = (x[i] - m) * inverse + 0.5f;
    codes[i] = static_cast<uint8_t>(t >= static_cast<float>(top) ? top : t > 0 ? static_cast<int>(t) : 0);
  }
}

template <int kBits>
void pack_kivi(const uint16_t* exact, int64_t n, std::byte* page) noexcept {
  constexpr int kBlock = 16 * 8 / kBits;  // codes in 16 bytes
  auto* bytes = reinterpret_cast<uint8_t*>(page);
  auto* scales = reinterpret_cast<uint16_t*>(page + n * kBits / 8);
  for (int64_t at = 0; at < n; at += kBlock, bytes += 16) {
    float x[kBlock];
    uint8_t codes[kBlock];
    for (int i = 0; i < kBlock; i += Vec::kWidth) Vec::store(x + i, Vec::load_f16(exact + at + i));
    for (int g = 0; g < kBlock / 32; ++g) {
      pack_group(x + 32 * g, (1 << kBits) - 1, codes + 32 * g, scales[at / 32 + g], scales[(n + at) / 32 + g]);
    }
    for (int i = 0; i < 16; ++i) {
      bytes[i] = 0;
      for (int p = 0; p < kBlock / 16; ++p)
        bytes[i] = static_cast<uint8_t>(bytes[i] | codes[i + 16 * p] << (p * kBits));
    }
  }
}

}  // namespace
