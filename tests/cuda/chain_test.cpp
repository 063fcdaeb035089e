// Chains against the same products launched one by one.
#include <gtest/gtest.h>

#include "backend/cuda/ops.h"
#include "cuda/device_data.h"
#include "cuda/gpu.h"
#include "quant/activation.h"

namespace tern::cuda {
namespace {

using quant::Activation;

/// Everything of a block of a model that a chain does: gates, before a norm and without one, norms, residual sums and
/// several weights on one activation.
class CudaChain : public test::OnGpu, public testing::WithParamInterface<TensorType> {
 protected:
  static constexpr int64_t kWidth = 1280, kInner = 2304, kWide = 6400, kRows = 200;

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    stream_ = std::make_unique<Stream>();
    Uploader uploader(stream_->get());
    const auto weight = [&](int64_t cols, int64_t rows) {
      weights_.push_back(
          make_weight(uploader, {.type = GetParam(), .cols = cols, .rows = rows}, test::Codes::kAny, random_));
    };
    for (int i = 0; i < 2; ++i) weight(kWidth, kInner);
    weight(kInner, kWidth);
    for (int i = 0; i < 2; ++i) weight(kWidth, kWide);
    weight(kWide, kRows);
    x_ = to_device(random_rows(1, kWidth, random_));
    norm_ = to_device(random_rows(1, kInner, random_));
    for (const int64_t n : {kInner, kInner, kWidth, kWide, kWide, kRows})
      out_.push_back(poisoned(static_cast<size_t>(n)));
    plain_ = poisoned(kWidth);
    glu_ = poisoned(kInner);
    rule_ = quant::find_format(GetParam())->activation;
    for (const int64_t cols : {kWidth, kInner, kWidth, kWide}) rounded_.emplace_back(prepared_bytes(rule_, cols, 1));
  }

  Product product(size_t i) { return {.w = &weights_[i].matrix, .out = floats(out_[i])}; }
  Prepared rounded(size_t i, int64_t cols) {
    return {.rule = rule_, .cols = cols, .capacity = 1, .data = rounded_[i].data()};
  }
  static Source normed(const float* x, const float* norm, int64_t cols) {
    return {.x = x, .x_stride = cols, .norm = norm, .group = static_cast<int32_t>(cols), .eps = 1e-5f};
  }

  std::vector<Link> links() {
    std::vector<Link> all(4);
    all[0] = {.source = normed(floats(x_), floats(norm_), kWidth), .to = rounded(0, kWidth)};
    all[0].source.plain = floats(plain_);
    all[0].products = {product(0), product(1)};
    all[1] = {.source = normed(floats(out_[1]), floats(norm_), kInner),
              .to = rounded(1, kInner),
              .glu_gate = floats(out_[0])};
    all[1].products[0] = product(2);
    all[1].products[0].add = floats(x_);
    all[2] = {.source = normed(floats(out_[2]), floats(norm_), kWidth), .to = rounded(2, kWidth)};
    all[2].products = {product(3), product(4)};
    all[3] = {.source = {.x = floats(out_[3]), .x_stride = kWide, .gate = floats(out_[4]), .gate_stride = kWide},
              .to = rounded(3, kWide)};
    all[3].products[0] = product(5);
    for (Link& l : all) l.n_products = l.products[1].w ? 2 : 1;
    return all;
  }
  void one_by_one(Link link) {
    if (link.glu_gate) {
      glu(stream_->get(), link.glu_kind, link.glu_gate, link.source.x, 1, kInner, kInner, floats(glu_));
      link.source.x = floats(glu_);
    }
    prepare(stream_->get(), link.source, 1, link.rotation, link.to);
    multiply(stream_->get(), {link.products.data(), link.n_products}, link.to, 1, workspace_.data());
  }
  std::vector<std::vector<float>> results() {
    stream_->wait();
    std::vector<std::vector<float>> all{to_host(plain_, kWidth)};
    for (DeviceMemory& m : out_) {
      all.push_back(to_host(m, m.size() / 4));
      check(cudaMemset(m.data(), 0xff, m.size()), "poison");
    }
    check(cudaMemset(plain_.data(), 0xff, plain_.size()), "poison");
    check(cudaDeviceSynchronize(), "poison");
    return all;
  }

  std::mt19937 random_{5};
  std::unique_ptr<Stream> stream_;
  std::vector<Weight> weights_;
  DeviceMemory workspace_ = new_workspace(), x_, norm_, plain_, glu_;
  std::vector<DeviceMemory> out_, rounded_;
  Activation rule_{};
};

TEST_P(CudaChain, GivesTheBitsOfItsProductsOneByOne) {
  const std::vector<Link> all = links();
  for (const Link& link : all) one_by_one(link);
  const auto expected = results();
  Chain chain;
  for (size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(chain.add(all[i])) << "link " << i;
  for (int time = 0; time < 50; ++time) {
    chain.launch(stream_->get(), workspace_.data());
    const auto got = results();
    for (size_t i = 0; i < got.size(); ++i) {
      for (size_t k = 0; k < got[i].size(); ++k)
        ASSERT_EQ(expected[i][k], got[i][k]) << "result " << i << " at " << k << ", launch " << time;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaChain,
                         testing::Values(TensorType::PQ2_0, TensorType::PTQ1_0, TensorType::TQ2_0, TensorType::I2_S),
                         [](const auto& type) { return std::string(type_info(type.param).name); });

}  // namespace
}  // namespace tern::cuda
