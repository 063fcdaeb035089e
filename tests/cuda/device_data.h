// Vectors and weights on the GPU, for tests of its products.
#pragma once
#include <algorithm>
#include <random>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/matrix.h"
#include "backend/matrix_weights.h"
#include "quant/format.h"

namespace tern::cuda {

template <typename T>
DeviceMemory to_device(const std::vector<T>& v) {
  DeviceMemory m(std::max<size_t>(v.size() * sizeof(T), 16));
  check(cudaMemcpy(m.data(), v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), "copy to the GPU");
  check(cudaDeviceSynchronize(), "copy to the GPU");  // the copy may return before its bytes arrive
  return m;
}
inline std::vector<float> to_host(const DeviceMemory& m, size_t n) {
  std::vector<float> v(n);
  check(cudaMemcpy(v.data(), m.data(), n * sizeof(float), cudaMemcpyDeviceToHost), "copy from the GPU");
  return v;
}
inline const float* floats(const DeviceMemory& m) {
  return reinterpret_cast<const float*>(m.data());
}
inline float* floats(DeviceMemory& m) {
  return reinterpret_cast<float*>(m.data());
}
/// Memory in which an element that nothing writes is not a number.
inline DeviceMemory poisoned(size_t n) {
  DeviceMemory m(n * sizeof(float));
  check(cudaMemset(m.data(), 0xff, m.size()), "poison");
  check(cudaDeviceSynchronize(), "poison");
  return m;
}

/// What products over a stream are given.
inline DeviceMemory new_workspace() {
  DeviceMemory m(workspace_bytes());
  check(cudaMemset(m.data(), 0, m.size()), "a workspace");
  check(cudaDeviceSynchronize(), "a workspace");
  return m;
}

/// A weight on the GPU and as floats on the host.
struct Weight {
  MatrixShape shape;
  std::vector<float> values;
  DeviceMemory memory;
  DeviceMatrix matrix;
};

inline Weight make_weight(Uploader& uploader, MatrixShape shape, test::Codes codes, std::mt19937& random) {
  const std::vector<std::byte> tensor =
      test::random_tensor(shape.type, shape.rows * shape.experts, shape.cols, codes, random);
  Weight w{.shape = shape, .values = {}, .memory = DeviceMemory(matrix_bytes(shape)), .matrix = {}};
  w.values.resize(static_cast<size_t>(shape.rows * shape.experts * shape.cols));
  quant::find_format(shape.type)
      ->decode(tensor.data(), w.values.data(), static_cast<int64_t>(w.values.size()),
               quant::tensor_scale(shape.type, tensor));
  check(cudaMemset(w.memory.data(), 0xff, w.memory.size()), "poison");
  check(cudaDeviceSynchronize(), "poison");  // before the upload, which goes over another stream
  w.matrix = uploader.upload(shape, tensor, w.memory.data());
  uploader.finish();
  return w;
}

inline std::vector<float> random_rows(int64_t rows, int64_t cols, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = normal(random);
  if (rows > 1) std::fill_n(x.begin() + cols, cols, 0.0f);
  return x;
}

}  // namespace tern::cuda
