// Powers and scaled sums: part of ops_body.h, over the same Vec.
#pragma once
#include <cstdint>

namespace {

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

/// 2^x within 2 units in the last place for x in [-126, 0]; below it is next to nothing.
template <typename V = Vec>
typename V::F exp2_of(typename V::F x) noexcept {
  if constexpr (V::kWidth == 1) {
    return __builtin_exp2f(x);
  } else {
    x = V::max(V::set(-126.0f), x);  // in this order a NaN stays one
    const auto n = V::round(x), r = V::sub(x, n);
    auto p = V::fma(V::set(1.54035304e-4f), r, V::set(1.33335581e-3f));  // ln2^i / i!: |r ln2|^7 / 7! < 1.2e-7
    p = V::fma(p, r, V::set(9.61812911e-3f));
    p = V::fma(p, r, V::set(5.55041087e-2f));
    p = V::fma(p, r, V::set(2.40226507e-1f));
    p = V::fma(p, r, V::set(6.93147181e-1f));
    p = V::fma(p, r, V::set(1.0f));
    return V::scale2(p, n);
  }
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

}  // namespace
