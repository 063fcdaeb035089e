// Products in f32: weights F32, F16 and BF16 as the file has them, and every other format decoded a few rows at a time
// into a scratch in the L1 cache. A tile of kFloatRows weight rows x kFloatActs activation rows keeps its sums in
// registers and runs along the columns.
#pragma once
#include "backend/cpu/kernel_tier.h"

namespace tern::cpu {
namespace {

struct RowsF32 {
  static constexpr int kBytes = 4;
  static Simd::Float load(const std::byte* p) { return Simd::load_f(reinterpret_cast<const float*>(p)); }
};
struct RowsF16 {
  static constexpr int kBytes = 2;
  static Simd::Float load(const std::byte* p) { return Simd::load_f16(p); }
};
struct RowsBF16 {
  static constexpr int kBytes = 2;
  static Simd::Float load(const std::byte* p) { return Simd::load_bf16(p); }
};

/// So many activation rows are few: the weights are the traffic, and a row gets the same bits whoever shares its step.
constexpr int64_t kFewActs = 8;
/// Columns of one pass: kFloatRows decoded rows of it stay in the L1 cache.
constexpr int64_t kFloatColumns = 1024;
/// Activation rows that are multiplied by a decoded block before the next is decoded.
constexpr int kFloatChunk = 96;

struct FloatBlock {
  const std::byte* w;  // first weight of the block, rows w_stride bytes apart
  int64_t w_stride;
  const std::byte* act;  // first activation, rows act_stride bytes apart
  int64_t act_stride;
  int64_t cols;
};

/// The last columns of a row, fewer than a vector: the activations are padded with zeros, the weights are not. Apart
/// from the tile, whose sums would not stay in registers across the copy.
template <typename Rows>
[[gnu::noinline]] void float_tail(const FloatBlock& b, int64_t k, int rows, int acts, float* sums) {
  for (int r = 0; r < rows; ++r) {
    alignas(64) std::byte tail[Simd::kLanes * Rows::kBytes] = {};
    __builtin_memcpy(tail, b.w + r * b.w_stride + k * Rows::kBytes, static_cast<size_t>(b.cols - k) * Rows::kBytes);
    for (int a = 0; a < acts; ++a) {
      const Simd::Float x = Simd::load_f(reinterpret_cast<const float*>(b.act + a * b.act_stride) + k);
      sums[a * Simd::kFloatRows + r] += Simd::sum(Simd::mul(Rows::load(tail), x));
    }
  }
}

/// to[r] += the sum of v[r].
template <typename S, int R>
void add_sums(const typename S::Float (&v)[R], float* to) {
  if constexpr (requires { S::add_sums(v, to); }) {
    S::add_sums(v, to);
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) to[r] += S::sum(v[r]);
  }
}

/// sums[a * kFloatRows + r] += the product of row r and activation a over the block.
template <typename Rows, int R, int A>
void float_tile(const FloatBlock& b, float* sums) {
  Simd::Float acc[A][R];  // every loop over it is unrolled: an array that is indexed lives in memory
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[a][r] = Simd::zero_f();
  }
  constexpr int64_t kStep = Simd::kLanes;
  int64_t k = 0;
  for (; k + kStep <= b.cols; k += kStep) {
    Simd::Float w[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::byte* row = b.w + r * b.w_stride + k * Rows::kBytes;
      w[r] = Rows::load(row);
      Simd::prefetch(row + R * b.w_stride);  // the rows of the next tile: a new stream each
    }
#pragma GCC unroll 8
    for (int a = 0; a < A; ++a) {
      const Simd::Float x = Simd::load_f(reinterpret_cast<const float*>(b.act + a * b.act_stride) + k);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[a][r] = Simd::fma(w[r], x, acc[a][r]);
    }
  }
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a) add_sums<Simd>(acc[a], sums + a * Simd::kFloatRows);
  if (k < b.cols) float_tail<Rows>(b, k, R, A, sums);
}

