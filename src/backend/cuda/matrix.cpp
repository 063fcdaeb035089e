#include "backend/cuda/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cuda/device.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix_experts.h"
#include "backend/cuda/matrix_kernels.h"
#include "backend/cuda/matrix_prepare.h"
#include "base/checked.h"
#include "base/error.h"
#include "quant/activation.h"

namespace tern::cuda {
namespace {

using quant::Activation;
using enum TensorType;

const FormatKernels kTable[] = {
    format_kernels<F32>(),   format_kernels<F16>(),    format_kernels<BF16>(),   format_kernels<Q4_0>(),
    format_kernels<Q4_1>(),  format_kernels<Q5_0>(),   format_kernels<Q5_1>(),   format_kernels<Q8_0>(),
    format_kernels<Q2_K>(),  format_kernels<Q3_K>(),   format_kernels<Q4_K>(),   format_kernels<Q5_K>(),
    format_kernels<Q6_K>(),  format_kernels<IQ4_NL>(), format_kernels<IQ4_XS>(), format_kernels<MXFP4>(),
    format_kernels<NVFP4>(), format_kernels<TQ1_0>(),  format_kernels<TQ2_0>(),  format_kernels<I2_S>(),
    format_kernels<Q1_0>(),  format_kernels<Q2_0>(),   format_kernels<PQ2_0>(),  format_kernels<PTQ1_0>(),
};

constexpr size_t kAlign = 256;
constexpr size_t kPieceBytes = 32 << 20;  // of the file that is staged at a time
constexpr int64_t kPieceRows = 1 << 16;   // tiles of a piece fit a grid
constexpr int64_t kMostActs = 128;        // act rows of a block: it copies the scales of all of them, were there fewer
constexpr int64_t kPadColumns = 512;      // zeros behind a rounded row: the widest unit reads up to 512 columns further
constexpr int64_t kMostGrid = 65535;      // of the second dimension

const FormatKernels& kernels_of(TensorType type) {
  for (const FormatKernels& k : kTable) {
    if (k.type == type) return k;
  }
  fail(ErrorCode::kUnsupported, "{} weights cannot be decoded on the GPU", type_info(type).name);
}

/// Extents of a weight in device memory.
struct Extents {
  const FormatKernels* kernels;
  int64_t units = 0, tiles = 0;  // of integer layouts
  int64_t file_row = 0;          // bytes
  int64_t row = 0;               // bytes, of float formats
  int64_t expert = 0;            // bytes
};

Extents extents(const MatrixShape& s) {
  const TypeInfo& info = type_info(s.type);
  Extents e{.kernels = &kernels_of(s.type)};
  e.file_row = s.cols / info.block_elements * info.block_bytes;
  e.tiles = ceil_div(s.rows, int64_t{kTileRows});
  if (e.kernels->unit == 0) {
    e.row = ceil_div(e.file_row, int64_t{16}) * 16;
    e.expert = s.rows * e.row;
  } else {
    e.units = ceil_div(s.cols, int64_t{e.kernels->unit});
    e.expert = e.tiles * e.units * e.kernels->unit_bytes;
  }
  e.expert = round_up(e.expert, static_cast<int64_t>(kAlign));
  return e;
}

/// Where the parts of a Prepared lie.
struct Parts {
  ActView view;
  const double* squares;  // of a row whose norm is left to products
  size_t bytes;
};

Parts parts(const Prepared& p) {
  if (p.rule == Activation::kF32) return {{}, nullptr, static_cast<size_t>(p.capacity * p.cols) * sizeof(float)};
  const int64_t q_stride = round_up(p.cols, int64_t{128}) + kPadColumns;
  size_t at = 0;
  const auto take = [&](int64_t bytes) {
    const size_t begin = at;
    at = round_up(at + static_cast<size_t>(bytes), kAlign);
    return p.data ? p.data + begin : nullptr;
  };
  ActView v;
  v.q_stride = q_stride;
  v.stride = p.capacity > p.few ? round_up(p.capacity, int64_t{kActTile}) : rows_together(p.capacity);
  const int64_t scale_columns = p.rule == Activation::kI8x32 ? 32 : 128;
  v.q = reinterpret_cast<const int8_t*>(take(v.stride * q_stride));
  v.scales = reinterpret_cast<const float*>(take((v.stride * q_stride / scale_columns + kMostActs) * 4));
  if (p.rule == Activation::kI8Row) v.multipliers = reinterpret_cast<const float*>(take(p.capacity * 4));
  const auto* const squares = reinterpret_cast<const double*>(take(p.norm_left ? kMostNormSpans * sizeof(double) : 0));
  if (p.norm_left) {
    v.n_squares = static_cast<int>(norm_spans(p.cols, p.rotation_block));
    v.reciprocal = 1.0 / static_cast<double>(p.cols);
    v.eps = p.norm_eps;
  }
  return {v, squares, at};
}

PrepareArgs rotation_args(const Source& source, int64_t rows, int64_t cols, const Rotation& r) {
  CHECK(r.block == 0 || (r.block <= kMostRotationBlock && cols % r.block == 0), "rotation block {} of {} columns",
        r.block, cols);
  return {.source = source,
          .rows = rows,
          .cols = cols,
          .reciprocal = 1.0 / static_cast<double>(cols),
          .block = r.block,
          .width = r.width,
          .signs = r.block > 0 ? r.signs : nullptr,
          .factor = r.block > 0 ? 1.0f / std::sqrt(static_cast<float>(r.block)) : 1.0f};
}

Target target_of(const Product& p, const Extents& e) {
  return {.w = reinterpret_cast<const uint8_t*>(p.w->data),
          .out = p.out,
          .bias = p.bias,
          .add = p.add,
          .scale = p.scale,
          .tensor_scale = p.w->tensor_scale,
          .rows = static_cast<int>(p.w->shape.rows),
          .tiles_end = static_cast<int>(e.tiles),
          .expert_bytes = e.expert};
}

/// Which rows of activations a launch takes and, with experts, how they are paired.
struct Rows {
  int64_t count;  // act rows, or pairs
  const int32_t* ids = nullptr;
  int64_t pairs_per_act = 1;
};

/// `other`: a second product with a float weight of the same columns, or none.
FloatArgs float_args(const Product& p, const Prepared& x, const Rows& rows, const Product* other) {
  const Extents e = extents(p.w->shape);
  return {.target = target_of(p, e),
          .other = other ? target_of(*other, extents(other->w->shape)) : Target{},
          .cols = x.cols,
          .row_bytes = e.row,
          .units = static_cast<int>(e.units),
          .rows = static_cast<int>(rows.count),
          .x = reinterpret_cast<const float*>(x.data),
          .ids = rows.ids,
          .pairs_per_act = static_cast<int>(rows.pairs_per_act)};
}

/// `other`: of the same extents.
void multiply_floats(cudaStream_t stream, const Product& p, const Prepared& x, const Rows& rows,
                     const Product* other = nullptr) {
  const int64_t piece = rows.ids ? kMostGrid / rows.pairs_per_act * rows.pairs_per_act : rows.count;
  for (int64_t first = 0; first < rows.count; first += piece) {
    FloatArgs args = float_args(p, x, rows, other);
    args.rows = static_cast<int>(std::min(piece, rows.count - first));
    args.x += first / rows.pairs_per_act * x.cols;
    if (rows.ids) args.ids += first;
    args.target.out += first * p.w->shape.rows;
    if (args.target.add) args.target.add += first * p.w->shape.rows;
    kernels_of(p.w->shape.type).floats(stream, args);
  }
}

/// Calls launch(kernels, args) for every run of products of one layout; args has the targets, units and activations.
template <typename Launch>
void for_each_layout(std::span<const Product> products, const Prepared& x, Launch launch) {
  CHECK(products.size() <= kMaxProducts, "{} products", products.size());
  for (size_t begin = 0; begin < products.size();) {
    ProductArgs args;
    args.x = parts(x).view;
    const FormatKernels* const kernels = &kernels_of(products[begin].w->shape.type);
    size_t end = begin;
    int tiles = 0;
    for (; end < products.size() && products[end].w->shape.type == kernels->type; ++end) {
      const Extents e = extents(products[end].w->shape);
      CHECK(products[end].w->shape.cols == x.cols, "{} columns against {}", products[end].w->shape.cols, x.cols);
      Target& t = args.target[end - begin] = target_of(products[end], e);
      t.tiles_end = tiles += static_cast<int>(e.tiles);
      args.units = static_cast<int>(e.units);
      if (!products[end].convolution.kernel) continue;
      args.convolution = products[end].convolution;
      args.convolved = static_cast<int>(end - begin);
    }
    args.targets = static_cast<int>(end - begin);
    CHECK(kernels->matvec, "{} weights with rounded activations", type_info(kernels->type).name);
    launch(*kernels, args);
    begin = end;
  }
}

GroupArgs group_args(const Routing& r) {
  const int64_t pairs = r.rows * r.used, tiles = pairs / kActTile + r.experts;
  GroupArgs g{.ids = r.ids,
              .pairs = static_cast<int>(pairs),
              .experts = static_cast<int>(r.experts),
              .act_tile = kActTile,
              .most_tiles = static_cast<int>(tiles)};
  g.tiles = reinterpret_cast<int4*>(r.workspace);
  g.order = reinterpret_cast<int32_t*>(g.tiles + tiles);
  g.counts = g.order + pairs;
  return g;
}

}  // namespace

size_t matrix_bytes(const MatrixShape& shape) {
  return static_cast<size_t>(extents(shape).expert * shape.experts);
}

struct Uploader::Staging {
  PinnedMemory host{kPieceBytes};
  DeviceMemory raw{kPieceBytes};
  cudaEvent_t copied = nullptr;
  Staging() { check(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming), "an event"); }
  ~Staging() { cudaEventDestroy(copied); }
};

