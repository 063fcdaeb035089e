// The matrix kernels of the machine it runs on against decoded products in double, without a test framework: built by
// run.sh for aarch64 and run by qemu, where no GoogleTest is installed. matrix_test.cpp is the same on x86, wider.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/matrix.h"
#include "backend/matrix_weights.h"
#include "quant/activation.h"

namespace tern::cpu {
namespace {

constexpr int64_t kRows = 19, kCols = 512, kActs = 14;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Aligned = std::unique_ptr<std::byte, Free>;
Aligned aligned(size_t bytes) {
  return Aligned(static_cast<std::byte*>(std::aligned_alloc(64, bytes / 64 * 64 + 64)));
}

std::vector<double> rounded(quant::Activation rule, const float* x) {
  std::vector<double> y(x, x + kCols);
  if (rule == quant::Activation::kF32) return y;
  std::vector<int8_t> q(kCols);
  std::vector<float> scale(kCols);
  quant::quantize_row(rule, {x, kCols}, q.data(), scale.data());
  const int64_t group = quant::activation_group(rule, kCols);
  for (int64_t i = 0; i < kCols; ++i) {
    const double s = scale[static_cast<size_t>(i / group)];
    y[static_cast<size_t>(i)] =
        rule == quant::Activation::kI8Row ? q[static_cast<size_t>(i)] / s : q[static_cast<size_t>(i)] * s;
  }
  return y;
}

/// Largest error over the sum of the magnitudes of the terms, of `acts` rows.
double worst_error(const Kernel& k, int64_t acts) {
  std::mt19937 random(1);
  const auto tensor = test::random_tensor(k.type, kRows, kCols, test::Codes::kAny, random);
  const float tensor_scale = quant::tensor_scale(k.type, tensor);
  std::vector<float> w(kRows * kCols), x(kActs * kCols), out(kActs * kRows);
  quant::find_format(k.type)->decode(tensor.data(), w.data(), kRows * kCols, tensor_scale);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random);
  const Aligned packed = aligned(k.packed_bytes(kRows, kCols));
  if (k.pack != nullptr) k.pack(tensor.data(), kRows, kCols, packed.get(), 0, kRows);
  const size_t row_bytes = k.act_layout(kCols).row_bytes;
  const Aligned act = aligned(row_bytes * kActs);
  for (int64_t a = 0; a < acts; ++a)
    k.quantize(x.data() + a * kCols, kCols, act.get() + static_cast<size_t>(a) * row_bytes);
  const Matrix m{.kernel = &k,
                 .rows = kRows,
                 .cols = kCols,
                 .data = k.pack != nullptr ? packed.get() : tensor.data(),
                 .tensor_scale = tensor_scale};
  k.matmul({.w = &m,
            .act = act.get(),
            .act_rows = acts,
            .out = out.data(),
            .out_stride = kRows,
            .row_begin = 0,
            .row_end = kRows});
  double worst = 0;
  for (int64_t a = 0; a < acts; ++a) {
    const auto y = rounded(k.rule, x.data() + a * kCols);
    for (int64_t r = 0; r < kRows; ++r) {
      double value = 0, magnitude = 1e-30;
      for (int64_t c = 0; c < kCols; ++c) {
        const double term = static_cast<double>(w[static_cast<size_t>(r * kCols + c)]) * y[static_cast<size_t>(c)];
        value += term;
        magnitude += std::abs(term);
      }
      worst =
          std::max(worst, std::abs(static_cast<double>(out[static_cast<size_t>(a * kRows + r)]) - value) / magnitude);
    }
  }
  return worst;
}

int check(Isa isa) {
  int bad = 0, products = 0;
  for (const Kernel& k : kernels(isa)) {
    for (const int64_t acts : {int64_t{1}, int64_t{2}, int64_t{3}, kActs}) {
      const double worst = worst_error(k, acts);
      ++products;
      if (worst < 1e-5) continue;
      ++bad;
      std::printf("%s %s, %d rows: error %g\n", k.name, std::string(type_info(k.type).name).c_str(),
                  static_cast<int>(acts), worst);
    }
  }
  std::printf("%s: %d products, %d wrong\n", std::string(isa_name(isa)).c_str(), products, bad);
  return bad;
}

}  // namespace
}  // namespace tern::cpu

int main(int, char** argv) {
  const std::string best(tern::cpu::isa_name(tern::cpu::detect_isa()));
  if (best != argv[1]) {
    std::printf("the best tier is %s, not %s\n", best.c_str(), argv[1]);
    return 1;
  }
  return tern::cpu::check(tern::cpu::Isa::kScalar) + tern::cpu::check(tern::cpu::detect_isa()) == 0 ? 0 : 1;
}