/// All activation rows in as few tiles as there can be, of about one size: each reads the weights again.
template <typename Rows, int R, int A>
void float_tiles(FloatBlock b, int64_t acts, float* sums) {
  if constexpr (A > 1) {
    const int64_t tiles = (acts + A - 1) / A;
    if ((acts + tiles - 1) / tiles < A) return float_tiles<Rows, R, A - 1>(b, acts, sums);
  }
  for (; acts >= A; acts -= A) {
    float_tile<Rows, R, A>(b, sums);
    b.act += A * b.act_stride;
    sums += A * Simd::kFloatRows;
  }
  if constexpr (A > 1) {
    if (acts > 0) float_tiles<Rows, R, A - 1>(b, acts, sums);
  }
}

template <typename Rows>
void float_block(const FloatBlock& b, int64_t rows, int64_t acts, float* sums) {
  if (rows == Simd::kFloatRows) return float_tiles<Rows, Simd::kFloatRows, Simd::kFloatActs>(b, acts, sums);
  for (int64_t r = 0; r < rows; ++r) {
    FloatBlock one = b;
    one.w += r * b.w_stride;
    float_tiles<Rows, 1, Simd::kFloatActs>(one, acts, sums + r);
  }
}

/// block(row, rows, k, cols) yields the FloatBlock's w and w_stride. Passes of `pass` columns are the outer loop, so
/// that the activations of a chunk are read from the L2 cache.
template <typename Rows, typename Block>
void float_product(const MatmulArgs& a, int64_t pass, Block&& block) {
  const int64_t cols = a.w->cols;
  const auto act_stride = static_cast<int64_t>(a.w->kernel->act_layout(cols).row_bytes);
  for (int64_t first = 0; first < a.act_rows; first += kFloatChunk) {
    const int64_t acts = a.act_rows - first < kFloatChunk ? a.act_rows - first : kFloatChunk;
    for (int64_t k = 0; k < cols; k += pass) {
      for (int64_t row = a.row_begin; row < a.row_end; row += Simd::kFloatRows) {
        const int64_t rows = a.row_end - row < Simd::kFloatRows ? a.row_end - row : Simd::kFloatRows;
        FloatBlock b = block(row, rows, k, cols - k < pass ? cols - k : pass);
        b.act = a.act + first * act_stride + k * 4;
        b.act_stride = act_stride;
        float sums[kFloatChunk * Simd::kFloatRows];
        for (int64_t i = 0; i < acts * Simd::kFloatRows; ++i) sums[i] = 0;
        float_block<Rows>(b, rows, acts, sums);
        for (int64_t i = 0; i < acts; ++i) {
          float* out = a.out + (first + i) * a.out_stride + row;
          for (int64_t r = 0; r < rows; ++r) out[r] = (k > 0 ? out[r] : 0.0f) + sums[i * Simd::kFloatRows + r];
        }
      }
    }
  }
}

template <typename Rows>
void matmul_rows(const MatmulArgs& a) noexcept {
  const int64_t stride = a.w->cols * Rows::kBytes;
  const int64_t pass = a.act_rows <= kFewActs ? a.w->cols : kFloatColumns;  // few: the weights are the traffic
  float_product<Rows>(a, pass, [&](int64_t row, int64_t, int64_t k, int64_t cols) {
    return FloatBlock{.w = a.w->data + row * stride + k * Rows::kBytes,
                      .w_stride = stride,
                      .act = nullptr,
                      .act_stride = 0,
                      .cols = cols};
  });
}

void matmul_decoded(const MatmulArgs& a) noexcept {
  const quant::Format& format = *quant::find_format(a.w->kernel->type);
  const TypeInfo& type = type_info(format.type);
  const int64_t stride = a.w->cols / type.block_elements * type.block_bytes;
  alignas(64) float scratch[Simd::kFloatRows * kFloatColumns];
  float_product<RowsF32>(a, kFloatColumns, [&](int64_t row, int64_t rows, int64_t k, int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) {
      format.decode(a.w->data + (row + r) * stride + k / type.block_elements * type.block_bytes,
                    scratch + r * kFloatColumns, cols, a.w->tensor_scale);
    }
    return FloatBlock{.w = reinterpret_cast<const std::byte*>(scratch),
                      .w_stride = kFloatColumns * 4,
                      .act = nullptr,
                      .act_stride = 0,
                      .cols = cols};
  });
}

}  // namespace
}  // namespace tern::cpu