Uploader::Uploader(cudaStream_t stream) : stream_(stream) {
  for (auto& s : staging_) s = std::make_unique<Staging>();
}

Uploader::~Uploader() = default;

DeviceMatrix Uploader::upload(const MatrixShape& shape, std::span<const std::byte> tensor, std::byte* to,
                              const std::function<void(std::span<const std::byte>)>& read) {
  const Extents e = extents(shape);
  const int64_t fit = static_cast<int64_t>(kPieceBytes) / e.file_row / kTileRows * kTileRows;
  if (fit == 0) {
    fail(ErrorCode::kUnsupported, "rows of {} bytes are too long for the GPU: {} rows must fit {} MB", e.file_row,
         kTileRows, kPieceBytes >> 20);
  }
  const int64_t step = std::min(fit, kPieceRows);
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    for (int64_t row = 0; row < shape.rows; row += step) {
      const int64_t rows = std::min(step, shape.rows - row);
      const auto piece = tensor.subspan(static_cast<size_t>((expert * shape.rows + row) * e.file_row),
                                        static_cast<size_t>(rows * e.file_row));
      Staging& s = *staging_[next_++ % staging_.size()];
      check(cudaEventSynchronize(s.copied), "uploading weights");  // the copy from the staging two pieces ago
      std::memcpy(s.host.data(), piece.data(), piece.size());
      if (read) read(piece);
      std::byte* const at = to + expert * e.expert;
      if (e.kernels->unit == 0) {
        const auto file_row = static_cast<size_t>(e.file_row), device_row = static_cast<size_t>(e.row);
        check(cudaMemcpy2DAsync(at + row * e.row, device_row, s.host.data(), file_row, file_row,
                                static_cast<size_t>(rows), cudaMemcpyHostToDevice, stream_),
              "uploading weights");
      } else {
        check(cudaMemcpyAsync(s.raw.data(), s.host.data(), piece.size(), cudaMemcpyHostToDevice, stream_),
              "uploading weights");
        e.kernels->repack(stream_,
                          {.from = reinterpret_cast<const uint8_t*>(s.raw.data()),
                           .to = reinterpret_cast<uint8_t*>(at) + row / kTileRows * e.units * e.kernels->unit_bytes,
                           .row_bytes = e.file_row,
                           .rows = rows,
                           .cols = shape.cols,
                           .units = static_cast<int>(e.units)});
      }
      check(cudaEventRecord(s.copied, stream_), "uploading weights");
    }
  }
  return {.shape = shape, .data = to, .tensor_scale = quant::tensor_scale(shape.type, tensor)};
}

