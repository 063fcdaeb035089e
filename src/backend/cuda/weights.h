// The weights of a plan in GPU memory: matrices in the layout of matrix.h, small vectors as f32.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/matrix.h"

namespace tern::cuda {

class Weights {
 public:
  /// Uploads piece by piece and gives the file's pages back as it goes. kOutOfMemory with the numbers, kUnsupported for
  /// a format without a decoder.
  void load(const Plan& plan, const gguf::File& file, const LoadOptions& load, cudaStream_t stream);

  const float* vector(Weight w) const { return w ? at(w).vector : nullptr; }
  /// A matrix, the experts of one, or a table.
  const DeviceMatrix& matrix(Weight w) const { return at(w).matrix; }
  quant::Activation rule(Weight w) const { return at(w).rule; }
  /// Bytes that a product with one matrix of the weight reads.
  uint64_t bytes(Weight w) const {
    return matrix_bytes(at(w).matrix.shape) / static_cast<uint64_t>(at(w).matrix.shape.experts);
  }

 private:
  struct Entry {
    const float* vector = nullptr;
    DeviceMatrix matrix;
    quant::Activation rule = quant::Activation::kF32;
  };
  const Entry& at(Weight w) const { return entries_[static_cast<size_t>(w.id)]; }

  std::vector<Entry> entries_;
  DeviceMemory arena_;
};

/// Bytes of GPU memory that one weight takes, before anything is loaded.
size_t device_bytes(const PlanWeight& w);

}  // namespace tern::cuda
