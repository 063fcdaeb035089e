// The one body of every op, over Vec (vec_<isa>.h, included first). Compiled once an instruction set; everything is in
// an unnamed namespace, so that no other translation unit can link a copy made for a newer machine.
#pragma once
#include "backend/cpu/ops.h"
#include "backend/cpu/ops_attend.h"
#include "backend/cpu/ops_delta.h"

namespace {

using namespace tern::cpu;

double sum_squares(const float* x, int64_t n) noexcept {
  Vec::Squares s;
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) s.add(Vec::load(x + i));
  double total = s.total();
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

/// out[i] = f(i) on whole vectors, then g(i) on what is left.
template <typename VectorFn, typename ScalarFn>
void each(int64_t n, float* out, VectorFn f, ScalarFn g) noexcept {
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) Vec::store(out + i, f(i));
  for (; i < n; ++i) out[i] = g(i);
}

void multiply(const float* a, const float* b, int64_t n, float* out) noexcept {
  each(
      n, out, [=](int64_t i) { return Vec::mul(Vec::load(a + i), Vec::load(b + i)); },
      [=](int64_t i) { return a[i] * b[i]; });
}

void add(const float* a, const float* b, int64_t n, float* out) noexcept {
  each(
      n, out, [=](int64_t i) { return Vec::add(Vec::load(a + i), Vec::load(b + i)); },
      [=](int64_t i) { return a[i] + b[i]; });
}

void rms_norm(const float* x, const float* weight, float eps, int64_t group, int64_t n, float* out) noexcept {
  for (int64_t at = 0; at < n; at += group) {
    const double mean = sum_squares(x + at, group) / static_cast<double>(group);
    const auto s = static_cast<float>(1.0 / __builtin_sqrt(mean + static_cast<double>(eps)));
    each(
        group, out + at,
        [=](int64_t i) { return Vec::mul(Vec::mul(Vec::load(x + at + i), Vec::set(s)), Vec::load(weight + i)); },
        [=](int64_t i) { return x[at + i] * s * weight[i]; });
  }
}

void l2_norm(const float* x, float eps, int64_t group, int64_t n, float* out) noexcept {
  for (int64_t at = 0; at < n; at += group) {
    const double norm = __builtin_sqrt(sum_squares(x + at, group));
    const double floor = static_cast<double>(eps);
    scale(static_cast<float>(1.0 / (norm > floor ? norm : floor)), x + at, group, out + at);
  }
}

template <int kGate>  // in the order of Gate
void glu(const float* a, const float* b, int64_t n, float* out) noexcept {
  each(
      n, out,
      [=](int64_t i) {
        const Vec::F g = Vec::load(a + i), x = Vec::load(b + i);
        if constexpr (kGate == 1) {
          const Vec::F positive = Vec::max(g, Vec::zero());
          return Vec::mul(Vec::mul(positive, positive), x);
        } else {
          const Vec::F one = Vec::set(1.0f);
          const Vec::F below = Vec::add(one, exp_of(Vec::sub(Vec::zero(), g)));
          return Vec::mul(Vec::div(kGate == 0 ? g : one, below), x);
        }
      },
      [=](int64_t i) {
        const float g = a[i], below = 1.0f + __builtin_expf(-g);
        if (kGate == 1) return g > 0 ? g * g * b[i] : 0.0f * b[i];
        return (kGate == 0 ? g : 1.0f) / below * b[i];
      });
}

template <bool kNeox>
void rope(const float* x, const float* cos, const float* sin, int64_t pairs, int64_t head_dim, int64_t n,
          float* out) noexcept {
  for (int64_t head = 0; head < n; head += head_dim) {
    const float* from = x + head;
    float* to = out + head;
    for (int64_t i = 2 * pairs; i < head_dim; ++i) to[i] = from[i];
    int64_t i = 0;
    if constexpr (kNeox) {
      for (; i + Vec::kWidth <= pairs; i += Vec::kWidth) {
        const Vec::F a = Vec::load(from + i), b = Vec::load(from + pairs + i);
        const Vec::F c = Vec::load(cos + i), s = Vec::load(sin + i);
        Vec::store(to + i, Vec::sub(Vec::mul(a, c), Vec::mul(b, s)));
        Vec::store(to + pairs + i, Vec::add(Vec::mul(a, s), Vec::mul(b, c)));
      }
    }
    for (; i < pairs; ++i) {
      const int64_t ia = kNeox ? i : 2 * i, ib = kNeox ? i + pairs : 2 * i + 1;
      const float a = from[ia], b = from[ib];
      to[ia] = a * cos[i] - b * sin[i];
      to[ib] = a * sin[i] + b * cos[i];
    }
  }
}