void Uploader::finish() {
  check(cudaStreamSynchronize(stream_), "uploading weights");
}

size_t prepared_bytes(Activation rule, int64_t cols, int64_t capacity, int64_t few) {
  return prepared_bytes({.rule = rule, .cols = cols, .capacity = capacity, .few = few});
}
size_t prepared_bytes(const Prepared& p) {
  return parts(p).bytes;
}

void prepare(cudaStream_t stream, const float* x, int64_t rows, const Rotation& rotation, const Prepared& to) {
  prepare(stream, Source{.x = x, .x_stride = to.cols}, rows, rotation, to);
}

namespace {

/// To be read four at a time.
bool aligned(const float* at) {
  return reinterpret_cast<uintptr_t>(at) % 16 == 0;
}

PrepareArgs prepare_args(const Source& source, int64_t rows, const Rotation& rotation, const Prepared& to) {
  CHECK(rows <= to.capacity, "{} rows, room for {}", rows, to.capacity);
  PrepareArgs args = rotation_args(source, rows, to.cols, rotation);
  if (to.rule == Activation::kF32) {
    args.out = reinterpret_cast<float*>(to.data);
  } else {
    const ActView v = parts(to).view;
    args.q = const_cast<int8_t*>(v.q);
    args.scales = const_cast<float*>(v.scales);
    args.q_stride = v.q_stride;
    args.stride = v.stride;
    args.multipliers = const_cast<float*>(v.multipliers);
    args.group = v.multipliers ? 0 : static_cast<int>(quant::activation_group(to.rule, to.cols));
    args.together = rows <= to.few ? rows_together(rows) : 0;
  }
  return args;
}

}  // namespace

