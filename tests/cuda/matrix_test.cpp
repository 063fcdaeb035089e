// Every format, rule and kernel of the GPU's matrix products against quant's decoders and activation rules in double.
#include "backend/cuda/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/ops.h"
#include "cuda/device_data.h"
#include "quant/activation.h"
#include "quant/format.h"
#include "quant/hadamard.h"

namespace tern::cuda {
namespace {

using quant::Activation;

class CudaMatrix : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: nothing was tested";
    stream = std::make_unique<Stream>();
    uploader = std::make_unique<Uploader>(stream->get());
    workspace = new_workspace();
  }
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Uploader> uploader;

 public:
  DeviceMemory workspace;
};

struct Expected {
  double value, magnitude;  // the sum, and the sum of the magnitudes of its terms
};

/// The activations as the rule rounds them.
std::vector<double> rounded(Activation rule, const std::vector<float>& x, int64_t cols) {
  std::vector<double> y(x.begin(), x.end());
  if (rule == Activation::kF32) return y;
  const int64_t group = quant::activation_group(rule, cols);
  std::vector<int8_t> q(static_cast<size_t>(cols));
  std::vector<float> scale(static_cast<size_t>((cols + group - 1) / group));
  for (size_t at = 0; at < x.size(); at += q.size()) {
    quant::quantize_row(rule, {x.data() + at, q.size()}, q.data(), scale.data());
    for (size_t i = 0; i < q.size(); ++i) {
      const double s = scale[i / static_cast<size_t>(group)];
      y[at + i] = rule == Activation::kI8Row ? q[i] / s : q[i] * s;
    }
  }
  return y;
}

Expected dot(const float* w, const double* x, int64_t n) {
  Expected e{};
  for (int64_t k = 0; k < n; ++k) {
    const double term = static_cast<double>(w[k]) * x[k];
    e.value += term;
    e.magnitude += std::abs(term);
  }
  return e;
}

/// A wrong integer is some 1e-3 of the magnitude at these widths; f32 sums of exact integers stay under 2e-6.
void expect_near(const Expected& e, float got, const std::string& where) {
  ASSERT_LE(std::abs(e.value - static_cast<double>(got)), 2e-6 * e.magnitude + 1e-30) << where << " got " << got;
}

std::string name_of(TensorType type, Activation rule, int64_t acts) {
  return std::string(type_info(type).name) + " rule " + std::to_string(static_cast<int>(rule)) + " rows " +
         std::to_string(acts);
}

std::vector<Activation> rules_of(const quant::Format& f) {
  std::vector<Activation> rules{Activation::kF32};
  if (f.activation != Activation::kF32) rules.push_back(f.activation);
  if (f.ternary && f.activation != Activation::kI8Row) rules.push_back(Activation::kI8Row);
  return rules;
}

void check_product(CudaMatrix& test, Stream& stream, const Weight& w, Activation rule, int64_t acts,
                   std::mt19937& random) {
  const std::vector<float> x = random_rows(acts, w.shape.cols, random);
  const std::vector<double> y = rounded(rule, x, w.shape.cols);
  const DeviceMemory dx = to_device(x);
  DeviceMemory room(prepared_bytes(rule, w.shape.cols, acts + 3));
  const Prepared prepared{.rule = rule, .cols = w.shape.cols, .capacity = acts + 3, .data = room.data()};
  check(cudaMemset(room.data(), 0x7f, room.size()), "poison");
  std::vector<float> bias(static_cast<size_t>(w.shape.rows), 0.25f);
  const DeviceMemory dbias = to_device(bias);
  DeviceMemory out = poisoned(static_cast<size_t>(acts * w.shape.rows)),
               second = poisoned(static_cast<size_t>(acts * w.shape.rows));
  prepare(stream.get(), floats(dx), acts, {}, prepared);
  const Product products[] = {{.w = &w.matrix, .out = floats(out)},
                              {.w = &w.matrix, .out = floats(second), .scale = 2.0f, .bias = floats(dbias)}};
  multiply(stream.get(), products, prepared, acts, test.workspace.data());
  stream.wait();
  const std::vector<float> got = to_host(out, static_cast<size_t>(acts * w.shape.rows)),
                           scaled = to_host(second, got.size());
  for (int64_t a = 0; a < acts; ++a) {
    for (int64_t r = 0; r < w.shape.rows; ++r) {
      const Expected e = dot(w.values.data() + r * w.shape.cols, y.data() + a * w.shape.cols, w.shape.cols);
      const auto i = static_cast<size_t>(a * w.shape.rows + r);
      expect_near(e, got[i], name_of(w.shape.type, rule, acts) + " at " + std::to_string(a) + "," + std::to_string(r));
      ASSERT_FLOAT_EQ(got[i] * 2.0f + 0.25f, scaled[i]);
    }
  }
}

