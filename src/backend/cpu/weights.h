// The weights of a plan as the CPU kernels read them: matrices repacked into one arena of huge pages, small vectors as
// f32, look-up tables left in the mapped file.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/matrix.h"
#include "base/memory.h"
#include "base/thread_pool.h"

namespace tern::cpu {

/// Rows looked up in the mapped file, or in memory.
struct Table {
  const quant::Format* format = nullptr;
  const gguf::File* file = nullptr;    // nullptr: in memory
  std::span<const std::byte> bytes{};  // of the file, mapped, or in memory
  size_t row_bytes = 0;
  int64_t rows = 0, cols = 0;
  float tensor_scale = 1.0f;
};

class Weights {
 public:
  struct Options {
    Isa isa = Isa::kScalar;
    std::string force_kernel{};
  };
  /// Packs on all threads of `pool` and gives the file's pages back as it goes. kUnsupported for a format without a
  /// decoder, kInvalidArgument for a forced kernel that fits no weight.
  void load(const Plan& plan, const gguf::File& file, const LoadOptions& load, const Options& options,
            ThreadPool& pool);

  const float* vector(Weight w) const { return at(w).vector.data(); }
  /// A conv kernel, transposed to [taps][channels].
  const float* conv_kernel(Weight w) const { return at(w).vector.data(); }
  const Table& table(Weight w) const { return at(w).table; }
  const Matrix& matrix(Weight w, int64_t expert = 0) const { return at(w).matrices[static_cast<size_t>(expert)]; }
  int64_t experts(Weight w) const { return static_cast<int64_t>(at(w).matrices.size()); }
  /// Packed bytes of one matrix of the weight.
  size_t matrix_bytes(Weight w) const { return at(w).matrix_bytes; }

 private:
  struct Entry {
    std::vector<float> vector;
    Table table;
    std::vector<Matrix> matrices;
    size_t matrix_bytes = 0;
  };
  struct Piece;
  const Entry& at(Weight w) const { return entries_[static_cast<size_t>(w.id)]; }
  void describe(const Plan& plan, const gguf::File& file, const LoadOptions& load, const Options& options,
                ThreadPool& pool);
  void pack(const Plan& plan, const gguf::File& file, const LoadOptions& load, ThreadPool& pool);

  std::vector<Entry> entries_;
  Memory arena_;
};

}  // namespace tern::cpu