void prepare(cudaStream_t stream, const Source& source, int64_t rows, const Rotation& rotation, const Prepared& to) {
  prepare(stream, source, rows, rotation, to, {});
}

void prepare(cudaStream_t stream, const Source& source, int64_t rows, const Rotation& rotation, const Prepared& to,
             std::span<const Product> floats) {
  PrepareArgs args = prepare_args(source, rows, rotation, to);
  if (rows == 1 && to.norm_left) {
    CHECK(aligned(source.x) && aligned(source.norm) && aligned(rotation.signs), "a row that is not aligned");
    args.squares = const_cast<double*>(parts(to).squares);
    if (floats.empty()) return launch_prepare_one(stream, args, nullptr, F32);
    const FloatArgs products =
        float_args(floats[0], {.cols = to.cols}, {.count = 1}, floats.size() > 1 ? &floats[1] : nullptr);
    return launch_prepare_one(stream, args, &products, floats[0].w->shape.type);
  }
  launch_prepare(stream, args);
  const Prepared plain{.cols = to.cols, .capacity = rows, .data = reinterpret_cast<std::byte*>(source.plain)};
  multiply(stream, floats, plain, rows, nullptr);
}

Prepared leaves_norm(Prepared to, const Source& source, const Rotation& rotation) {
  const bool whole_chunks =
      to.cols % 128 == 0 && (rotation.block == 0 || (rotation.block >= 128 && rotation.block <= 2048));
  to.norm_left = (to.rule == Activation::kI8x128 || to.rule == Activation::kI8x256) && whole_chunks && source.norm &&
                 aligned(source.norm) && aligned(rotation.signs) && source.group == to.cols && !source.gate &&
                 source.x_columns.dim == 0 && norm_spans(to.cols, rotation.block) <= kMostNormSpans;
  to.rotation_block = rotation.block;
  to.norm_eps = source.eps;
  return to;
}

bool convolves(const MatrixShape& shape) {
  return kernels_of(shape.type).convolves;
}

bool with_norm_left(std::span<const Product> floats) {
  return floats.size() <= 2 && std::ranges::all_of(floats, [&](const Product& p) {
           const TensorType type = p.w->shape.type;
           return type == floats[0].w->shape.type && kernels_of(type).unit == 0;
         });
}

void rotate(cudaStream_t stream, const float* x, int64_t rows, int64_t cols, const Rotation& rotation, bool inverse,
            float* out) {
  PrepareArgs args = rotation_args(Source{.x = x, .x_stride = cols}, rows, cols, rotation);
  args.inverse = inverse;
  args.out = out;
  launch_prepare(stream, args);
}

size_t workspace_bytes() {
  const auto blocks = static_cast<size_t>(multiprocessors());
  CHECK(blocks * sizeof(unsigned) <= kArrivalBytes, "{} multiprocessors", blocks);
  return kChainBytes + kArrivalBytes + blocks * 2 * kGroupRows * kGroupMostActs * sizeof(float);
}

void multiply(cudaStream_t stream, std::span<const Product> products, const Prepared& x, int64_t rows,
              std::byte* workspace) {
  if (x.rule == Activation::kF32) {
    for (size_t i = 0; i < products.size(); ++i) {
      const MatrixShape& shape = products[i].w->shape;
      const bool pair = i + 1 < products.size() && kernels_of(shape.type).unit == 0 && rows <= kMostGrid &&
                        products[i + 1].w->shape.type == shape.type && products[i + 1].w->shape.rows == shape.rows;
      multiply_floats(stream, products[i], x, {.count = rows}, pair ? &products[i + 1] : nullptr);
      i += pair;
    }
    return;
  }
  for_each_layout(products, x, [&](const FormatKernels& kernels, ProductArgs& args) {
    args.rows = static_cast<int>(rows);
    args.x.together = rows_together(rows);
    CHECK(args.convolved < 0 || (rows == 1 && kernels.convolves), "a convolution of {} rows", rows);
    if (rows == 1 && x.norm_left) args.x.squares = parts(x).squares;
    args.workspace = workspace + kChainBytes;
    (rows <= x.few ? kernels.matvec : kernels.gemm)(stream, args);
  });
}

