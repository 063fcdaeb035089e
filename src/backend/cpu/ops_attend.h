// Attention over pages: part of ops_body.h, over the same Vec.
#pragma once
#include "backend/cpu/ops.h"

namespace {

using namespace tern::cpu;

constexpr int64_t kPage = 64;  // tokens; kPageTokens of plan/step.h

/// exp(x) within 2 units in the last place for x in [-87.3, 88.3]; 0 below, about 2e38 above.
template <typename V = Vec>
typename V::F exp_of(typename V::F x) noexcept {
  if constexpr (V::kWidth == 1) {
    return __builtin_expf(x);
  } else {
    const auto t = V::min(V::max(x, V::set(-87.33f)), V::set(88.37f));
    const auto n = V::round(V::mul(t, V::set(1.44269504f)));  // x = n ln2 + r, |r| <= ln2/2; ln2 in two parts
    const auto r = V::fma(n, V::set(-1.42860677e-6f), V::fma(n, V::set(-0.693145752f), t));
    auto p = V::fma(V::set(1.98412698e-4f), r, V::set(1.38888889e-3f));  // Taylor: |r|^8 / 8! < 6e-9
    p = V::fma(p, r, V::set(8.33333333e-3f));
    p = V::fma(p, r, V::set(4.16666667e-2f));
    p = V::fma(p, r, V::set(1.66666667e-1f));
    p = V::fma(p, r, V::set(0.5f));
    p = V::fma(p, r, V::set(1.0f));
    p = V::fma(p, r, V::set(1.0f));
    return V::zero_below(x, -87.33f, V::scale2(p, n));
  }
}

float larger(float a, float b) noexcept {
  return a > b ? a : b;
}

void scale(float a, const float* x, int64_t n, float* y) noexcept {
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) Vec::store(y + i, Vec::mul(Vec::set(a), Vec::load(x + i)));
  for (; i < n; ++i) y[i] = a * x[i];
}

void add_scaled(float a, const float* x, int64_t n, float* y) noexcept {
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) {
    Vec::store(y + i, Vec::fma(Vec::set(a), Vec::load(x + i), Vec::load(y + i)));
  }
  for (; i < n; ++i) y[i] += a * x[i];
}

// ---- C[m][n] (+)= A[m][k] B[k][n], B in f32 or f16 ----

struct FromF32 {
  using T = float;
  static Vec::F load(const float* p) noexcept { return Vec::load(p); }
  static float one(float x) noexcept { return x; }
};
struct FromF16 {
  using T = uint16_t;
  static Vec::F load(const uint16_t* p) noexcept { return Vec::load_f16(p); }
  static float one(uint16_t x) noexcept { return Vec::half(x); }
};

template <typename T>
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const T* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool add;  // to what C holds
};

