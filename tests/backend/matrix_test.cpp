// Every kernel of every tier this machine runs, against quant's decoders and activation rules in double.
#include "backend/cpu/matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "backend/matrix_weights.h"
#include "base/error.h"
#include "quant/activation.h"

namespace tern::cpu {
namespace {

using quant::Activation;
using test::Codes;
using test::random_tensor;

constexpr Isa kAllIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kNeonDot, Isa::kNeonI8mm};
constexpr int64_t kMaxActs = 101;  // past one chunk of activation rows

struct Expected {
  double value, magnitude;  // the sum, and the sum of the magnitudes of its terms
};

/// The activations as the rule rounds them, in double.
std::vector<double> rounded(Activation rule, const std::vector<float>& x, int64_t cols) {
  std::vector<double> y(x.begin(), x.end());
  if (rule == Activation::kF32) return y;
  const int64_t group = quant::activation_group(rule, cols);
  std::vector<int8_t> q(static_cast<size_t>(cols));
  std::vector<float> scale(static_cast<size_t>((cols + group - 1) / group));
  for (size_t row = 0; row * static_cast<size_t>(cols) < x.size(); ++row) {
    const size_t at = row * static_cast<size_t>(cols);
    quant::quantize_row(rule, {x.data() + at, static_cast<size_t>(cols)}, q.data(), scale.data());
    for (size_t i = 0; i < q.size(); ++i) {
      const double s = scale[i / static_cast<size_t>(group)];
      y[at + i] = rule == Activation::kI8Row ? q[i] / s : q[i] * s;
    }
  }
  return y;
}

/// Memory at a 64-byte boundary.
class Aligned {
 public:
  explicit Aligned(size_t bytes) : storage_(bytes + 64) {}
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<std::byte> storage_;
};

/// One weight with its expected products for kMaxActs activation rows.
struct Problem {
  TensorType type;
  Activation rule;
  int64_t rows, cols;
  std::vector<std::byte> tensor;
  float tensor_scale;
  std::vector<float> x;
  std::vector<Expected> expected;  // [act][row]
};

Problem make_problem(TensorType type, Activation rule, int64_t rows, int64_t cols, Codes codes) {
  std::mt19937 random(
      static_cast<uint32_t>(static_cast<uint32_t>(type) * 7919 + static_cast<uint32_t>(rows * 31 + cols)));
  Problem p{
      .type = type, .rule = rule, .rows = rows, .cols = cols, .tensor = {}, .tensor_scale = 1, .x = {}, .expected = {}};
  p.tensor = random_tensor(type, rows, cols, codes, random);
  p.tensor_scale = quant::tensor_scale(type, p.tensor);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  p.x.resize(static_cast<size_t>(kMaxActs * cols));
  for (float& v : p.x) v = normal(random);
  std::fill_n(p.x.begin() + cols, cols, 0.0f);  // a row of zeros
  std::vector<float> w(static_cast<size_t>(rows * cols));
  quant::find_format(type)->decode(p.tensor.data(), w.data(), rows * cols, p.tensor_scale);
  const std::vector<double> y = rounded(rule, p.x, cols);
  for (int64_t a = 0; a < kMaxActs; ++a) {
    for (int64_t r = 0; r < rows; ++r) {
      Expected e{};
      for (int64_t k = 0; k < cols; ++k) {
        const double term =
            static_cast<double>(w[static_cast<size_t>(r * cols + k)]) * y[static_cast<size_t>(a * cols + k)];
        e.value += term;
        e.magnitude += std::abs(term);
      }
      p.expected.push_back(e);
    }
  }
  return p;
}

/// Rows [0, split) and [split, rows) by separate calls, as two threads do it; split = 0: one call.
void check_product(const Kernel& kernel, const Problem& p, int64_t acts, int64_t split) {
  SCOPED_TRACE(std::string(kernel.name) + " " + std::string(type_info(p.type).name) + " rule " +
               std::to_string(static_cast<int>(p.rule)) + " [" + std::to_string(p.rows) + " x " +
               std::to_string(p.cols) + "] acts " + std::to_string(acts) + " split " + std::to_string(split));
  Aligned packed(kernel.packed_bytes(p.rows, p.cols));
  if (kernel.pack != nullptr) {
    if (split > 0) kernel.pack(p.tensor.data(), p.rows, p.cols, packed.data(), 0, split);
    kernel.pack(p.tensor.data(), p.rows, p.cols, packed.data(), split, p.rows);
  }
  const Matrix w{.kernel = &kernel,
                 .rows = p.rows,
                 .cols = p.cols,
                 .data = kernel.pack != nullptr ? packed.data() : p.tensor.data(),
                 .tensor_scale = p.tensor_scale};
  const size_t row_bytes = kernel.act_layout(p.cols).row_bytes;
  Aligned act(row_bytes * static_cast<size_t>(acts));
  for (int64_t a = 0; a < acts; ++a)
    kernel.quantize(p.x.data() + a * p.cols, p.cols, act.data() + static_cast<size_t>(a) * row_bytes);
  constexpr float kUntouched = 12345.0f;
  const int64_t stride = p.rows + 3;
  std::vector<float> out(static_cast<size_t>(acts * stride), kUntouched);
  MatmulArgs args{.w = &w,
                  .act = act.data(),
                  .act_rows = acts,
                  .out = out.data(),
                  .out_stride = stride,
                  .row_begin = 0,
                  .row_end = split};
  if (split > 0) kernel.matmul(args);
  args.row_begin = split;
  args.row_end = p.rows;
  kernel.matmul(args);
  for (int64_t a = 0; a < acts; ++a) {
    for (int64_t r = 0; r < stride; ++r) {
      const float got = out[static_cast<size_t>(a * stride + r)];
      if (r >= p.rows) {
        ASSERT_EQ(got, kUntouched) << "wrote past the last row";
        continue;
      }
      const Expected e = p.expected[static_cast<size_t>(a * p.rows + r)];
      ASSERT_NEAR(got, e.value, 1e-5 * e.magnitude + 1e-30) << "activation " << a << " row " << r;
    }
  }
}

bool shape_fits(TensorType type, int64_t cols) {
  return cols % type_info(type).block_elements == 0;
}

void check_kernel_on(const Kernel& kernel, const Problem& p) {
  if (!kernel.supports(p.rows, p.cols)) return;
  if (kernel.holds != nullptr && !kernel.holds(p.tensor.data(), p.rows, p.cols)) return;
  for (const int64_t acts : {1, 2, 3, 7, 8, 33}) check_product(kernel, p, acts, 0);
  check_product(kernel, p, kMaxActs, 0);
  if (kernel.row_unit < p.rows) check_product(kernel, p, 5, kernel.row_unit);
}

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 256},  {37, 512}, {35, 1280}, {6, 1536}, {50, 128},
                             {18, 384}, {33, 96},  {5, 32},    {9, 7},    {4, 50}};

class MatrixKernels : public ::testing::TestWithParam<Isa> {};

TEST_P(MatrixKernels, EqualTheDecodedProductOnEveryShape) {
  if (!isa_available(GetParam())) GTEST_SKIP() << "this machine does not run " << isa_name(GetParam());
  std::set<std::pair<TensorType, Activation>> pairs;
  for (const Kernel& k : kernels(GetParam())) pairs.insert({k.type, k.rule});
  for (const auto& [type, rule] : pairs) {
    for (const Shape& s : kShapes) {
      if (!shape_fits(type, s.cols)) continue;
      for (const Codes codes : {Codes::kAny, Codes::kTernaryOnly}) {
        const Problem p = make_problem(type, rule, s.rows, s.cols, codes);
        for (const Kernel& k : kernels(GetParam())) {
          if (k.type == type && k.rule == rule) check_kernel_on(k, p);
        }
        if (HasFatalFailure()) return;
        if (!quant::find_format(type)->ternary) break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, MatrixKernels, ::testing::ValuesIn(kAllIsas),
                         [](const auto& tier) { return std::string(isa_name(tier.param)); });

}  // namespace
}  // namespace tern::cpu