/// Two strides at once, so that each element is loaded and stored half as often; the sums are those of one stride after
/// the other.
void butterflies(float* x, int64_t block, int64_t stride) noexcept {
  for (int64_t at = 0; at < block; at += 4 * stride) {
    for (int64_t i = at; i < at + stride; i += Vec::kWidth) {
      const Vec::F a = Vec::load(x + i), b = Vec::load(x + i + stride);
      const Vec::F c = Vec::load(x + i + 2 * stride), d = Vec::load(x + i + 3 * stride);
      const Vec::F ab = Vec::add(a, b), a_b = Vec::sub(a, b), cd = Vec::add(c, d), c_d = Vec::sub(c, d);
      Vec::store(x + i, Vec::add(ab, cd));
      Vec::store(x + i + stride, Vec::add(a_b, c_d));
      Vec::store(x + i + 2 * stride, Vec::sub(ab, cd));
      Vec::store(x + i + 3 * stride, Vec::sub(a_b, c_d));
    }
  }
}

void small_hadamard(float* x, int64_t block) noexcept {
  for (int64_t stride = 1; stride < block; stride *= 2) {
    for (int64_t i = 0; i < block; ++i) {
      if (i & stride) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

void hadamard(float* x, int64_t n, int64_t block) noexcept {
  const auto norm = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(block)));
  scale(norm, x, n, x);
  for (int64_t at = 0; at < n; at += block) {
    float* b = x + at;
    if (block < Vec::kWidth) {
      small_hadamard(b, block);
      continue;
    }
    for (int64_t i = 0; i < block; i += Vec::kWidth) Vec::store(b + i, Vec::hadamard(Vec::load(b + i)));
    int64_t stride = Vec::kWidth;
    for (; 2 * stride < block; stride *= 4) butterflies(b, block, stride);
    if (stride >= block) continue;
    for (int64_t i = 0; i < stride; i += Vec::kWidth) {  // the last stride of an odd number of them
      const Vec::F lo = Vec::load(b + i), hi = Vec::load(b + i + stride);
      Vec::store(b + i, Vec::add(lo, hi));
      Vec::store(b + i + stride, Vec::sub(lo, hi));
    }
  }
}

void conv_row(const ConvBlock& c, int64_t row) noexcept {
  constexpr int64_t kMaxTaps = 16;
  const float* tap[kMaxTaps];
  int64_t first = 0;  // taps before the start of the sequence see zeros
  for (int64_t t = 0; t < c.taps; ++t) {
    const int64_t at = row - (c.taps - 1) + t;
    tap[t] = at >= 0 ? c.x + at * c.stride : c.history_in + (at + c.taps - 1) * c.stride;
    if (at < 0 && !c.history_in) first = t + 1;
  }
  float* out = c.out + row * c.stride;
  each(
      c.channels, out,
      [&](int64_t i) {
        Vec::F sum = Vec::zero();
        for (int64_t t = first; t < c.taps; ++t) {
          sum = Vec::fma(Vec::load(c.kernel + t * c.stride + i), Vec::load(tap[t] + i), sum);
        }
        return Vec::div(sum, Vec::add(Vec::set(1.0f), exp_of(Vec::sub(Vec::zero(), sum))));
      },
      [&](int64_t i) {
        float sum = 0;
        for (int64_t t = first; t < c.taps; ++t) sum += c.kernel[t * c.stride + i] * tap[t][i];
        return sum / (1.0f + __builtin_expf(-sum));
      });
}

void conv_silu(const ConvBlock& c) noexcept {
  for (int64_t r = 0; r < c.rows; ++r) conv_row(c, r);
  for (int64_t t = 0; t + 1 < c.taps;
       ++t) {  // the last taps-1 inputs, oldest first; ascending, so it may shift in place
    const int64_t at = c.rows - (c.taps - 1) + t;
    const float* from = at >= 0 ? c.x + at * c.stride : c.history_in ? c.history_in + (t + c.rows) * c.stride : nullptr;
    float* to = c.history_out + t * c.stride;
    for (int64_t i = 0; i < c.channels; ++i) to[i] = from ? from[i] : 0.0f;
  }
}

constexpr Ops make_ops(const char* isa) noexcept {
  return {.isa = isa,
          .rms_norm = rms_norm,
          .l2_norm = l2_norm,
          .add = add,
          .multiply = multiply,
          .add_scaled = add_scaled,
          .scale = scale,
          .glu = {glu<0>, glu<1>, glu<2>},
          .rope = {rope<false>, rope<true>},
          .hadamard = hadamard,
          .write_k = write_k,
          .write_v = write_v,
          .pack_kivi = pack_kivi<2>,
          .pack_kivi4 = pack_kivi<4>,
          .attend = attend<>,
          .conv_silu = conv_silu,
          .delta_rule = delta_rule};
}

}  // namespace
