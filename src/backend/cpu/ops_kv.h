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

/// int8 or 4-bit codes, a row of `ld` elements after the other. Of 32 codes of 4 bits, byte j holds j and j + 16.
struct ByteCodes {
  const std::byte* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::load_i8(reinterpret_cast<const int8_t*>(b) + k * ld + col);
  }
};
struct NibbleCodes {
  const std::byte* b;
  int64_t ld;
  Vec::F load(int64_t k, int64_t col) const noexcept {  // code - 8
    return Vec::load_nibbles(reinterpret_cast<const uint8_t*>(b) + k * (ld / 2) + col / 32 * 16 + col % 16,
                             col % 32 >= 16);
  }
};

/// Codes times the scale of 32 dims of a token. `scales` in f32: of keys [dim/32][64], of values [64][dim/32].
template <typename Codes>
struct KeyMatrix {
  Codes codes;
  const float* scales;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::mul(codes.load(k, col), Vec::load(scales + k / 32 * kPage + col));
  }
  float one(int64_t, int64_t) const noexcept { return 0; }  // 64 columns leave none over
};
template <typename Codes>
struct ValueMatrix {
  Codes codes;
  const float* scales;
  Vec::F load(int64_t k, int64_t col) const noexcept {
    return Vec::mul(codes.load(k, col), Vec::set(scales[k * (codes.ld / 32) + col / 32]));
  }
  float one(int64_t, int64_t) const noexcept { return 0; }  // nor does a multiple of 32
};

// ---- Scaled pages: codes of all tokens, then f16 scales ----

constexpr int64_t code_bytes(PageType type, int64_t n) noexcept {
  return type == PageType::kQ4 ? n / 2 : n;
}

const float* widen_scales(PageType type, const std::byte* page, int64_t dim, float* out) noexcept {
  const auto* scales = reinterpret_cast<const uint16_t*>(page + code_bytes(type, kPage * dim));
  for (int64_t i = 0; i < kPage * dim / 32; i += Vec::kWidth) Vec::store(out + i, Vec::load_f16(scales + i));
  return out;
}

/// Calls f with the keys [dim][64] of a page as an operand. `scales`: 2 * dim floats of memory.
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
      return f(KeyMatrix<NibbleCodes>{{page, kPage}, widen_scales(type, page, dim, scales)});
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
      return f(ValueMatrix<NibbleCodes>{{page, dim}, widen_scales(type, page, dim, scales)});
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

void set_nibble(uint8_t* row, int64_t i, uint8_t code) noexcept {
  uint8_t& byte = row[i / 32 * 16 + i % 16];
  byte = i % 32 >= 16 ? static_cast<uint8_t>((byte & 15) | code << 4) : static_cast<uint8_t>((byte & 0xf0) | code);
}

/// Writes 32 dims from `i` of e's token, element j at code `first + j * step` of the page, and returns their scale.
uint16_t write_codes(const KvEntry& e, const float* x, std::byte* page, int64_t first, int64_t step) noexcept {
  if (e.type == PageType::kQ8) return encode_q8(x, reinterpret_cast<int8_t*>(page) + first, step);
  uint8_t codes[32];
  const uint16_t d = encode_q4(x, codes);
  for (int64_t j = 0; j < 32; ++j) set_nibble(reinterpret_cast<uint8_t*>(page), first + j * step, codes[j]);
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
    scales[i / 32 * kPage + e.token] = write_codes(e, x + i, page, i * kPage + e.token, kPage);
  }
}

void write_v(const KvEntry& e, std::byte* page) noexcept {
  if (is_plain(e.type)) return write_plain(e, page, e.token * e.dim, 1);
  auto* scales = reinterpret_cast<uint16_t*>(page + code_bytes(e.type, kPage * e.dim));
  for (int64_t i = e.token * e.dim; i < (e.token + 1) * e.dim; i += 32) {
    scales[i / 32] = write_codes(e, e.x + i - e.token * e.dim, page, i, 1);
  }
}

}  // namespace
