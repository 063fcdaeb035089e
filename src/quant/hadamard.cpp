#include "quant/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace tern::quant {
namespace {

template <typename T>
void butterflies(T* x, int64_t n) noexcept {
  for (int64_t stride = 1; stride < n; stride *= 2) {
    for (int64_t i = 0; i < n; i += 2 * stride) {
      for (int64_t j = i; j < i + stride; ++j) {
        const T a = x[j], b = x[j + stride];
        x[j] = a + b;
        x[j + stride] = a - b;
      }
    }
  }
}

template <typename T>
void apply_signs(std::span<T> x, std::span<const float> signs) noexcept {
  CHECK(signs.empty() || signs.size() == x.size(), "{} signs for a row of {}", signs.size(), x.size());
  for (size_t i = 0; i < signs.size(); ++i) x[i] *= signs[i];
}

/// Calls copy(tiled offset, grouped offset) for every head.
template <typename Copy>
void for_each_head(const HeadOrder& order, size_t elements, Copy copy) noexcept {
  CHECK(static_cast<int64_t>(elements) == order.k_heads * order.repeat * order.head_dim,
        "{} elements for {} x {} heads of {}", elements, order.k_heads, order.repeat, order.head_dim);
  for (int64_t k = 0; k < order.k_heads; ++k) {
    for (int64_t r = 0; r < order.repeat; ++r) {
      copy(order.head_dim * (k + order.k_heads * r), order.head_dim * (k * order.repeat + r));
    }
  }
}

template <typename T>
void transform(std::span<T> x, int64_t block) noexcept {
  const auto size = static_cast<int64_t>(x.size());
  CHECK(block > 0 && std::has_single_bit(static_cast<uint64_t>(block)) && size % block == 0, "block {} for a row of {}",
        block, size);
  const T factor = T{1} / std::sqrt(static_cast<T>(block));
  for (T& v : x) v *= factor;
  for (int64_t i = 0; i < size; i += block) butterflies(x.data() + i, block);
}

}  // namespace

void walsh_hadamard(std::span<float> x, int64_t block) noexcept {
  transform(x, block);
}

void rotate(std::span<float> x, std::span<const float> signs, int64_t block) noexcept {
  apply_signs(x, signs);
  transform(x, block);
}
void rotate(std::span<double> x, std::span<const float> signs, int64_t block) noexcept {
  apply_signs(x, signs);
  transform(x, block);
}

void unrotate(std::span<float> x, std::span<const float> signs, int64_t block) noexcept {
  transform(x, block);
  apply_signs(x, signs);
}
void unrotate(std::span<double> x, std::span<const float> signs, int64_t block) noexcept {
  transform(x, block);
  apply_signs(x, signs);
}

void tiled_to_grouped(const HeadOrder& order, std::span<const float> x, std::span<float> out) noexcept {
  CHECK(x.size() == out.size());
  for_each_head(order, x.size(), [&](int64_t tiled, int64_t grouped) {
    std::copy_n(x.data() + tiled, order.head_dim, out.data() + grouped);
  });
}

void grouped_to_tiled(const HeadOrder& order, std::span<const float> x, std::span<float> out) noexcept {
  CHECK(x.size() == out.size());
  for_each_head(order, x.size(), [&](int64_t tiled, int64_t grouped) {
    std::copy_n(x.data() + grouped, order.head_dim, out.data() + tiled);
  });
}

}  // namespace tern::quant
