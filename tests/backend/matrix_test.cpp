// Every kernel of every tier this machine runs, against quant's decoders and activation rules in double.
#include "backend/cpu/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
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

/// The tiers of this architecture; those of aarch64 run under qemu (neon/run.sh).
#if defined(__x86_64__)
constexpr Isa kAllIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAvx512Amx};
#else
constexpr Isa kAllIsas[] = {Isa::kScalar, Isa::kNeonDot, Isa::kNeonI8mm};
#endif
constexpr int64_t kManyActs = 101;  // past one chunk of activation rows

struct Shape {
  int64_t rows, cols, acts;
};
constexpr Shape kShapes[] = {{37, 512, 33}, {4, 50, 33},  {1, 256, 2}, {35, 1280, 8}, {6, 1536, kManyActs},
                             {50, 128, 8},  {18, 384, 3}, {33, 96, 7}, {5, 32, 3},    {9, 7, 7}};

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

/// One weight with its expected products for `acts` activation rows.
struct Problem {
  TensorType type;
  Activation rule;
  int64_t rows, cols, acts;
  std::vector<std::byte> tensor;
  float tensor_scale;
  std::vector<float> x;
  std::vector<Expected> expected;  // [act][row]
};

Problem make_problem(TensorType type, Activation rule, Shape shape, Codes codes) {
  const auto [rows, cols, acts] = shape;
  std::mt19937 random(
      static_cast<uint32_t>(static_cast<uint32_t>(type) * 7919 + static_cast<uint32_t>(rows * 31 + cols)));
  Problem p{.type = type,
            .rule = rule,
            .rows = rows,
            .cols = cols,
            .acts = acts,
            .tensor = {},
            .tensor_scale = 1,
            .x = {},
            .expected = {}};
  p.tensor = random_tensor(type, rows, cols, codes, random);
  p.tensor_scale = quant::tensor_scale(type, p.tensor);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  p.x.resize(static_cast<size_t>(acts * cols));
  for (float& v : p.x) v = normal(random);
  if (acts > 1) std::fill_n(p.x.begin() + cols, cols, 0.0f);  // a row of zeros
  std::vector<float> w(static_cast<size_t>(rows * cols));
  quant::find_format(type)->decode(p.tensor.data(), w.data(), rows * cols, p.tensor_scale);
  const std::vector<double> y = rounded(rule, p.x, cols);
  for (int64_t a = 0; a < acts; ++a) {
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

/// Rows that share a step get the bits they get alone: what a client is answered does not depend on the others.
void expect_bits_of_one_row(MatmulArgs args, int64_t acts, int64_t rows, size_t row_bytes) {
  std::vector<float> alone(static_cast<size_t>(rows));
  const float* together = args.out;
  args.out = alone.data();
  args.row_begin = 0;
  args.act_rows = 1;
  for (int64_t a = 0; a < acts; ++a, args.act += row_bytes, together += args.out_stride) {
    args.w->kernel->matmul(args);
    ASSERT_EQ(std::memcmp(alone.data(), together, alone.size() * sizeof(float)), 0) << "activation " << a;
  }
}

/// A problem packed and rounded for a kernel, in two parts where split > 0.
struct Operands {
  Operands(const Kernel& kernel, const Problem& p, int64_t acts, int64_t split = 0)
      : packed(kernel.packed_bytes(p.rows, p.cols)),
        act_bytes(kernel.act_layout(p.cols).row_bytes),
        act(act_bytes * static_cast<size_t>(acts)),
        w{.kernel = &kernel, .rows = p.rows, .cols = p.cols, .data = p.tensor.data(), .tensor_scale = p.tensor_scale} {
    if (kernel.pack != nullptr) {
      if (split > 0) kernel.pack(p.tensor.data(), p.rows, p.cols, packed.data(), 0, split);
      kernel.pack(p.tensor.data(), p.rows, p.cols, packed.data(), split, p.rows);
      w.data = packed.data();
    }
    for (int64_t a = 0; a < acts; ++a)
      kernel.quantize(p.x.data() + a * p.cols, p.cols, act.data() + static_cast<size_t>(a) * act_bytes);
  }
  Aligned packed;
  size_t act_bytes;  // of a row
  Aligned act;
  Matrix w;
};

/// Rows [0, split) and [split, rows) by separate calls, as two threads do it; split = 0: one call.
void check_product(const Kernel& kernel, const Problem& p, int64_t acts, int64_t split) {
  SCOPED_TRACE(std::string(kernel.name) + " " + std::string(type_info(p.type).name) + " rule " +
               std::to_string(static_cast<int>(p.rule)) + " [" + std::to_string(p.rows) + " x " +
               std::to_string(p.cols) + "] acts " + std::to_string(acts) + " split " + std::to_string(split));
  Operands in(kernel, p, acts, split);
  constexpr float kUntouched = 12345.0f;
  const int64_t stride = p.rows + 3;
  std::vector<float> out(static_cast<size_t>(acts * stride), kUntouched);
  MatmulArgs args{.w = &in.w,
                  .act = in.act.data(),
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
  constexpr int64_t kFewActs = 8;
  if (acts <= kFewActs) expect_bits_of_one_row(args, acts, p.rows, in.act_bytes);
}

bool shape_fits(TensorType type, int64_t cols) {
  return cols % type_info(type).block_elements == 0;
}

void check_kernel_on(const Kernel& kernel, const Problem& p) {
  if (!kernel.supports(p.rows, p.cols)) return;
  if (kernel.holds != nullptr && !kernel.holds(p.tensor.data(), p.rows, p.cols)) return;
  for (const int64_t acts : std::initializer_list<int64_t>{1, 2, 3, 7, 8, 16, 17, 33, kManyActs}) {
    if (acts <= p.acts) check_product(kernel, p, acts, 0);
  }
  if (kernel.row_unit < p.rows) check_product(kernel, p, std::min<int64_t>(5, p.acts), kernel.row_unit);
}

/// Every kernel of the tier for one format under one rule. The rules that are not the format's own run through decoded
/// rows mostly: two shapes serve.
void check_format(Isa isa, const quant::Format& format, Activation rule) {
  int shapes = rule == format.activation || rule == Activation::kI8Row ? 1000 : 2;
  for (const Shape& s : kShapes) {
    if (!shape_fits(format.type, s.cols) || shapes-- == 0) continue;
    for (const Codes codes : {Codes::kAny, Codes::kTernaryOnly}) {
      const Problem p = make_problem(format.type, rule, s, codes);
      for (const Kernel& k : kernels(isa)) {
        if (k.type == format.type && k.rule == rule) check_kernel_on(k, p);
      }
      if (!format.ternary || ::testing::Test::HasFatalFailure()) break;
    }
  }
}

constexpr Activation kRules[] = {Activation::kF32, Activation::kI8x32, Activation::kI8x128, Activation::kI8x256,
                                 Activation::kI8Row};

class MatrixKernels : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "this machine does not run " << isa_name(GetParam());
  }
};

TEST_P(MatrixKernels, EqualTheDecodedProductOnEveryShape) {
  for (const quant::Format& f : quant::formats()) {
    for (const Activation rule : kRules) check_format(GetParam(), f, rule);
  }
}

TEST_P(MatrixKernels, OfEveryFormatAreTunedUnderItsOwnRule) {
  for (const quant::Format& f : quant::formats()) {
    const std::string_view name = choose_kernel(GetParam(), f.type, f.activation, 64, 512).name;
    EXPECT_FALSE(name.starts_with("decode_")) << type_info(f.type).name << " runs through " << name;
    EXPECT_TRUE(name.ends_with(isa_name(GetParam()))) << name << " is of another tier";
  }
}

TEST_P(MatrixKernels, OfTernaryFormatsAreTunedForBitNetsRule) {
  for (const quant::Format& f : quant::formats()) {
    if (!f.ternary) continue;
    const std::string_view name = choose_kernel(GetParam(), f.type, Activation::kI8Row, 64, 512).name;
    EXPECT_FALSE(name.starts_with("decode_")) << type_info(f.type).name << " runs through " << name;
  }
}

TEST_P(MatrixKernels, HoldTheCodeOfPlusTwoWhereTheyAreChosenForIt) {
  std::mt19937 random(3);
  for (const TensorType type : {TensorType::TQ2_0, TensorType::PQ2_0, TensorType::I2_S}) {
    const Activation rule = quant::find_format(type)->activation;
    const auto any = random_tensor(type, 16, 256, Codes::kAny, random);
    const auto ternary = random_tensor(type, 16, 256, Codes::kTernaryOnly, random);
    const auto chosen = [&](const std::vector<std::byte>& weights) -> const Kernel& {
      return choose_kernel(GetParam(), type, rule, 16, 256,
                           [&](const Kernel& k) { return !k.holds || k.holds(weights.data(), 16, 256); });
    };
    const Kernel& wide = chosen(any);
    EXPECT_TRUE(wide.holds == nullptr || wide.holds(any.data(), 16, 256)) << wide.name;
    const Kernel& best = chosen(ternary);
    EXPECT_EQ(best.name, choose_kernel(GetParam(), type, rule, 16, 256).name);
  }
}

TEST_P(MatrixKernels, RoundActivationsToTheExactIntegers) {
  constexpr int64_t kCols = 1184;  // ends within a group of 128 and of 256
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> x(kCols);
  for (float& v : x) v = normal(random);
  std::fill_n(x.begin() + 256, 256, 0.0f);
  x[0] = 0.5f, x[1] = 1.5f, x[2] = -2.5f, x[3] = 127.0f;  // ties of the first groups
  std::set<Activation> seen;
  for (const Kernel& k : kernels(GetParam())) {
    const ActLayout layout = k.act_layout(kCols);
    if (layout.generic || !seen.insert(k.rule).second) continue;
    Aligned act(layout.row_bytes);
    k.quantize(x.data(), kCols, act.data());
    std::vector<int8_t> q(kCols);
    std::vector<float> scale(static_cast<size_t>(kCols));
    quant::quantize_row(k.rule, x, q.data(), scale.data());
    const auto* got = reinterpret_cast<const int8_t*>(act.data());
    EXPECT_EQ(std::vector<int8_t>(got, got + kCols), q) << "rule " << static_cast<int>(k.rule);
    const auto* scales = reinterpret_cast<const float*>(act.data() + (kCols + 63) / 64 * 64);
    for (int64_t g = 0; g * quant::activation_group(k.rule, kCols) < kCols; ++g) {
      EXPECT_EQ(scales[g], scale[static_cast<size_t>(g)]) << "rule " << static_cast<int>(k.rule) << " group " << g;
    }
  }
  EXPECT_EQ(seen.size(), 4u);
}

std::vector<float> product(const Kernel& kernel, const Problem& p, int64_t acts) {
  Operands in(kernel, p, acts);
  std::vector<float> out(static_cast<size_t>(acts * p.rows));
  kernel.matmul({.w = &in.w,
                 .act = in.act.data(),
                 .act_rows = acts,
                 .out = out.data(),
                 .out_stride = p.rows,
                 .row_begin = 0,
                 .row_end = p.rows});
  return out;
}

// The integers are exact and scaled in the same order, so a machine with tiles gives the answers of one without.
TEST(AmxKernels, GiveTheBitsOfTheKernelsWithoutTiles) {
  if (!isa_available(Isa::kAvx512Amx)) GTEST_SKIP() << "this machine does not run " << isa_name(Isa::kAvx512Amx);
  const auto tiled = kernels(Isa::kAvx512Amx), plain = kernels(Isa::kAvx512Vnni);
  ASSERT_EQ(tiled.size(), plain.size());
  int compared = 0;
  for (size_t i = 0; i < tiled.size(); ++i) {
    ASSERT_TRUE(tiled[i].type == plain[i].type && tiled[i].rule == plain[i].rule) << tiled[i].name;
    if (tiled[i].pack == nullptr || tiled[i].act_layout(256).generic) continue;
    const Problem p =
        make_problem(tiled[i].type, tiled[i].rule, {.rows = 37, .cols = 1536, .acts = 33}, Codes::kTernaryOnly);
    for (const int64_t acts : {5, 16, 17, 33}) {
      const std::vector<float> a = product(tiled[i], p, acts), b = product(plain[i], p, acts);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << tiled[i].name << ", " << acts;
    }
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Tiers, MatrixKernels, ::testing::ValuesIn(kAllIsas),
                         [](const auto& tier) { return std::string(isa_name(tier.param)); });

TEST(CpuIsa, TheBestTierThatTheCpuReportsIsChosen) {
#if defined(__x86_64__) && defined(__linux__)
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  const std::set<std::string> flags{std::istream_iterator<std::string>(words), {}};
  const auto all = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* n) { return flags.contains(n); });
  };
  ASSERT_FALSE(flags.empty());
  const bool avx2 = all({"avx2", "fma", "f16c"});
  const bool avx512 = all({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi"});
  const bool amx = all({"amx_tile", "amx_int8"}) && isa_available(Isa::kAvx512Amx);  // Linux may refuse a process
  const Isa best = avx2 && avx512 && amx       ? Isa::kAvx512Amx
                   : avx2 && avx512            ? Isa::kAvx512Vnni
                   : avx2 && all({"avx_vnni"}) ? Isa::kAvxVnni
                   : avx2                      ? Isa::kAvx2
                                               : Isa::kScalar;
  EXPECT_EQ(isa_name(detect_isa()), isa_name(best));
#else
  EXPECT_TRUE(isa_available(detect_isa()));
  if (const char* best = std::getenv("TERN_BEST_ISA")) {  // of the processor that neon/run.sh has qemu be
    EXPECT_EQ(isa_name(detect_isa()), best);
  }
#endif
}

TEST(CpuIsa, AnUnknownOrMissingTierIsRefusedByName) {
  const auto message = [](const char* forced) -> std::string {
    ::setenv("TERN_CPU_ISA", forced, 1);
    std::string what;
    try {
      select_isa();
    } catch (const Error& e) {
      what = e.what();
    }
    ::unsetenv("TERN_CPU_ISA");
    return what;
  };
  EXPECT_NE(message("avx9000").find("is not a tier; there are scalar, avx2"), std::string::npos) << message("avx9000");
  const bool arm = isa_available(Isa::kNeonDot);
  EXPECT_NE(message(arm ? "avx2" : "neondot").find("does not run it"), std::string::npos);
  EXPECT_EQ(message("scalar"), "");
}

}  // namespace
}  // namespace tern::cpu
