// Attention of many query vectors to a whole page in byte products: part of ops_body.h, over a Vec with byte dots.
// Everything is a template on it, so that the others never see it.
//
// Queries and keys are rounded to 7 bits and a sign with a scale a vector, both in the basis of the normalised
// Walsh-Hadamard transform (as keys of q4_0, ops_kv.h), where no dim takes the whole range; weights to 8 bits of the
// largest in the page, values to 7 and a sign with a scale a channel and page. docs/performance.md, "Depth", has what
// it costs and what else was tried: bf16, other scales, keys less their mean.
#pragma once
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_kv.h"
#include "backend/cpu/ops_math.h"

namespace {

using namespace tern::cpu;

void butterflies(float* x, int64_t block, int64_t stride) noexcept;

/// A page as bytes, four that are multiplied together next to each other.
struct BytePage {
  int8_t *k, *v;     // [dim_k/4][64][4], [64/4][dim_v][4]
  int32_t* k_start;  // [64]: -128 times the sum of a key, because queries are stored with 128 added
  // [64], [dim_v]; no numbers where a key or value had none, which bytes cannot show: scores and sums times them are
  // NaN.
  float *k_scale, *v_scale;
};

/// What a tile keeps for pages in bytes. Scratch: byte_scratch() floats (ops.h).
struct ByteTile {
  BytePage page;
  uint8_t* q;      // [vectors][dim_k], 128 added
  float* q_scale;  // [vectors]
};

ByteTile open_bytes(float* scratch, int64_t vectors, int64_t dim_k, int64_t dim_v) noexcept {
  ByteTile t{};
  t.page.k = reinterpret_cast<int8_t*>(scratch);
  t.page.v = t.page.k + kPage * dim_k;
  t.q = reinterpret_cast<uint8_t*>(t.page.v + kPage * dim_v);
  t.q_scale = reinterpret_cast<float*>(t.q + vectors * dim_k);
  t.page.k_scale = t.q_scale + vectors;
  t.page.v_scale = t.page.k_scale + kPage;
  t.page.k_start = reinterpret_cast<int32_t*>(t.page.v_scale + dim_v);
  return t;
}

constexpr float kLeastTop = 1e-30f;  // of zeros

/// Queries that a tile has scaled, as bytes. `memory`: dim floats.
template <typename V>
void queries_to_bytes(const float* q, int64_t vectors, int64_t dim, bool rotated, float* memory,
                      const ByteTile& out) noexcept {
  // Keys are rotated without the norm.
  const float norm = rotated ? 1.0f : 1.0f / __builtin_sqrtf(static_cast<float>(dim & -dim));
  for (int64_t n = 0; n < vectors; ++n) {
    for (int64_t i = 0; i < dim; i += V::kWidth) V::store(memory + i, V::load(q + n * dim + i));
    if (!rotated) rotate_keys(memory, dim, dim);
    typename V::F tops = V::set(kLeastTop);
    for (int64_t i = 0; i < dim; i += V::kWidth) tops = V::max(tops, V::abs(V::load(memory + i)));
    const float top = V::top(tops);  // a NaN, which it may miss, makes the row one in the first page, in f32
    out.q_scale[n] = top / 127.0f * norm;
    const auto inverse = V::set(127.0f / top), bias = V::set(128.0f);
    for (int64_t i = 0; i < dim; i += 4 * V::kWidth) {
      typename V::Int x[4];
      for (int v = 0; v < 4; ++v) x[v] = V::to_int(V::fma(V::load(memory + i + v * V::kWidth), inverse, bias));
      V::store_bytes(out.q + n * dim + i, x);
    }
  }
}

/// Scales of 64 columns whose largest magnitudes are `top`, and what to multiply them by.
template <typename V>
void close_scales(const typename V::F (&top)[4], typename V::F (&inverse)[4], float* scales) noexcept {
  for (int v = 0; v < 4; ++v) {
    V::store(scales + v * V::kWidth, V::mul(top[v], V::set(1.0f / 127.0f)));
    inverse[v] = V::div(V::set(127.0f), top[v]);
  }
}

/// `wide`: [dim][64] floats of memory.
template <typename V, typename B>
void keys_to_bytes(const B& keys, int64_t dim, bool rotated, float* wide, const BytePage& out) noexcept {
  for (int64_t k = 0; k < dim; ++k) {
    for (int64_t t = 0; t < kPage; t += V::kWidth) V::store(wide + k * kPage + t, keys.load(k, t));
  }
  const int64_t block = rotated ? 1 : dim & -dim;
  for (int64_t at = 0; at < dim; at += block) {
    int64_t stride = 1;
    for (; 2 * stride < block; stride *= 4) butterflies(wide + at * kPage, block * kPage, stride * kPage);
    if (stride >= block) continue;
    float *lo = wide + at * kPage, *hi = lo + stride * kPage;
    for (int64_t i = 0; i < stride * kPage; i += V::kWidth) {
      const auto a = V::load(lo + i), b = V::load(hi + i);
      V::store(lo + i, V::add(a, b));
      V::store(hi + i, V::sub(a, b));
    }
  }
  typename V::F top[4], inverse[4];
  for (auto& x : top) x = V::set(kLeastTop);
  for (int64_t k = 0; k < dim; ++k) {
    for (int v = 0; v < 4; ++v) top[v] = V::larger(top[v], V::load(wide + k * kPage + v * V::kWidth));
  }
  close_scales<V>(top, inverse, out.k_scale);
  typename V::Int sum[4];
  for (auto& x : sum) x = V::zero_int();
  for (int64_t k = 0; k < dim; k += 4) {
    for (int v = 0; v < 4; ++v) {
      typename V::Int x[4];
      for (int i = 0; i < 4; ++i) x[i] = V::to_int(V::mul(V::load(wide + (k + i) * kPage + v * V::kWidth), inverse[v]));
      const auto four = V::four_bytes(x);
      V::store_int(out.k + k * kPage + 4 * v * V::kWidth, four);
      sum[v] = V::dot(sum[v], V::splat_byte(128), four);
    }
  }
  for (int v = 0; v < 4; ++v) V::store_int(out.k_start + v * V::kWidth, V::negative(sum[v]));
}

template <typename V, typename B>
void values_to_bytes(const B& values, int64_t dim, const BytePage& out) noexcept {
  for (int64_t c = 0; c < dim; c += 4 * V::kWidth) {
    typename V::F top[4], inverse[4];
    for (auto& x : top) x = V::set(kLeastTop);
    for (int64_t t = 0; t < kPage; ++t) {
      for (int v = 0; v < 4; ++v) top[v] = V::larger(top[v], values.load(t, c + v * V::kWidth));
    }
    close_scales<V>(top, inverse, out.v_scale + c);
    for (int64_t t = 0; t < kPage; t += 4) {
      for (int v = 0; v < 4; ++v) {
        typename V::Int x[4];
        for (int i = 0; i < 4; ++i) x[i] = V::to_int(V::mul(values.load(t + i, c + v * V::kWidth), inverse[v]));
        V::store_int(out.v + t * dim + 4 * (c + v * V::kWidth), V::four_bytes(x));
      }
    }
  }
}

/// Sums of kRows rows of bytes a[row][steps] with four vectors of b, from `sum`.
template <typename V, int kRows>
[[gnu::always_inline]] inline void byte_product(const uint8_t* a, int64_t steps, const int8_t* b, int64_t b_step,
                                                typename V::Int (&sum)[kRows][4]) noexcept {
  for (int64_t k = 0; k < steps; k += 4, b += b_step) {
    typename V::Int x[4];
    for (int v = 0; v < 4; ++v) x[v] = V::load_int(b + 4 * v * V::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const auto y = V::splat_four(a + r * steps + k);
      for (int v = 0; v < 4; ++v) sum[r][v] = V::dot(sum[r][v], y, x[v]);
    }
  }
}

/// Calls f<kRows>(row) for kRows rows at a time, then once for what is left.
template <int kRows, typename F>
void row_tiles(int64_t rows, F f, int64_t row = 0) noexcept {
  for (; row + kRows <= rows; row += kRows) f.template operator()<kRows>(row);
  if constexpr (kRows > 1) {
    if (row < rows) row_tiles<kRows - 1>(rows, f, row);
  }
}

/// Asks for the part `i` of `n` of memory that will be read soon.
inline void fetch_part(const std::byte* from, int64_t bytes, int64_t i, int64_t n) noexcept {
  for (int64_t at = bytes * i / n, end = bytes * (i + 1) / n; at < end; at += 64) __builtin_prefetch(from + at, 0, 2);
}

/// Some vectors of a tile: so few that their scores stay in the first-level cache.
struct ByteBlock {
  static constexpr int64_t kMost = 24;
  int64_t n, dim_k, dim_v;
  const uint8_t* q;
  const float* q_scale;
  float *top, *total, *sum;  // as those of TileMemory
};

/// Scores of kRows vectors, not yet times their scales, and the largest of each.
template <typename V, int kRows>
void score_rows(const uint8_t* q, int64_t dim, const BytePage& page, float* s, float* tops) noexcept {
  typename V::Int sum[kRows][4];
  for (int v = 0; v < 4; ++v) {
    for (int r = 0; r < kRows; ++r) sum[r][v] = V::load_int(page.k_start + v * V::kWidth);
  }
  byte_product<V, kRows>(q, dim, page.k, 4 * kPage, sum);
  typename V::F scales[4];
  for (int v = 0; v < 4; ++v) scales[v] = V::load(page.k_scale + v * V::kWidth);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    typename V::F x[4];
    for (int v = 0; v < 4; ++v) {
      x[v] = V::mul(V::to_float(sum[r][v]), scales[v]);
      V::store(s + r * kPage + v * V::kWidth, x[v]);
    }
    tops[r] = V::top(V::max(V::max(x[0], x[1]), V::max(x[2], x[3])));
  }
}