TEST_F(CudaMatrix, MultipliesEveryFormatAsItsRuleSays) {
  struct Shape {
    int64_t rows, cols;
  };
  for (const quant::Format& f : quant::formats()) {
    const int64_t block = type_info(f.type).block_elements;
    std::mt19937 random(static_cast<uint32_t>(f.type) + 1);
    for (const Shape s : {Shape{37, 1280}, Shape{5, 256}, Shape{150, std::max<int64_t>(block, 32) * 3},
                          Shape{16, std::max<int64_t>(block, 32) * 29}}) {
      const Weight w =
          make_weight(*uploader, {.type = f.type, .cols = s.cols, .rows = s.rows}, test::Codes::kAny, random);
      for (const Activation rule : rules_of(f)) {
        for (const int64_t acts : {1, 2, 8, 9, 32, 33, 70}) {
          check_product(*this, *stream, w, rule, acts, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaMatrix, MultipliesManyRowsOfWideMatrices) {
  for (const TensorType type : {TensorType::PQ2_0, TensorType::PTQ1_0, TensorType::I2_S, TensorType::Q4_K}) {
    std::mt19937 random(7);
    const Weight w = make_weight(*uploader, {.type = type, .cols = 5120, .rows = 200}, test::Codes::kAny, random);
    for (const int64_t acts : {1, 5, 16, 17, 32, 64, 65, 512}) {
      check_product(*this, *stream, w, quant::find_format(type)->activation, acts, random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaMatrix, MultipliesManyRowsByFloats) {
  for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::BF16}) {
    std::mt19937 random(9);
    for (const MatrixShape& s :
         {MatrixShape{.type = type, .cols = 5120, .rows = 48}, MatrixShape{.type = type, .cols = 264, .rows = 200}}) {
      const Weight w = make_weight(*uploader, s, test::Codes::kAny, random);
      for (const int64_t acts : {64, 129, 400}) {
        check_product(*this, *stream, w, Activation::kF32, acts, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// More groups of rows than any GPU has multiprocessors, of three stages each: blocks take parts of several.
TEST_F(CudaMatrix, MultipliesGroupsThatBlocksShare) {
  std::mt19937 random(8);
  const Weight w = make_weight(*uploader, {.type = TensorType::PQ2_0, .cols = 1408, .rows = 128 * 150 + 40},
                               test::Codes::kAny, random);
  for (const int64_t acts : {3, 12, 20, 40}) {
    check_product(*this, *stream, w, Activation::kI8x128, acts, random);
    if (HasFatalFailure()) return;
  }
}

/// Weights +1 and -1, activations integers with 127 in every group: every sum is an exact integer and so is the
/// product.
TEST_F(CudaMatrix, AgreesToTheLastInteger) {
  constexpr int64_t kCols = 2560, kRows = 48;
  std::mt19937 random(11);
  for (const TensorType type : {TensorType::TQ1_0, TensorType::TQ2_0, TensorType::PQ2_0, TensorType::PTQ1_0}) {
    const quant::Format& f = *quant::find_format(type);
    std::vector<float> w(static_cast<size_t>(kRows * kCols));
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = i % 128 == 0 ? 1.0f : static_cast<float>(static_cast<int>(random() % 3) - 1);
    std::vector<std::byte> tensor(w.size() / type_info(type).block_elements * type_info(type).block_bytes);
    f.encode(w.data(), tensor.data(), static_cast<int64_t>(w.size()), 1.0f);
    const MatrixShape shape{.type = type, .cols = kCols, .rows = kRows};
    DeviceMemory memory(matrix_bytes(shape));
    const DeviceMatrix matrix = uploader->upload(shape, tensor, memory.data());
    for (const int64_t acts : {1, 7, 20, 100}) {
      std::vector<float> x(static_cast<size_t>(acts * kCols));
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = i % 32 == 5 ? 127.0f : static_cast<float>(static_cast<int>(random() % 255) - 127);
      const DeviceMemory dx = to_device(x);
      DeviceMemory room(prepared_bytes(f.activation, kCols, acts)), out = poisoned(static_cast<size_t>(acts * kRows));
      const Prepared prepared{.rule = f.activation, .cols = kCols, .capacity = acts, .data = room.data()};
      prepare(stream->get(), floats(dx), acts, {}, prepared);
      const Product product{.w = &matrix, .out = floats(out)};
      multiply(stream->get(), {&product, 1}, prepared, acts, workspace.data());
      stream->wait();
      const std::vector<float> got = to_host(out, static_cast<size_t>(acts * kRows));
      for (int64_t a = 0; a < acts; ++a) {
        for (int64_t r = 0; r < kRows; ++r) {
          int64_t sum = 0;
          for (int64_t k = 0; k < kCols; ++k) {
            sum += static_cast<int64_t>(w[static_cast<size_t>(r * kCols + k)]) *
                   static_cast<int64_t>(x[static_cast<size_t>(a * kCols + k)]);
          }
          ASSERT_EQ(static_cast<float>(sum), got[static_cast<size_t>(a * kRows + r)])
              << name_of(type, f.activation, acts) << " at " << a << "," << r;
        }
      }
    }
  }
}

TEST_F(CudaMatrix, LooksUpRowsOfEveryFormat) {
  for (const quant::Format& f : quant::formats()) {
    std::mt19937 random(static_cast<uint32_t>(f.type) + 5);
    const Weight w = make_weight(*uploader, {.type = f.type, .cols = 768, .rows = 77}, test::Codes::kAny, random);
    const std::vector<int32_t> ids = {0, 76, 3, 17, 8, 40};
    const DeviceMemory dids = to_device(ids);
    DeviceMemory out = poisoned(ids.size() * 768);
    lookup_rows(stream->get(), w.matrix, reinterpret_cast<const int32_t*>(dids.data()),
                static_cast<int64_t>(ids.size()), floats(out));
    stream->wait();
    const std::vector<float> got = to_host(out, ids.size() * 768);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(w.values[static_cast<size_t>(ids[i / 768]) * 768 + i % 768], got[i])
          << type_info(f.type).name << " row " << ids[i / 768] << " column " << i % 768;
    }
  }
}

TEST_F(CudaMatrix, MultipliesByTheChosenExperts) {
  constexpr int64_t kExperts = 6, kUsed = 3, kCols = 512, kRows = 52;
  for (const TensorType type : {TensorType::PQ2_0, TensorType::Q8_0, TensorType::Q4_K, TensorType::F16}) {
    const Activation rule = quant::find_format(type)->activation;
    std::mt19937 random(3);
    const Weight w = make_weight(*uploader, {.type = type, .cols = kCols, .rows = kRows, .experts = kExperts},
                                 test::Codes::kAny, random);
    for (const int64_t rows : {1, 4, 40, 300}) {
      for (const bool per_row : {true, false}) {
        const int64_t pairs = rows * kUsed, acts = per_row ? rows : pairs;
        std::vector<int32_t> ids(static_cast<size_t>(pairs));
        for (int32_t& id : ids) id = static_cast<int32_t>(random() % (kExperts - 1));  // the last one is never chosen
        const std::vector<float> x = random_rows(acts, kCols, random);
        const std::vector<double> y = rounded(rule, x, kCols);
        const DeviceMemory dx = to_device(x), dids = to_device(ids);
        DeviceMemory room(prepared_bytes(rule, kCols, acts, kFewRowsOfExperts)),
            work(routing_bytes(rows, kUsed, kExperts)), out = poisoned(static_cast<size_t>(pairs * kRows));
        const Prepared prepared{
            .rule = rule, .cols = kCols, .capacity = acts, .few = kFewRowsOfExperts, .data = room.data()};
        const Routing routing{.ids = reinterpret_cast<const int32_t*>(dids.data()),
                              .rows = rows,
                              .used = kUsed,
                              .experts = kExperts,
                              .workspace = work.data()};
        prepare(stream->get(), floats(dx), acts, {}, prepared);
        group_by_expert(stream->get(), routing);
        const Product product{.w = &w.matrix, .out = floats(out)};
        multiply_experts(stream->get(), {&product, 1}, prepared, per_row, routing);
        stream->wait();
        const std::vector<float> got = to_host(out, static_cast<size_t>(pairs * kRows));
        for (int64_t p = 0; p < pairs; ++p) {
          for (int64_t r = 0; r < kRows; ++r) {
            const Expected e = dot(w.values.data() + (ids[static_cast<size_t>(p)] * kRows + r) * kCols,
                                   y.data() + (per_row ? p / kUsed : p) * kCols, kCols);
            expect_near(e, got[static_cast<size_t>(p * kRows + r)],
                        name_of(type, rule, rows) + " pair " + std::to_string(p));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(CudaMatrix, RotatesBitForBit) {
  std::mt19937 random(2);
  for (const int64_t block : {2, 4, 32, 128, 1024, 2048}) {
    const int64_t cols = 6144, rows = 3;
    const std::vector<float> x = random_rows(rows, cols, random);
    std::vector<float> signs(static_cast<size_t>(cols));
    for (float& s : signs) s = random() % 2 == 0 ? 1.0f : -1.0f;
    const DeviceMemory dx = to_device(x), dsigns = to_device(signs);
    DeviceMemory out = poisoned(x.size()), back = poisoned(x.size());
    const Rotation rotation{.block = block, .width = cols, .signs = floats(dsigns)};
    rotate(stream->get(), floats(dx), rows, cols, rotation, false, floats(out));
    rotate(stream->get(), floats(dx), rows, cols, rotation, true, floats(back));
    stream->wait();
    std::vector<float> forward = x, inverse = x;
    for (int64_t r = 0; r < rows; ++r) {
      quant::rotate({forward.data() + r * cols, static_cast<size_t>(cols)}, signs, block);
      quant::unrotate({inverse.data() + r * cols, static_cast<size_t>(cols)}, signs, block);
    }
    ASSERT_EQ(forward, to_host(out, x.size())) << "block " << block;
    ASSERT_EQ(inverse, to_host(back, x.size())) << "block " << block;
  }
}

TEST_F(CudaMatrix, RotatesBeforeItRounds) {
  constexpr int64_t kCols = 5120;
  std::mt19937 random(4);
  const Weight w =
      make_weight(*uploader, {.type = TensorType::PTQ1_0, .cols = kCols, .rows = 20}, test::Codes::kAny, random);
  for (const Activation rule : {Activation::kI8x128, Activation::kI8Row}) {
    const std::vector<float> x = random_rows(2, kCols, random);
    std::vector<float> rotated = x;
    for (int64_t r = 0; r < 2; ++r) quant::rotate({rotated.data() + r * kCols, kCols}, {}, 1024);
    const std::vector<double> y = rounded(rule, rotated, kCols);
    const DeviceMemory dx = to_device(x);
    DeviceMemory room(prepared_bytes(rule, kCols, 2)), out = poisoned(40);
    const Prepared prepared{.rule = rule, .cols = kCols, .capacity = 2, .data = room.data()};
    prepare(stream->get(), floats(dx), 2, {.block = 1024}, prepared);
    const Product product{.w = &w.matrix, .out = floats(out)};
    multiply(stream->get(), {&product, 1}, prepared, 2, workspace.data());
    stream->wait();
    const std::vector<float> got = to_host(out, 40);
    for (int64_t i = 0; i < 40; ++i) {
      expect_near(dot(w.values.data() + i % 20 * kCols, y.data() + i / 20 * kCols, kCols), got[static_cast<size_t>(i)],
                  "rotated");
    }
  }
}

/// What a launch of many rows computes while it rounds is what launches of one row do, which the op table compares with
/// ref: an integer that differs moves a product by more than 1e-4 of the largest.
TEST_F(CudaMatrix, ComputesActivationsOfManyRowsAsOfOne) {
  constexpr int64_t kRows = 300, kOut = 24;
  struct Case {
    int64_t cols;
    int32_t norm_group;
    bool gate, plain;
    int64_t block, signs;  // of the rotation
    Columns x_columns{}, gate_columns{};
  };
  const Columns tiled{.dim = 128, .stride = 128, .offset = 0, .k_heads = 16, .rep = 3},
      halves{.dim = 256, .stride = 512, .offset = 256};
  for (const Case& c : {Case{5120, 5120, false, true, 1024, 5120}, Case{2560, 2560, false, false, 128, 0},
                        Case{4352, 0, true, false, 256, 4352}, Case{6144, 128, true, false, 512, 1024, tiled, tiled},
                        Case{3072, 0, true, true, 1024, 3072, {}, halves}, Case{1152, 1152, false, true, 0, 0}}) {
    std::mt19937 random(static_cast<uint32_t>(c.cols));
    const Weight w =
        make_weight(*uploader, {.type = TensorType::PQ2_0, .cols = c.cols, .rows = kOut}, test::Codes::kAny, random);
    std::vector<float> signs(static_cast<size_t>(c.cols));
    for (float& s : signs) s = random() % 2 == 0 ? 1.0f : -1.0f;
    const int64_t stride = 2 * c.cols;
    const DeviceMemory x = to_device(random_rows(kRows, stride, random)),
                       gate = to_device(random_rows(kRows, stride, random)),
                       norm = to_device(random_rows(1, c.cols, random)), sign = to_device(signs);
    DeviceMemory room(prepared_bytes(Activation::kI8x128, c.cols, kRows));
    const Prepared prepared{.rule = Activation::kI8x128, .cols = c.cols, .capacity = kRows, .data = room.data()};
    const auto product = [&](int64_t first, int64_t rows, std::vector<float>* plain) {
      check(cudaMemset(room.data(), 0x7f, room.size()), "poison");
      DeviceMemory out = poisoned(static_cast<size_t>(rows * kOut)),
                   values = poisoned(static_cast<size_t>(rows * c.cols));
      const Source source{.x = floats(x) + first * stride,
                          .x_stride = stride,
                          .x_columns = c.x_columns,
                          .norm = c.norm_group > 0 ? floats(norm) : nullptr,
                          .group = c.norm_group,
                          .eps = 1e-5f,
                          .gate = c.gate ? floats(gate) + first * stride : nullptr,
                          .gate_stride = stride,
                          .gate_columns = c.gate_columns,
                          .plain = c.plain ? floats(values) : nullptr};
      prepare(stream->get(), source, rows, {c.block, c.signs, c.signs > 0 ? floats(sign) : nullptr}, prepared);
      const Product to{.w = &w.matrix, .out = floats(out)};
      multiply(stream->get(), {&to, 1}, prepared, rows, workspace.data());
      stream->wait();
      if (c.plain) *plain = to_host(values, static_cast<size_t>(rows * c.cols));
      return to_host(out, static_cast<size_t>(rows * kOut));
    };
    std::vector<float> plain, plain_of_one;
    const std::vector<float> many = product(0, kRows, &plain);
    for (int64_t row = 0; row < kRows; ++row) {
      const std::vector<float> one = product(row, 1, &plain_of_one);
      const float largest = std::abs(*std::ranges::max_element(one, {}, [](float v) { return std::abs(v); }));
      for (size_t i = 0; i < one.size(); ++i)
        ASSERT_NEAR(one[i], many[static_cast<size_t>(row * kOut) + i], 1e-5f * largest) << c.cols << " row " << row;
      for (size_t i = 0; i < plain_of_one.size() && c.plain; ++i)
        ASSERT_EQ(plain_of_one[i], plain[static_cast<size_t>(row * c.cols) + i]) << c.cols << " row " << row;
    }
  }
}

TEST_F(CudaMatrix, OneRowLeavesItsNormToTheProducts) {
  struct Case {
    TensorType type;
    Activation rule;
    int64_t cols, block;
    TensorType floats;  // of the products in the same launch
    int64_t float_rows, other_rows;
  };
  for (const Case& c : {Case{TensorType::PQ2_0, Activation::kI8x128, 5120, 1024, TensorType::BF16, 48, 31},
                        Case{TensorType::PQ2_0, Activation::kI8x128, 1152, 128, TensorType::F32, 1, 0},
                        Case{TensorType::PQ2_0, Activation::kI8x128, 14336, 2048, TensorType::F16, 7, 7},
                        Case{TensorType::PTQ1_0, Activation::kI8x128, 3072, 0, TensorType::BF16, 0, 0},
                        Case{TensorType::TQ2_0, Activation::kI8x256, 2048, 0, TensorType::F16, 40, 0},
                        Case{TensorType::Q4_K, Activation::kI8x256, 4096, 0, TensorType::F32, 5, 3}}) {
    SCOPED_TRACE(::testing::Message() << type_info(c.type).name << " of " << c.cols << " columns");
    std::mt19937 random(static_cast<uint32_t>(c.cols));
    constexpr int64_t kOut = 80;
    const auto weight = [&](TensorType type, int64_t rows) {
      return make_weight(*uploader, {.type = type, .cols = c.cols, .rows = rows}, test::Codes::kAny, random);
    };
    const Weight w = weight(c.type, kOut), f = weight(c.floats, std::max<int64_t>(c.float_rows, 1)),
                 g = weight(c.floats, std::max<int64_t>(c.other_rows, 1));
    std::vector<float> signs(static_cast<size_t>(c.cols)), values = random_rows(1, c.cols, random);
    for (float& s : signs) s = random() % 2 == 0 ? 1.0f : -1.0f;
    for (float& v : values) v *= 30;
    const DeviceMemory x = to_device(values), norm = to_device(random_rows(1, c.cols, random)), sign = to_device(signs),
                       add = to_device(random_rows(1, kOut, random));
    DeviceMemory plain = poisoned(static_cast<size_t>(c.cols));
    const Source source{.x = floats(x),
                        .x_stride = c.cols,
                        .norm = floats(norm),
                        .group = static_cast<int32_t>(c.cols),
                        .eps = 1e-5f,
                        .plain = c.float_rows > 0 ? floats(plain) : nullptr};
    const Rotation rotation{c.block, c.block > 0 ? c.cols : 0, c.block > 0 ? floats(sign) : nullptr};
    const auto results = [&](bool left) {
      Prepared to{.rule = c.rule, .cols = c.cols, .capacity = 1};
      if (left) to = leaves_norm(to, source, rotation);
      EXPECT_EQ(to.norm_left, left);
      DeviceMemory room(prepared_bytes(to));
      check(cudaMemset(room.data(), 0x7f, room.size()), "poison");
      to.data = room.data();
      DeviceMemory out = poisoned(kOut), out_f = poisoned(static_cast<size_t>(f.matrix.shape.rows)),
                   out_g = poisoned(static_cast<size_t>(g.matrix.shape.rows));
      std::vector<Product> with;
      if (c.float_rows > 0) with.push_back({.w = &f.matrix, .out = floats(out_f), .scale = 0.5f});
      if (c.other_rows > 0) with.push_back({.w = &g.matrix, .out = floats(out_g)});
      EXPECT_TRUE(with_norm_left(with));
      prepare(stream->get(), source, 1, rotation, to, with);
      const Product product{.w = &w.matrix, .out = floats(out), .scale = 2, .add = floats(add)};
      multiply(stream->get(), {&product, 1}, to, 1, workspace.data());
      stream->wait();
      std::vector<std::vector<float>> all{to_host(out, kOut)};
      if (c.float_rows > 0) all.push_back(to_host(out_f, static_cast<size_t>(c.float_rows)));
      if (c.other_rows > 0) all.push_back(to_host(out_g, static_cast<size_t>(c.other_rows)));
      return all;
    };
    const auto expected = results(false), found = results(true);
    EXPECT_EQ(found, results(true));
    for (size_t i = 0; i < expected.size(); ++i) {
      const float largest = std::abs(*std::ranges::max_element(expected[i], {}, [](float v) { return std::abs(v); }));
      // a value next to the middle of two integers may fall to the other side
      const float bound = (i == 0 ? 1e-3f : 2e-6f) * largest;
      for (size_t k = 0; k < expected[i].size(); ++k) ASSERT_NEAR(found[i][k], expected[i][k], bound) << i << " " << k;
    }
  }
}

TEST_F(CudaMatrix, OneRowGoesThroughItsConvolution) {
  constexpr int64_t kCols = 2048, kChannels = 1000, kOther = 64, kStateFloats = 3 * kChannels + 8;
  std::mt19937 random(12);
  ASSERT_TRUE(convolves({.type = TensorType::PTQ1_0}));
  ASSERT_FALSE(convolves({.type = TensorType::Q4_K}));
  const auto weight = [&](int64_t rows) {
    return make_weight(*uploader, {.type = TensorType::PTQ1_0, .cols = kCols, .rows = rows}, test::Codes::kAny, random);
  };
  const Weight w = weight(kChannels), other = weight(kOther);
  const DeviceMemory x = to_device(random_rows(1, kCols, random)),
                     kernel = to_device(random_rows(kChannels, kConvTaps, random));
  const std::vector<float> states = random_rows(3, kStateFloats, random);
  DeviceMemory room(prepared_bytes(Activation::kI8x128, kCols, 1));
  const Prepared prepared{.rule = Activation::kI8x128, .cols = kCols, .capacity = 1, .data = room.data()};
  prepare(stream->get(), floats(x), 1, {}, prepared);
  for (const SeqRows seq :
       {SeqRows{.n_rows = 1, .state_in = kZeroState, .state_out = 1},
        SeqRows{.n_rows = 1, .state_in = 1, .state_out = 1}, SeqRows{.n_rows = 1, .state_in = 0, .state_out = 2}}) {
    const DeviceMemory at = to_device(std::vector<SeqRows>{seq});
    const auto* const seqs = reinterpret_cast<const SeqRows*>(at.data());
    const auto results = [&](bool together) {
      DeviceMemory state = to_device(states), product = poisoned(kChannels), out = poisoned(kChannels),
                   rest = poisoned(kOther);
      std::array<Product, 2> products{Product{.w = &other.matrix, .out = floats(rest)},
                                      Product{.w = &w.matrix, .out = floats(product), .scale = 0.25f}};
      if (together) {
        products[1].out = floats(out);
        products[1].convolution = {
            .kernel = floats(kernel), .seq = seqs, .state = floats(state), .state_floats = kStateFloats};
      }
      multiply(stream->get(), products, prepared, 1, workspace.data());
      if (!together) {
        const StateView view{.conv = floats(state), .conv_floats = kStateFloats};
        conv_silu(stream->get(), floats(product), floats(kernel), {.seqs = seqs}, 1, 1, kChannels, kConvTaps, view,
                  floats(out));
      }
      stream->wait();
      return std::array{to_host(out, kChannels), to_host(rest, kOther), to_host(state, 3 * kStateFloats)};
    };
    EXPECT_EQ(results(true), results(false));
  }
}

TEST_F(CudaMatrix, RepeatsBitForBit) {
  constexpr int64_t kCols = 6144, kRows = 320;
  std::mt19937 random(9);
  const Weight w =
      make_weight(*uploader, {.type = TensorType::PQ2_0, .cols = kCols, .rows = kRows}, test::Codes::kAny, random);
  for (const int64_t acts : {1, 16, 32, 96}) {
    const DeviceMemory dx = to_device(random_rows(acts, kCols, random));
    DeviceMemory room(prepared_bytes(Activation::kI8x128, kCols, acts)),
        out = poisoned(static_cast<size_t>(acts * kRows));
    const Prepared prepared{.rule = Activation::kI8x128, .cols = kCols, .capacity = acts, .data = room.data()};
    prepare(stream->get(), floats(dx), acts, {}, prepared);
    const Product product{.w = &w.matrix, .out = floats(out)};
    std::vector<float> first;
    for (int i = 0; i < 50; ++i) {
      multiply(stream->get(), {&product, 1}, prepared, acts, workspace.data());
      stream->wait();
      const std::vector<float> got = to_host(out, static_cast<size_t>(acts * kRows));
      if (i == 0) first = got;
      ASSERT_EQ(first, got);
    }
  }
}

TEST_F(CudaMatrix, TakesHardlyMoreBytesThanTheFile) {
  for (const quant::Format& f : quant::formats()) {
    const MatrixShape shape{.type = f.type, .cols = 5120, .rows = 5120};
    const TypeInfo& info = type_info(f.type);
    const double file = 5120.0 * 5120.0 / info.block_elements * info.block_bytes;
    const bool base3 = f.type == TensorType::PTQ1_0 || f.type == TensorType::TQ1_0;  // two bits on the device
    EXPECT_LE(static_cast<double>(matrix_bytes(shape)), (base3 ? 1.27 : 1.04) * file) << info.name;
  }
}

}  // namespace
}  // namespace tern::cuda
