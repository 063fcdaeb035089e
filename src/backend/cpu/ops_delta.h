// The gated delta rule: part of ops_body.h, over the same Vec. The state is kept as S^T [dim (key)][dim (value)]:
// values run along the vectors, and no product of either form needs a horizontal sum.
#pragma once
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_attend.h"

namespace {

using namespace tern::cpu;

float dot(const float* a, const float* b, int64_t n) noexcept {
  Vec::F s = Vec::zero();
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) s = Vec::fma(Vec::load(a + i), Vec::load(b + i), s);
  float total = Vec::sum(s);
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

struct Gates {
  double log_decay;  // <= 0
  float beta;
};

Gates gates_of(const DeltaHead& d, int64_t row) noexcept {
  const double x = static_cast<double>(d.alpha[row * d.alpha_stride]) + static_cast<double>(d.dt);
  const double softplus = x > 20 ? x : __builtin_log1p(__builtin_exp(x));
  const double beta = 1.0 / (1.0 + __builtin_exp(-static_cast<double>(d.beta[row * d.beta_stride])));
  return {static_cast<double>(d.a) * softplus, static_cast<float>(beta)};
}

float read_out_norm(const DeltaHead& d) noexcept {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(d.dim)));
}

// ---- Token by token ----

struct DeltaToken {
  const float *q, *k, *v;
  float decay, beta, kq, norm;
  float* out;
};

/// Columns [j, j + kVecs vectors) of S^T through one token. With S' = decay S + dl k the read-out is S' q =
/// decay (S q) + dl (k q), so that S is read once for both products and once for the update.
template <int kVecs>
void delta_columns(const DeltaToken& t, float* s, int64_t dim, int64_t j) noexcept {
  Vec::F sk[kVecs], sq[kVecs];
  for (int v = 0; v < kVecs; ++v) sk[v] = sq[v] = Vec::zero();
  for (int64_t i = 0; i < dim; ++i) {
    const Vec::F k = Vec::set(t.k[i]), q = Vec::set(t.q[i]);
    for (int v = 0; v < kVecs; ++v) {
      const Vec::F x = Vec::load(s + i * dim + j + v * Vec::kWidth);
      sk[v] = Vec::fma(x, k, sk[v]);
      sq[v] = Vec::fma(x, q, sq[v]);
    }
  }
  const Vec::F decay = Vec::set(t.decay), beta = Vec::set(t.beta), kq = Vec::set(t.kq), norm = Vec::set(t.norm);
  for (int v = 0; v < kVecs; ++v) {
    const int64_t at = j + v * Vec::kWidth;
    const Vec::F dl = Vec::mul(Vec::sub(Vec::load(t.v + at), Vec::mul(decay, sk[v])), beta);
    Vec::store(t.out + at, Vec::mul(Vec::fma(dl, kq, Vec::mul(decay, sq[v])), norm));
    sk[v] = dl;
  }
  for (int64_t i = 0; i < dim; ++i) {
    const Vec::F k = Vec::set(t.k[i]);
    for (int v = 0; v < kVecs; ++v) {
      float* x = s + i * dim + j + v * Vec::kWidth;
      Vec::store(x, Vec::fma(sk[v], k, Vec::mul(decay, Vec::load(x))));
    }
  }
}

void delta_column(const DeltaToken& t, float* s, int64_t dim, int64_t j) noexcept {
  float sk = 0, sq = 0;
  for (int64_t i = 0; i < dim; ++i) sk += s[i * dim + j] * t.k[i], sq += s[i * dim + j] * t.q[i];
  const float dl = (t.v[j] - t.decay * sk) * t.beta;
  t.out[j] = (t.decay * sq + dl * t.kq) * t.norm;
  for (int64_t i = 0; i < dim; ++i) s[i * dim + j] = t.decay * s[i * dim + j] + dl * t.k[i];
}

constexpr int64_t kFewTokens = 8;  // from here on the chunked form is faster