/// Adds kRows weighted sums of 64 channels of a page's values, of `dim` each.
template <typename V, int kRows>
void add_rows(const uint8_t* weights, const float* shares, const int8_t* values, const float* scales, int64_t dim,
              float* to) noexcept {
  typename V::Int sum[kRows][4];
  for (int v = 0; v < 4; ++v) {
    for (int r = 0; r < kRows; ++r) sum[r][v] = V::zero_int();
  }
  byte_product<V, kRows>(weights, kPage, values, 4 * dim, sum);
  typename V::F of_channel[4];
  for (int v = 0; v < 4; ++v) of_channel[v] = V::load(scales + v * V::kWidth);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const auto share = V::set(shares[r]);
    for (int v = 0; v < 4; ++v) {
      float* at = to + r * dim + v * V::kWidth;
      V::store(at, V::fma(V::mul(V::to_float(sum[r][v]), of_channel[v]), share, V::load(at)));
    }
  }
}

/// Weights 255 * 2^(s * scale - top) of a page in bytes; returns the sums of them before they were rounded.
template <typename V>
typename V::F weigh_bytes(const float* s, float scale, float top, uint8_t* weights) noexcept {
  const auto a = V::set(scale), least = V::set(-top);
  typename V::Int codes[4];
  typename V::F sums = V::zero();
  for (int v = 0; v < 4; ++v) {
    // Within 1e-4 of it: far less than what a byte rounds away.
    const auto x = V::max(V::set(-126.0f), V::fma(V::load(s + v * V::kWidth), a, least));
    const auto n = V::round(x), r = V::sub(x, n);
    auto p = V::fma(V::set(14.2387622f), r, V::set(61.873067f));
    p = V::fma(p, r, V::set(176.749867f));
    p = V::scale2(V::fma(p, r, V::set(254.980762f)), n);
    codes[v] = V::to_int(p);
    sums = V::add(sums, p);
  }
  V::store_bytes(weights, codes);
  return sums;
}