template <typename From, int kRows, int kVecs>
void product_tile(const Product<typename From::T>& p, int64_t row, int64_t col) noexcept {
  Vec::F sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = p.add ? Vec::load(p.c + (row + r) * p.ldc + col + v * Vec::kWidth) : Vec::zero();
    }
  }
  const float* a = p.a + row * p.lda;
  const typename From::T* b = p.b + col;
  for (int64_t k = 0; k < p.k; ++k, b += p.ldb) {
    Vec::F x[kVecs];
    for (int v = 0; v < kVecs; ++v) x[v] = From::load(b + v * Vec::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const Vec::F y = Vec::set(a[r * p.lda + k]);
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Vec::fma(y, x[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Vec::store(p.c + (row + r) * p.ldc + col + v * Vec::kWidth, sum[r][v]);
  }
}

/// The rows of a strip of columns, kRows at a time, then fewer.
template <typename From, int kVecs, int kRows = Vec::kTileRows>
void product_strip(const Product<typename From::T>& p, int64_t row, int64_t col) noexcept {
  for (; row + kRows <= p.m; row += kRows) product_tile<From, kRows, kVecs>(p, row, col);
  if constexpr (kRows > 1) {
    if (row < p.m) product_strip<From, kVecs, kRows - 1>(p, row, col);
  }
}

template <typename From>
void product(const Product<typename From::T>& p) noexcept {
  int64_t col = 0;
  for (; col + Vec::kTileVecs * Vec::kWidth <= p.n; col += Vec::kTileVecs * Vec::kWidth) {
    product_strip<From, Vec::kTileVecs>(p, 0, col);
  }
  for (; col + Vec::kWidth <= p.n; col += Vec::kWidth) product_strip<From, 1>(p, 0, col);
  for (; col < p.n; ++col) {
    for (int64_t r = 0; r < p.m; ++r) {
      float sum = p.add ? p.c[r * p.ldc + col] : 0.0f;
      for (int64_t k = 0; k < p.k; ++k) sum += p.a[r * p.lda + k] * From::one(p.b[k * p.ldb + col]);
      p.c[r * p.ldc + col] = sum;
    }
  }
}

// ---- Pages ----

/// The f16 scales that follow the codes of a q8 page.
template <typename Byte>
auto* q8_scales(Byte* page, int64_t dim) noexcept {
  if constexpr (__is_same(Byte, const std::byte)) {
    return reinterpret_cast<const uint16_t*>(page + kPage * dim);
  } else {
    return reinterpret_cast<uint16_t*>(page + kPage * dim);
  }
}

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

/// Writes x[i] to page element `first + i * step`.
void write_entry(const KvEntry& e, std::byte* page, int64_t first, int64_t step) noexcept {
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

void write_k(const KvEntry& e, std::byte* page) noexcept {
  if (e.type != PageType::kQ8) return write_entry(e, page, e.token, kPage);
  auto* codes = reinterpret_cast<int8_t*>(page);
  for (int64_t i = 0; i < e.dim; i += 32) {
    q8_scales(page, e.dim)[i / 32 * kPage + e.token] = encode_q8(e.x + i, codes + i * kPage + e.token, kPage);
  }
}

void write_v(const KvEntry& e, std::byte* page) noexcept {
  if (e.type != PageType::kQ8) return write_entry(e, page, e.token * e.dim, 1);
  auto* codes = reinterpret_cast<int8_t*>(page) + e.token * e.dim;
  for (int64_t i = 0; i < e.dim; i += 32) {
    q8_scales(page, e.dim)[(e.token * e.dim + i) / 32] = encode_q8(e.x + i, codes + i, 1);
  }
}

/// A q8 page as f32 [dim][64].
void widen_k(const std::byte* page, int64_t dim, float* out) noexcept {
  const auto* codes = reinterpret_cast<const int8_t*>(page);
  const uint16_t* scales = q8_scales(page, dim);
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t t = 0; t < kPage; t += Vec::kWidth) {
      Vec::store(out + i * kPage + t,
                 Vec::mul(Vec::load_i8(codes + i * kPage + t), Vec::load_f16(scales + i / 32 * kPage + t)));
    }
  }
}

/// The first `tokens` tokens of a q8 page as f32 [tokens][dim].
void widen_v(const std::byte* page, int64_t dim, int64_t tokens, float* out) noexcept {
  const auto* codes = reinterpret_cast<const int8_t*>(page);
  const uint16_t* scales = q8_scales(page, dim);
  for (int64_t at = 0; at < tokens * dim; at += 32) {
    const Vec::F d = Vec::set(Vec::half(scales[at / 32]));
    for (int64_t i = at; i < at + 32; i += Vec::kWidth) Vec::store(out + i, Vec::mul(Vec::load_i8(codes + i), d));
  }
}

// ---- Online softmax over the pages ----

/// What a tile keeps of all its query vectors (one a row and head, rows first).
struct TileMemory {
  int64_t vectors;
  float *q, *s, *sum, *top, *total, *wide;  // [n][dim_k], [n][64], [n][dim_v], [n], [n], [64][dim]
};

TileMemory open_tile(const AttendTile& t) noexcept {
  TileMemory m{};
  m.vectors = int64_t{t.rows} * t.group;
  m.q = t.scratch;
  m.s = m.q + m.vectors * t.dim_k;
  m.sum = m.s + m.vectors * kPage;
  m.top = m.sum + m.vectors * t.dim_v;
  m.total = m.top + m.vectors;
  m.wide = m.total + m.vectors;
  for (int64_t r = 0; r < t.rows; ++r) {
    scale(t.scale, t.q + r * t.q_stride, t.group * t.dim_k, m.q + r * t.group * t.dim_k);
  }
  for (int64_t i = 0; i < m.vectors * t.dim_v; ++i) m.sum[i] = 0;
  for (int64_t i = 0; i < m.vectors; ++i) m.top[i] = -__builtin_inff(), m.total[i] = 0;
  return m;
}

void score_page(const AttendTile& t, const TileMemory& m, const std::byte* k) noexcept {
  if (t.k_type == PageType::kF16) {
    product<FromF16>({.m = m.vectors,
                      .n = kPage,
                      .k = t.dim_k,
                      .a = m.q,
                      .lda = t.dim_k,
                      .b = reinterpret_cast<const uint16_t*>(k),
                      .ldb = kPage,
                      .c = m.s,
                      .ldc = kPage,
                      .add = false});
    return;
  }
  const auto* wide = reinterpret_cast<const float*>(k);
  if (t.k_type == PageType::kQ8) {
    widen_k(k, t.dim_k, m.wide);
    wide = m.wide;
  }
  product<FromF32>({.m = m.vectors,
                    .n = kPage,
                    .k = t.dim_k,
                    .a = m.q,
                    .lda = t.dim_k,
                    .b = wide,
                    .ldb = kPage,
                    .c = m.s,
                    .ldc = kPage,
                    .add = false});
}

/// Turns the scores of the first `visible` tokens into weights against the running maximum, the rest into zeros.
void weigh(const TileMemory& m, int64_t vector, int64_t visible, int64_t dim_v) noexcept {
  float* s = m.s + vector * kPage;
  for (int64_t i = visible < 0 ? 0 : visible; i < kPage; ++i) s[i] = -__builtin_inff();
  if (visible <= 0) {
    for (int64_t i = 0; i < kPage; ++i) s[i] = 0;
    return;
  }
  Vec::F tops = Vec::load(s);
  for (int64_t i = Vec::kWidth; i < kPage; i += Vec::kWidth) tops = Vec::max(tops, Vec::load(s + i));
  const float before = m.top[vector], top = larger(before, Vec::top(tops));
  Vec::F sums = Vec::zero();
  for (int64_t i = 0; i < kPage; i += Vec::kWidth) {
    const Vec::F e = exp_of(Vec::sub(Vec::load(s + i), Vec::set(top)));
    Vec::store(s + i, e);
    sums = Vec::add(sums, e);
  }
  m.top[vector] = top;
  if (top > before) {
    const float keep = __builtin_expf(before - top);
    m.total[vector] *= keep;
    scale(keep, m.sum + vector * dim_v, dim_v, m.sum + vector * dim_v);
  }
  m.total[vector] += Vec::sum(sums);
}

void add_values(const AttendTile& t, const TileMemory& m, const std::byte* v, int64_t tokens) noexcept {
  if (t.v_type == PageType::kF16) {
    product<FromF16>({.m = m.vectors,
                      .n = t.dim_v,
                      .k = tokens,
                      .a = m.s,
                      .lda = kPage,
                      .b = reinterpret_cast<const uint16_t*>(v),
                      .ldb = t.dim_v,
                      .c = m.sum,
                      .ldc = t.dim_v,
                      .add = true});
    return;
  }
  const auto* wide = reinterpret_cast<const float*>(v);
  if (t.v_type == PageType::kQ8) {
    widen_v(v, t.dim_v, tokens, m.wide);
    wide = m.wide;
  }
  product<FromF32>({.m = m.vectors,
                    .n = t.dim_v,
                    .k = tokens,
                    .a = m.s,
                    .lda = kPage,
                    .b = wide,
                    .ldb = t.dim_v,
                    .c = m.sum,
                    .ldc = t.dim_v,
                    .add = true});
}

void close_tile(const AttendTile& t, const TileMemory& m) noexcept {
  for (int64_t i = 0; i < m.vectors; ++i) {
    const float* sum = m.sum + i * t.dim_v;
    if (t.partial) {
      float* out = t.out + i * (t.dim_v + 2);
      scale(1.0f, sum, t.dim_v, out);
      out[t.dim_v] = m.top[i];
      out[t.dim_v + 1] = m.total[i];
    } else {
      scale(1.0f / m.total[i], sum, t.dim_v, t.out + i / t.group * t.out_stride + i % t.group * t.dim_v);
    }
  }
}

void attend(const AttendTile& t) noexcept {
  const TileMemory m = open_tile(t);
  for (int64_t page = t.page_begin; page < t.page_end; ++page) {
    const int64_t first = page * kPage, seen = t.position + t.rows - first;  // by the last row
    const int64_t at = t.pages[page] * t.page_bytes;
    score_page(t, m, t.k + at);
    for (int64_t i = 0; i < m.vectors; ++i) {
      const int64_t visible = t.position + i / t.group + 1 - first;
      weigh(m, i, visible < kPage ? visible : kPage, t.dim_v);
    }
    add_values(t, m, t.v + at, seen < kPage ? seen : kPage);
  }
  close_tile(t, m);
}

}  // namespace
