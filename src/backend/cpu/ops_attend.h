// Attention over pages: part of ops_body.h, over the same Vec.
#pragma once
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_attend_bytes.h"
#include "backend/cpu/ops_kv.h"
#include "backend/cpu/ops_math.h"

namespace {

using namespace tern::cpu;

// ---- C[m][n] (+)= A[m][k] B[k][n] ----

/// Bytes that will be read next, fetched on the way: `step` of them with every k.
struct Ahead {
  const std::byte* next = nullptr;
  int64_t step = 0;
};
/// `bytes` over so many steps, whole lines with each; nothing from nullptr.
Ahead spread(const std::byte* next, int64_t bytes, int64_t steps) noexcept {
  return {next, next ? (bytes / steps + 63) / 64 * 64 : 0};
}

template <typename B>  // named where it is used: clang 14 cannot deduce it
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  B b;
  float* c;
  int64_t ldc;
  Ahead ahead;
};

template <bool kAdd, int kRows, int kVecs, typename B>
void product_tile(const Product<B>& p, int64_t row, int64_t col, Ahead ahead) noexcept {
  Vec::F sum[kRows][kVecs];
  float* c = p.c + row * p.ldc + col;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      if constexpr (kAdd) {
        sum[r][v] = Vec::load(c + r * p.ldc + v * Vec::kWidth);
      } else {
        sum[r][v] = Vec::zero();
      }
    }
  }
  const float* a = p.a + row * p.lda;
  const B b = p.b;
  const int64_t lda = p.lda, steps = p.k;
  for (int64_t k = 0; k < steps; ++k) {
    for (int64_t line = 0; line < ahead.step; line += 64) __builtin_prefetch(ahead.next + k * ahead.step + line);
    Vec::F x[kVecs];
    load_row(b, k, col, x);
    for (int r = 0; r < kRows; ++r) {
      const Vec::F y = Vec::set(a[r * lda + k]);
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Vec::fma(y, x[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Vec::store(c + r * p.ldc + v * Vec::kWidth, sum[r][v]);
  }
}

/// The rows of a strip of columns, kRows at a time, then fewer.
template <bool kAdd, int kVecs, int kRows = Vec::kTileRows, typename B>
void product_strip(const Product<B>& p, int64_t row, int64_t col, Ahead ahead) noexcept {
  for (; row + kRows <= p.m; row += kRows, ahead = {}) product_tile<kAdd, kRows, kVecs>(p, row, col, ahead);
  if constexpr (kRows > 1) {
    if (row < p.m) product_strip<kAdd, kVecs, kRows - 1>(p, row, col, ahead);
  }
}

template <bool kAdd, typename B>
void product(const Product<B>& p) noexcept {
  int64_t col = 0;
  Ahead ahead = p.ahead;
  for (; col + Vec::kTileVecs * Vec::kWidth <= p.n; col += Vec::kTileVecs * Vec::kWidth, ahead = {}) {
    product_strip<kAdd, Vec::kTileVecs>(p, 0, col, ahead);
  }
  for (; col + Vec::kWidth <= p.n; col += Vec::kWidth) product_strip<kAdd, 1>(p, 0, col, {});
  for (; col < p.n; ++col) {
    for (int64_t r = 0; r < p.m; ++r) {
      float sum = kAdd ? p.c[r * p.ldc + col] : 0.0f;
      for (int64_t k = 0; k < p.k; ++k) sum += p.a[r * p.lda + k] * p.b.one(k, col);
      p.c[r * p.ldc + col] = sum;
    }
  }
}

// ---- Online softmax over the pages ----

/// What a tile keeps of all its query vectors (one a row and head, rows first).
struct TileMemory {
  int64_t vectors;
  float *q, *s, *sum, *top, *total, *scales, *wide;  // [n][dim_k], [n][64], [n][dim_v], [n], [n][width],
                                                     // [4 dim], [64][dim]
  float* bytes;                                      // of a ByteTile
};

TileMemory open_tile(const AttendTile& t) noexcept {
  TileMemory m{};
  m.vectors = int64_t{t.rows} * t.group;
  m.q = t.scratch;
  m.s = m.q + m.vectors * t.dim_k;
  m.sum = m.s + m.vectors * kPage;
  m.top = m.sum + m.vectors * t.dim_v;
  m.total = m.top + m.vectors;
  m.scales = m.total + m.vectors * Vec::kWidth;
  const int64_t dim = t.dim_k > t.dim_v ? t.dim_k : t.dim_v;
  m.wide = m.scales + 4 * dim;
  m.bytes = m.wide + kPage * dim;
  constexpr float kLog2E = 1.44269504f;  // weights are powers of two
  for (int64_t r = 0; r < t.rows; ++r) {
    scale(t.scale * kLog2E, t.q + r * t.q_stride, t.group * t.dim_k, m.q + r * t.group * t.dim_k);
  }
  if (t.k.type == PageType::kQ4) rotate_keys(m.q, m.vectors * t.dim_k, t.dim_k);
  for (int64_t i = 0; i < m.vectors * t.dim_v; ++i) m.sum[i] = 0;
  for (int64_t i = 0; i < m.vectors * Vec::kWidth; ++i) m.total[i] = 0;
  for (int64_t i = 0; i < m.vectors; ++i) m.top[i] = -__builtin_inff();
  return m;
}

/// Many query vectors read codes often enough that widening them once pays.
template <typename B, typename F>
void widened(const TileMemory& m, const B& b, int64_t rows, int64_t cols, F f) noexcept {
  if constexpr (requires { b.codes; }) {
    if (m.vectors > Vec::kTileRows) {
      for (int64_t k = 0; k < rows; ++k) {
        for (int64_t c = 0; c < cols; c += Vec::kWidth) Vec::store(m.wide + k * cols + c, b.load(k, c));
      }
      return f(F32Matrix{m.wide, cols});
    }
  }
  f(b);
}

struct PageView {
  PageType type;
  const std::byte* data;
};

PageView view(const PageSource& s, const AttendTile& t, int64_t page) noexcept {
  if (page == t.own_page && s.own) return {PageType::kF16, s.own};
  if (page >= t.fresh_begin && s.fresh) return {s.type, s.fresh + (page - t.fresh_begin) * s.bytes};
  return {s.type, s.base + t.pages[page] * t.page_bytes};
}

void score_page(const AttendTile& t, const TileMemory& m, const PageView& k, Ahead ahead) noexcept {
  with_keys(k.type, k.data, t.dim_k, m.scales, [&](const auto& keys) {
    widened(m, keys, t.dim_k, kPage, [&]<typename B>(const B& b) {
      product<false>(Product<B>{.m = m.vectors,
                                .n = kPage,
                                .k = t.dim_k,
                                .a = m.q,
                                .lda = t.dim_k,
                                .b = b,
                                .c = m.s,
                                .ldc = kPage,
                                .ahead = ahead});
    });
  });
}

void add_values(const AttendTile& t, const TileMemory& m, const PageView& v, int64_t tokens, Ahead ahead) noexcept {
  with_values(v.type, v.data, t.dim_v, m.scales, [&](const auto& values) {
    widened(m, values, tokens, t.dim_v, [&]<typename B>(const B& b) {
      product<true>(Product<B>{.m = m.vectors,
                               .n = t.dim_v,
                               .k = tokens,
                               .a = m.s,
                               .lda = kPage,
                               .b = b,
                               .c = m.sum,
                               .ldc = t.dim_v,
                               .ahead = ahead});
    });
  });
}

/// Turns the scores of the first `visible` tokens into weights against the running maximum, the rest into zeros.
void weigh(const TileMemory& m, int64_t vector, int64_t visible, int64_t dim_v) noexcept {
  constexpr int kVecs = kPage / Vec::kWidth;
  float* s = m.s + vector * kPage;
  if (visible <= 0) {
    for (int64_t i = 0; i < kPage; ++i) s[i] = 0;
    return;
  }
  for (int64_t i = visible; i < kPage; ++i) s[i] = -__builtin_inff();
  Vec::F x[kVecs], tops = Vec::load(s);
  for (int i = 0; i < kVecs; ++i) tops = Vec::max(tops, x[i] = Vec::load(s + i * Vec::kWidth));
  float* total = m.total + vector * Vec::kWidth;
  if (Vec::any_above(tops, m.top[vector])) {  // soon rare: the horizontal maximum is off the usual path
    const float top = Vec::top(tops), keep = __builtin_exp2f(m.top[vector] - top);
    m.top[vector] = top;
    scale(keep, total, Vec::kWidth, total);
    scale(keep, m.sum + vector * dim_v, dim_v, m.sum + vector * dim_v);
  }
  const Vec::F top = Vec::set(m.top[vector]);
  Vec::F sums = Vec::load(total);
  for (int i = 0; i < kVecs; ++i) {
    x[i] = exp2_of(Vec::sub(x[i], top));
    Vec::store(s + i * Vec::kWidth, x[i]);
    sums = Vec::add(sums, x[i]);
  }
  Vec::store(total, sums);
  for (int64_t i = visible; i < kPage; ++i) s[i] = 0;  // 2^-126 of what a row must not see is left of them
}

void close_tile(const AttendTile& t, const TileMemory& m) noexcept {
  for (int64_t i = 0; i < m.vectors; ++i) {
    const float* sum = m.sum + i * t.dim_v;
    const float total = Vec::sum(Vec::load(m.total + i * Vec::kWidth));
    if (t.partial) {
      float* out = t.out + i * (t.dim_v + 2);
      scale(1.0f, sum, t.dim_v, out);
      out[t.dim_v] = m.top[i];
      out[t.dim_v + 1] = total;
    } else {
      scale(1.0f / total, sum, t.dim_v, t.out + i / t.group * t.out_stride + i % t.group * t.dim_v);
    }
  }
}

void attend_exactly(const AttendTile& t, const TileMemory& m, int64_t begin, int64_t end) noexcept {
  for (int64_t page = begin; page < end; ++page) {
    const int64_t first = page * kPage, seen = t.position + t.rows - first;  // by the last row
    const PageView k = view(t.k, t, page), v = view(t.v, t, page);
    const int64_t tokens = seen < kPage ? seen : kPage;
    const std::byte* next = page + 1 < end ? view(t.k, t, page + 1).data : page + 1 == t.page_end ? t.next : nullptr;
    score_page(t, m, k, spread(v.data, t.v.bytes * tokens / kPage, t.dim_k));
    for (int64_t i = 0; i < m.vectors; ++i) {
      const int64_t visible = t.position + i / t.group + 1 - first;
      weigh(m, i, visible < kPage ? visible : kPage, t.dim_v);
    }
    add_values(t, m, v, tokens, spread(next, t.k.bytes, tokens));
  }
}

/// Pages that every row sees whole. A template, so that a Vec without bytes never sees it.
template <typename V = Vec>
void attend_in_bytes(const AttendTile& t, const TileMemory& m, int64_t begin, int64_t end) noexcept {
  const ByteTile bytes = open_bytes(m.bytes, m.vectors, t.dim_k, t.dim_v);
  const bool rotated = t.k.type == PageType::kQ4;
  queries_to_bytes<V>(m.q, m.vectors, t.dim_k, rotated, m.wide, bytes);
  for (int64_t page = begin; page < end; ++page) {
    const PageView k = view(t.k, t, page), v = view(t.v, t, page);
    with_keys(k.type, k.data, t.dim_k, m.scales,
              [&](const auto& keys) { keys_to_bytes<V>(keys, t.dim_k, rotated, m.wide, bytes.page); });
    with_values(v.type, v.data, t.dim_v, m.scales,
                [&](const auto& values) { values_to_bytes<V>(values, t.dim_v, bytes.page); });
    const int64_t following = page + 1 < end ? page + 1 : page;
    const PageView next_k = view(t.k, t, following), next_v = view(t.v, t, following);
    for (int64_t i = 0; i < m.vectors; i += ByteBlock::kMost) {
      const int64_t left = m.vectors - i, part = i / ByteBlock::kMost, parts = m.vectors / ByteBlock::kMost + 1;
      fetch_part(next_k.data, t.k.bytes, part, parts);
      fetch_part(next_v.data, t.v.bytes, part, parts);
      attend_block<V>({.n = left < ByteBlock::kMost ? left : ByteBlock::kMost,
                       .dim_k = t.dim_k,
                       .dim_v = t.dim_v,
                       .q = bytes.q + i * t.dim_k,
                       .q_scale = bytes.q_scale + i,
                       .top = m.top + i,
                       .total = m.total + i * V::kWidth,
                       .sum = m.sum + i * t.dim_v},
                      bytes.page);
    }
  }
}

/// A cache in f32 is asked for to be exact.
inline bool takes_bytes(const AttendTile& t) noexcept {
  return t.in_bytes && t.k.type != PageType::kF32 && t.v.type != PageType::kF32 && t.dim_k % kPage == 0 &&
         t.dim_v % kPage == 0;
}

/// The first page, where one token may have nearly all the weight, and the newest are computed in f32 whatever there is
/// between: of a short prompt that is everything.
template <typename V = Vec>
void attend(const AttendTile& t) noexcept {
  const TileMemory m = open_tile(t);
  if constexpr (V::kByteDots) {
    const int64_t own = t.position / kPage;
    const int64_t begin = t.page_begin + 1, end = own < t.page_end ? own : t.page_end;
    if (takes_bytes(t) && begin < end) {
      attend_exactly(t, m, t.page_begin, begin);
      attend_in_bytes(t, m, begin, end);
      attend_exactly(t, m, end, t.page_end);
      return close_tile(t, m);
    }
  }
  attend_exactly(t, m, t.page_begin, t.page_end);
  close_tile(t, m);
}

}  // namespace
