// Weights on a CUDA device and the matrix products over them: the seam between the walker (program) and the kernels.
// One table of layouts (matrix_formats.h) says how each format lies in device memory; kernels know layouts, not files.
//
// Every function that takes a stream only enqueues kernels on it: no allocation, no synchronisation, no host state, so
// all of them can be captured in a graph. Pointers are device memory, 16-byte aligned, unless said otherwise. Results
// are deterministic: the same inputs and row count give the same bits (sums are split by shape alone; no atomics on
// floats). A CUDA error throws tern::Error.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/cuda/convolution.h"
#include "backend/cuda/matrix_source.h"
#include "gguf/types.h"
#include "quant/format.h"

namespace tern::cuda {

/// Extents of a weight as the plan has them: y = W x with x of `cols` (ne0) and y of `rows` (ne1), once an expert.
struct MatrixShape {
  TensorType type = TensorType::F32;
  int64_t cols = 0, rows = 0, experts = 1;
};

/// Bytes of device memory that a weight takes, a multiple of 256. Answers before anything is loaded (`tern plan`).
/// kUnsupported for a format that this engine cannot decode.
size_t matrix_bytes(const MatrixShape& shape);

/// A weight in the layout the kernels read. Does not own `data`.
struct DeviceMatrix {
  MatrixShape shape;
  const std::byte* data = nullptr;
  float tensor_scale = 1.0f;  // I2_S: the scale of the tensor
};

/// Moves weights from the mapped file to the device: pinned staging, raw copy, repacking by a kernel. Holds two pieces
/// of the file at a time and no second host copy.
class Uploader {
 public:
  explicit Uploader(cudaStream_t stream);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  /// Enqueues the repacking of `tensor` (all bytes of the tensor in the file, experts and tail included) to `to`
  /// (matrix_bytes of device memory, 256-byte aligned). `tensor` has been read when this returns; `read`, if any, is
  /// called with each piece once it has been (to give the file's pages back and to report progress).
  DeviceMatrix upload(const MatrixShape& shape, std::span<const std::byte> tensor, std::byte* to,
                      const std::function<void(std::span<const std::byte>)>& read = {});
  /// Waits until everything uploaded so far is complete on the device.
  void finish();