/// Rows [first, first + n), n < kFewTokens. The columns of S^T are independent: a strip of them that stays in the
/// first-level cache goes through all tokens.
void delta_tokens(const DeltaHead& d, int64_t first, int64_t n) noexcept {
  DeltaToken tokens[kFewTokens];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = first + i;
    const Gates g = gates_of(d, row);
    const float *q = d.q + row * d.q_stride, *k = d.k + row * d.k_stride;
    tokens[i] = {.q = q,
                 .k = k,
                 .v = d.v + row * d.v_stride,
                 .decay = static_cast<float>(__builtin_exp(g.log_decay)),
                 .beta = g.beta,
                 .kq = dot(k, q, d.dim),
                 .norm = read_out_norm(d),
                 .out = d.out + row * d.out_stride};
  }
  constexpr int kVecs = Vec::kTileVecs;
  int64_t j = 0;
  for (; j + kVecs * Vec::kWidth <= d.dim; j += kVecs * Vec::kWidth) {
    for (int64_t i = 0; i < n; ++i) delta_columns<kVecs>(tokens[i], d.s_out, d.dim, j);
  }
  for (; j + Vec::kWidth <= d.dim; j += Vec::kWidth) {
    for (int64_t i = 0; i < n; ++i) delta_columns<1>(tokens[i], d.s_out, d.dim, j);
  }
  for (; j < d.dim; ++j) {
    for (int64_t i = 0; i < n; ++i) delta_column(tokens[i], d.s_out, d.dim, j);
  }
}

// ---- Many tokens at once ----
//
// With G_t the product of the decays of a chunk up to token t, S_t = G_t S_0 + sum_{s <= t} G_t/G_s dl_s k_s^T, so that
//   dl_t  = beta_t (v_t - G_t S_0 k_t - sum_{s < t} G_t/G_s (k_s k_t) dl_s)    a triangular system over the chunk
//   out_t = (G_t S_0 q_t + sum_{s <= t} G_t/G_s (k_s q_t) dl_s) / sqrt(dim)
// and everything of size dim^2 is a matrix product (Yang et al., "Gated Delta Networks", 2024, section 3.3).

constexpr int64_t kChunk = kDeltaChunk;

struct DeltaChunk {
  float *kt, *dl, *kk, *kq;           // K^T [dim][64], [64][dim], [64][64] twice
  double log_decay[kChunk];           // of G_t
  float beta[kChunk], grown[kChunk];  // G_t
};

/// G_t/G_s, s <= t, into ratio[0..t].
void decay_ratios(const DeltaChunk& c, int64_t t, float* ratio) noexcept {
  for (int64_t s = 0; s < kChunk; ++s) ratio[s] = s <= t ? static_cast<float>(c.log_decay[t] - c.log_decay[s]) : 0.0f;
  for (int64_t s = 0; s < kChunk; s += Vec::kWidth) Vec::store(ratio + s, exp_of(Vec::load(ratio + s)));
}

void open_chunk(const DeltaHead& d, int64_t first, int64_t n, DeltaChunk& c) noexcept {
  double total = 0;
  for (int64_t t = 0; t < n; ++t) {
    const Gates g = gates_of(d, first + t);
    total += g.log_decay;
    c.log_decay[t] = total;
    c.grown[t] = static_cast<float>(__builtin_exp(total));
    c.beta[t] = g.beta;
    const float* k = d.k + (first + t) * d.k_stride;
    for (int64_t i = 0; i < d.dim; ++i) c.kt[i * kChunk + t] = k[i];
  }
  for (int64_t t = n; t < kChunk; ++t) {
    c.log_decay[t] = 0;
    for (int64_t i = 0; i < d.dim; ++i) c.kt[i * kChunk + t] = 0;
  }
}