template <typename V>
void attend_block(const ByteBlock& block, const BytePage& pages) noexcept {
  static_assert(4 * V::kWidth == kPage);
  const ByteBlock b = block;  // copies: what is stored cannot be them
  const BytePage page = pages;
  alignas(64) float s[ByteBlock::kMost * kPage], tops[32], shares[32] = {};
  alignas(64) uint8_t weights[ByteBlock::kMost * kPage];
  row_tiles<V::kTileRows>(b.n, [&]<int kRows>(int64_t row) {
    score_rows<V, kRows>(b.q + row * b.dim_k, b.dim_k, page, s + row * kPage, tops + row);
  });
  for (int64_t i = 0; i < b.n; ++i) {
    tops[i] *= b.q_scale[i];
    if (tops[i] > b.top[i]) {
      const float keep = __builtin_exp2f(b.top[i] - tops[i]);
      b.top[i] = tops[i];
      scale(keep, b.total + i * V::kWidth, V::kWidth, b.total + i * V::kWidth);
      scale(keep, b.sum + i * b.dim_v, b.dim_v, b.sum + i * b.dim_v);
    }
    shares[i] = tops[i] - b.top[i];
  }
  for (int64_t i = 0; i < b.n; i += V::kWidth) {
    V::store(shares + i, V::mul(exp2_of<V>(V::load(shares + i)), V::set(1.0f / 255.0f)));
  }
  for (int64_t i = 0; i < b.n; ++i) {
    const auto sums = weigh_bytes<V>(s + i * kPage, b.q_scale[i], tops[i], weights + i * kPage);
    float* total = b.total + i * V::kWidth;
    V::store(total, V::fma(sums, V::set(shares[i]), V::load(total)));
  }
  for (int64_t c = 0; c < b.dim_v; c += kPage) {
    row_tiles<V::kTileRows>(b.n, [&]<int kRows>(int64_t row) {
      add_rows<V, kRows>(weights + row * kPage, shares + row, page.v + 4 * c, page.v_scale + c, b.dim_v,
                         b.sum + row * b.dim_v + c);
    });
  }
}

}  // namespace