 private:
  struct Staging;
  std::array<std::unique_ptr<Staging>, 2> staging_;
  size_t next_ = 0;
  cudaStream_t stream_;
};

/// Rows that products of few rows take, and where experts read the activations.
constexpr int64_t kFewRows = 64, kFewRowsOfExperts = 32;

/// Activations rounded by `rule`, shared by every weight with that rule and width. int8 rules: the integers and a scale
/// a group (kI8Row: the multiplier s); kF32: f32 [rows][cols].
struct Prepared {
  quant::Activation rule = quant::Activation::kF32;
  int64_t cols = 0;
  int64_t capacity = 0;       // rows there is room for: part of the layout
  int64_t few = kFewRows;     // up to so many rows are laid out for products of few rows
  std::byte* data = nullptr;  // prepared_bytes(rule, cols, capacity, few)
  // Of one row the factor of its norm, of these blocks of a rotation, is left to the products; see leaves_norm.
  bool norm_left = false;
  int64_t rotation_block = 0;
  float norm_eps = 0;
};
size_t prepared_bytes(const Prepared& p);  // its address may be missing
size_t prepared_bytes(quant::Activation rule, int64_t cols, int64_t capacity, int64_t few = kFewRows);

/// Blockwise normalised Walsh-Hadamard transform before rounding: signs first (plan/plan.h, RotateArgs forward).
struct Rotation {
  int64_t block = 0;             // a power of two up to 4096 that divides cols; 0: none
  int64_t width = 0;             // elements of `signs`, applied to every chunk of `width` columns
  const float* signs = nullptr;  // +1 / -1; nullptr: none
};
/// out[r * w.rows + i] = (w x_r)[i] * scale + bias[i] + add[r * w.rows + i].
struct Product {
  const DeviceMatrix* w = nullptr;
  float* out = nullptr;
  float scale = 1.0f;
  const float* bias = nullptr;  // [w.rows] or none
  const float* add = nullptr;   // as out, or none; may be out
  Convolution convolution{};    // of the result, where multiply has one row and `convolves` says so; at most one a call
};
/// True when the product of one row with such a weight can go through a convolution.
bool convolves(const MatrixShape& shape);
/// to = rule(rotate(source)) for `rows` rows of to.cols columns.
void prepare(cudaStream_t stream, const Source& source, int64_t rows, const Rotation& rotation, const Prepared& to);
/// The same, and `floats`, products of float weights with source before rotation and rounding, which source.plain has
/// room for. One row where to.norm_left takes one launch and does not write source.plain.
void prepare(cudaStream_t stream, const Source& source, int64_t rows, const Rotation& rotation, const Prepared& to,
             std::span<const Product> floats);
/// `to`, with what makes its one row leave the factor of its norm to the products, if it can: a norm over the row
/// without a gate, rounded in groups of 128 or 256. Only `multiply` takes such a row. Of the addresses those of the
/// norm and of the signs must be there.
Prepared leaves_norm(Prepared to, const Source& source, const Rotation& rotation);
/// True when `floats` can be multiplied in the launch of such a row: one or two of one type.
bool with_norm_left(std::span<const Product> floats);
/// to = rule(rotate(x)) for `rows` <= capacity rows of x [rows][cols]. The integers are those of quant::quantize_row.
/// For kF32 without a rotation x can serve as the data of a Prepared itself.
void prepare(cudaStream_t stream, const float* x, int64_t rows, const Rotation& rotation, const Prepared& to);
/// out = rotate(x) or its inverse (H, then signs), f32 to f32; x may be out.
void rotate(cudaStream_t stream, const float* x, int64_t rows, int64_t cols, const Rotation& rotation, bool inverse,
            float* out);

constexpr size_t kMaxProducts = 4;
/// Device memory in which the blocks of a launch meet: zero before the first launch that is given it, and given only to
/// launches of one stream.
size_t workspace_bytes();
/// Up to kMaxProducts products over the same activations; neighbours of one format share a launch. Weights have
/// x.cols columns; rows is what x was prepared with; workspace has workspace_bytes().
void multiply(cudaStream_t stream, std::span<const Product> products, const Prepared& x, int64_t rows,
              std::byte* workspace);

/// Products of one row and what computes their activations: to = rule(rotate(source)), products over that. With
/// `glu_gate` the source's x is glu(glu_gate, x).
struct Link {
  Source source{};
  Rotation rotation{};
  Prepared to{};
  const float* glu_gate = nullptr;
  int32_t glu_kind = 0;
  std::array<Product, kMaxProducts> products{};
  size_t n_products = 0;
};
/// Links behind each other in one launch. What a link reads must not be what it writes; `to` and the result of a glu
/// are not written for others. No other chain may run on the GPU at that time.
class Chain {
 public:
  Chain();
  ~Chain();
  /// False when `link` cannot be part of this launch: another format, too many columns, no room. Addresses may be
  /// missing where only that is asked.
  bool add(const Link& link);
  /// `workspace`: as for multiply.
  void launch(cudaStream_t stream, std::byte* workspace) const;

 private:
  struct Args;
  std::unique_ptr<Args> args_;
};

/// Which expert multiplies what: pair p = r * used + j takes W[ids[p]].
struct Routing {
  const int32_t* ids = nullptr;  // [rows * used]
  int64_t rows = 0, used = 0, experts = 0;
  std::byte* workspace = nullptr;  // routing_bytes
};
size_t routing_bytes(int64_t rows, int64_t used, int64_t experts);
/// Groups the pairs by expert (rows beyond a decode step are multiplied expert by expert). Once per ids; every
/// multiply_experts over them follows it on the same stream.
void group_by_expert(cudaStream_t stream, const Routing& routing);
/// out[p * w.rows + i] = (W[ids[p]] x)[i] * scale, without bias. x.few is at most kFewRowsOfExperts. x has one row a
/// pair, or, when `x_per_row`, one a row.
void multiply_experts(cudaStream_t stream, std::span<const Product> products, const Prepared& x, bool x_per_row,
                      const Routing& routing);

/// out[r] = row ids[r] of the (first) matrix, decoded to f32 as quant::Format::decode does.
void lookup_rows(cudaStream_t stream, const DeviceMatrix& table, const int32_t* ids, int64_t rows, float* out);

/// What `tern plan` prints for a product of `rows` rows, e.g. "matvec_PQ2_0", "gemm_mma_PQ2_0".
std::string kernel_name(const MatrixShape& shape, quant::Activation rule, int64_t rows);

}  // namespace tern::cuda