// ---- Chains ----

struct Chain::Args {
  const FormatKernels* kernels = nullptr;
  ChainArgs chain;
};

Chain::Chain() : args_(std::make_unique<Args>()) {}
Chain::~Chain() = default;

bool Chain::add(const Link& link) {
  ChainArgs& c = args_->chain;
  if (c.links == kMaxLinks || link.to.rule == Activation::kF32) return false;
  int launches = 0;
  for_each_layout({link.products.data(), link.n_products}, link.to, [&](const FormatKernels& kernels, ProductArgs& p) {
    if (launches++ > 0) return;
    if (!args_->kernels) args_->kernels = &kernels;
    p.rows = p.x.together = 1;
    p.x.multipliers = nullptr;  // a link has that of its row for itself
    c.link[c.links] = {.prepare = prepare_args(link.source, 1, link.rotation, link.to),
                       .product = p,
                       .glu_gate = link.glu_gate,
                       .glu_kind = link.glu_kind};
    if (!kernels.chain || kernels.chain != args_->kernels->chain) launches = 2;
  });
  if (launches != 1) return false;
  ++c.links;
  if (args_->kernels->chain_takes(c)) return true;
  --c.links;
  return false;
}

void Chain::launch(cudaStream_t stream, std::byte* workspace) const {
  args_->chain.arrivals = reinterpret_cast<unsigned long long*>(workspace);
  args_->kernels->chain(stream, args_->chain);
}

size_t routing_bytes(int64_t rows, int64_t used, int64_t experts) {
  const int64_t pairs = rows * used;
  return static_cast<size_t>((pairs / kActTile + experts) * int64_t{sizeof(int4)} + (pairs + experts) * 4);
}

void group_by_expert(cudaStream_t stream, const Routing& routing) {
  if (routing.rows * routing.used > kFewRowsOfExperts) launch_group(stream, group_args(routing));
}

void multiply_experts(cudaStream_t stream, std::span<const Product> products, const Prepared& x, bool x_per_row,
                      const Routing& routing) {
  const int64_t pairs = routing.rows * routing.used, per_act = x_per_row ? routing.used : 1;
  if (x.rule == Activation::kF32) {
    for (const Product& p : products) {
      multiply_floats(stream, p, x, {.count = pairs, .ids = routing.ids, .pairs_per_act = per_act});
    }
    return;
  }
  for_each_layout(products, x, [&](const FormatKernels& kernels, ProductArgs& args) {
    args.pairs_per_act = static_cast<int>(per_act);
    CHECK(x.few <= kFewRowsOfExperts, "{} rows for experts", x.few);
    if (pairs / per_act <= x.few) {
      args.x.together = rows_together(pairs / per_act);
      args.rows = static_cast<int>(pairs);
      args.ids = routing.ids;
      kernels.matvec(stream, args);
    } else {
      const GroupArgs groups = group_args(routing);
      args.rows = groups.most_tiles;
      args.order = groups.order;
      args.act_tiles = groups.tiles;
      kernels.gemm(stream, args);
    }
  });
}

void lookup_rows(cudaStream_t stream, const DeviceMatrix& table, const int32_t* ids, int64_t rows, float* out) {
  const Extents e = extents(table.shape);
  e.kernels->lookup(stream, {.w = reinterpret_cast<const uint8_t*>(table.data),
                             .ids = ids,
                             .out = out,
                             .rows = rows,
                             .cols = table.shape.cols,
                             .row_bytes = e.row,
                             .table_rows = table.shape.rows,
                             .units = static_cast<int>(e.units),
                             .tensor_scale = table.tensor_scale});
}

std::string kernel_name(const MatrixShape& shape, Activation rule, int64_t rows) {
  const FormatKernels& k = kernels_of(shape.type);
  const char* const kind = rule == Activation::kF32 ? (k.unit == 0 ? "rows_" : "decode_")
                           : rows <= kFewRows       ? "matvec_"
                                                    : "gemm_";
  return kind + std::string(type_info(shape.type).name);
}

}  // namespace tern::cuda
