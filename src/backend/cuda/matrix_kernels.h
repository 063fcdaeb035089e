// Between matrix.cpp, which knows shapes, and the .cu files, which know layouts: one row of functions a format.
// Included by device code: nothing of fmt or of containers here.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/convolution.h"
#include "backend/cuda/matrix_prepare.h"
#include "gguf/types.h"

namespace tern::cuda {

constexpr int kTileRows = 16;
/// Act rows that a launch of few rows takes, and the weight rows that a block multiplies by them together.
constexpr int kGroupMostActs = 64, kGroupRows = 128;
/// Act rows (or pairs of one expert) that a block of the tiled product takes.
constexpr int kActTile = 64;

/// A Prepared, taken apart. Chunks are 128 columns; padding up to q_stride is zeros. Few rows are in lane order, chunk
/// after chunk of all rows; more are in tile order: kActTile rows together, chunk after chunk.
struct ActView {
  const int8_t* q = nullptr;  // columns of a row and chunk at lane_place or in pieces at act_piece
  int64_t q_stride = 0;
  const float* scales = nullptr;  // lane order, and of 32 columns: [q_stride / 32 or 128][together]; tile order:
                                  // [q_stride / 128][stride]; row rule: ones
  int64_t stride = 0;
  int together = 0;                    // lane order: rows of a chunk, with those that do not exist
  const float* multipliers = nullptr;  // [rows]: s of the row rule; nullptr otherwise
  // Of one row whose norm is left to the product: sums of squares, which make the factor of its results.
  const double* squares = nullptr;
  int n_squares = 0;
  double reciprocal = 0;  // of the count of columns
  float eps = 0;
};

/// Where column c of a chunk of 128 stands: the 32 bytes that lane t of each four needs of it are together (mma.h).
__host__ __device__ constexpr int act_position(int c) {
  return c % 16 / 4 * 32 + c / 32 * 8 + c % 32 / 16 * 4 + c % 4;
}

/// Rows as the eight columns of an operand hold them.
__host__ __device__ constexpr int whole_eights(int64_t rows) {
  return static_cast<int>((rows + 7) / 8 * 8);
}
/// Rows that lie together where there are `rows`.
constexpr int rows_together(int64_t rows) {
  return rows == 1 ? 1 : whole_eights(rows);
}
/// Lane order: where column c of chunk `chunk` of a row stands. Odd rows have their pairs of 16 bytes exchanged, which
/// puts what eight lanes read together into different banks of shared memory.
__host__ __device__ constexpr int64_t lane_place(int64_t row, int64_t chunk, int c, int together) {
  return (chunk * together + row) * 128 + (act_position(c) ^ static_cast<int>(row % 2) * 16);
}

/// Tile order: where the 16 bytes `piece` of chunk `chunk` of a row stand. A chunk of kActTile rows is in one piece,
/// kActChunkBytes. Pieces are exchanged within eight rows, which puts them into different banks of shared memory and is
/// what warpgroup products want.
constexpr int kActChunkBytes = kActTile * 128;
__host__ __device__ constexpr int64_t act_piece(int64_t row, int64_t chunk, int piece, int64_t q_stride) {
  return row / kActTile * kActTile * q_stride + chunk * kActChunkBytes + row % kActTile * 128 +
         (piece ^ static_cast<int>(row % 8)) * 16;
}

/// One weight of a launch and where its product goes.
struct Target {
  const uint8_t* w = nullptr;
  float* out = nullptr;
  const float* bias = nullptr;
  const float* add = nullptr;  // as out
  float scale = 1.0f, tensor_scale = 1.0f;
  int rows = 0;
  int tiles_end = 0;  // tiles of this target and those before it
  int64_t expert_bytes = 0;
};

struct ProductArgs {
  Target target[4];
  int targets = 0;
  int units = 0;  // of a tile
  int rows = 0;   // act rows, or pairs
  ActView x;
  std::byte* workspace = nullptr;  // workspace_bytes() of matrix.h, behind kChainBytes
  Convolution convolution;         // of target `convolved`, of one row
  int convolved = -1;
  // Experts: pair p takes matrix ids[p] and act row p / pairs_per_act. nullptr: one matrix, act row p.
  const int32_t* ids = nullptr;
  int pairs_per_act = 1;
  // Experts, tiled: pairs in order of their expert, and the tiles of act rows (matrix_experts.cu).
  const int32_t* order = nullptr;
  const int4* act_tiles = nullptr;  // expert, first pair in `order`, pairs, 0
};

/// tiles_end counts tiles of 16 rows, and from here on pieces of `tiles` of them, the last of a target a part of one.
/// How many there are.
inline int cut_tiles(ProductArgs& p, int tiles) {
  int pieces = 0, tiles_before = 0;
  for (int i = 0; i < p.targets; ++i) {
    pieces += (p.target[i].tiles_end - tiles_before + tiles - 1) / tiles;
    tiles_before = p.target[i].tiles_end;
    p.target[i].tiles_end = pieces;
  }
  return pieces;
}

/// Float weights and unrounded activations.
struct FloatArgs {
  Target target;
  Target other;  // of float formats: a second weight of the same extents, or none
  int64_t cols = 0;
  int64_t row_bytes = 0;  // of float formats
  int units = 0;          // of integer layouts
  int rows = 0;           // act rows, or pairs
  const float* x = nullptr;
  const int32_t* ids = nullptr;
  int pairs_per_act = 1;
};

struct LookupArgs {
  const uint8_t* w = nullptr;
  const int32_t* ids = nullptr;
  float* out = nullptr;
  int64_t rows = 0, cols = 0, row_bytes = 0, table_rows = 0;
  int units = 0;
  float tensor_scale = 1.0f;
};

struct RepackArgs {
  const uint8_t* from = nullptr;  // rows of the file, the first of a tile first
  uint8_t* to = nullptr;          // its tile
  int64_t row_bytes = 0, rows = 0, cols = 0;
  int units = 0;
};

/// A product of one row in a chain, after what computes its activations.
struct ChainLink {
  PrepareArgs prepare;
  ProductArgs product;
  const float* glu_gate = nullptr;  // if any, the activations start from glu(glu_gate, prepare.source.x)
  int glu_kind = 0;                 // in the order of Gate
};
/// As many as fit the arguments of a kernel.
constexpr int kMaxLinks = 6;
struct ChainArgs {
  ChainLink link[kMaxLinks];
  int links = 0;
  unsigned long long* arrivals = nullptr;  // of blocks at the barriers of all launches so far; 0 at first
};

/// The workspace of products: what chains count, what products count (an unsigned a block), parts of sums.
constexpr size_t kChainBytes = 256, kArrivalBytes = 4096;

/// What a format needs of the device. Functions enqueue one launch.
struct FormatKernels {
  TensorType type;
  int unit = 0;  // columns of a record; 0: a float format, rows as in the file, padded to 16 bytes
  int unit_bytes = 0;
  void (*repack)(cudaStream_t, const RepackArgs&) = nullptr;
  void (*matvec)(cudaStream_t, const ProductArgs&) = nullptr;  // few rows; experts: any number of pairs
  void (*gemm)(cudaStream_t, const ProductArgs&) = nullptr;    // any rows
  void (*chain)(cudaStream_t, const ChainArgs&) = nullptr;     // two-bit layouts, if it takes the links
  bool (*chain_takes)(const ChainArgs&) = nullptr;
  bool convolves = false;  // matvec of one row does a convolution
  void (*floats)(cudaStream_t, const FloatArgs&) = nullptr;
  void (*lookup)(cudaStream_t, const LookupArgs&) = nullptr;
};

/// True when this build and this device have the products of mma_wgmma.h (Hopper, code for sm_90a).
bool wgmma_runs();

/// The row of a format, defined by the .cu that instantiates it.
template <TensorType kType>
FormatKernels format_kernels();

}  // namespace tern::cuda
