// Overflow-checked arithmetic for numbers that come from files.
#pragma once
#include <concepts>

namespace tern {

/// a*b into *out; false when it does not fit.
template <std::integral T>
[[nodiscard]] constexpr bool checked_mul(T a, T b, T* out) noexcept {
  return !__builtin_mul_overflow(a, b, out);
}

/// a+b into *out; false when it does not fit.
template <std::integral T>
[[nodiscard]] constexpr bool checked_add(T a, T b, T* out) noexcept {
  return !__builtin_add_overflow(a, b, out);
}

/// n rounded up to a multiple of `unit` (> 0). The caller has checked that it cannot overflow.
template <std::integral T>
constexpr T round_up(T n, T unit) noexcept {
  return (n + unit - 1) / unit * unit;
}

template <std::integral T>
constexpr T ceil_div(T n, T unit) noexcept {
  return (n + unit - 1) / unit;
}

}  // namespace tern