/// dl, from S_0 k in c.dl, forward through the triangle.
void solve_chunk(const DeltaHead& d, int64_t first, int64_t n, const DeltaChunk& c) noexcept {
  float ratio[kChunk];
  for (int64_t t = 0; t < n; ++t) {
    decay_ratios(c, t, ratio);
    float *dl = c.dl + t * d.dim, *kk = c.kk + t * kChunk, *kq = c.kq + t * kChunk;
    const float norm = read_out_norm(d);
    for (int64_t s = 0; s < kChunk; ++s) {
      kk[s] = s < t ? -c.beta[t] * ratio[s] * kk[s] : 0.0f;
      kq[s] = s <= t ? norm * ratio[s] * kq[s] : 0.0f;
    }
    scale(-c.beta[t] * c.grown[t], dl, d.dim, dl);
    add_scaled(c.beta[t], d.v + (first + t) * d.v_stride, d.dim, dl);
    product<true>(Product<F32Matrix>{.m = 1,
                                     .n = d.dim,
                                     .k = t,
                                     .a = kk,
                                     .lda = kChunk,
                                     .b = F32Matrix{c.dl, d.dim},
                                     .c = dl,
                                     .ldc = d.dim,
                                     .ahead = {}});
    scale(norm * c.grown[t], d.out + (first + t) * d.out_stride, d.dim, d.out + (first + t) * d.out_stride);
  }
}

void delta_chunk(const DeltaHead& d, int64_t first, int64_t n) noexcept {
  DeltaChunk c;
  c.kt = d.scratch;
  c.dl = c.kt + d.dim * kChunk;
  c.kk = c.dl + kChunk * d.dim;
  c.kq = c.kk + kChunk * kChunk;
  open_chunk(d, first, n, c);
  const float *k = d.k + first * d.k_stride, *q = d.q + first * d.q_stride;
  float* out = d.out + first * d.out_stride;
  const F32Matrix s0{d.s_out, d.dim}, kt{c.kt, kChunk}, dl{c.dl, d.dim};
  const auto times = [&](const float* a, int64_t lda, const F32Matrix& b, int64_t cols, float* to, int64_t ldc) {
    product<false>(Product<F32Matrix>{
        .m = n, .n = cols, .k = d.dim, .a = a, .lda = lda, .b = b, .c = to, .ldc = ldc, .ahead = {}});
  };
  times(k, d.k_stride, s0, d.dim, c.dl, d.dim);
  times(q, d.q_stride, s0, d.dim, out, d.out_stride);
  times(k, d.k_stride, kt, kChunk, c.kk, kChunk);
  times(q, d.q_stride, kt, kChunk, c.kq, kChunk);
  solve_chunk(d, first, n, c);
  product<true>(Product<F32Matrix>{
      .m = n, .n = d.dim, .k = n, .a = c.kq, .lda = kChunk, .b = dl, .c = out, .ldc = d.out_stride, .ahead = {}});
  float ratio[kChunk];
  decay_ratios(c, n - 1, ratio);
  for (int64_t t = 0; t < n; ++t) scale(ratio[t], c.dl + t * d.dim, d.dim, c.dl + t * d.dim);
  scale(c.grown[n - 1], d.s_out, d.dim * d.dim, d.s_out);
  product<true>(Product<F32Matrix>{
      .m = d.dim, .n = d.dim, .k = n, .a = c.kt, .lda = kChunk, .b = dl, .c = d.s_out, .ldc = d.dim, .ahead = {}});
}

void delta_rule(const DeltaHead& d) noexcept {
  if (d.s_in != d.s_out) {
    for (int64_t i = 0; i < d.dim * d.dim; ++i) d.s_out[i] = d.s_in ? d.s_in[i] : 0.0f;
  }
  for (int64_t first = 0; first < d.rows; first += kChunk) {
    const int64_t n = d.rows - first < kChunk ? d.rows - first : kChunk;
    n < kFewTokens ? delta_tokens(d, first, n) : delta_chunk(d, first, n);
  }
}

}  // namespace
