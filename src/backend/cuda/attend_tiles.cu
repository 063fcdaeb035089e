// Attention of many rows on the tensor cores: a block takes a tile of query vectors of one KV head (consecutive rows of
// a sequence times the query heads of the group), and its pages of keys and values one after the other. Products are
// f16 with sums in f32; the softmax runs in f32.
#include "backend/cuda/attend_inputs.h"
#include "backend/cuda/attend_tile.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 128, kVectors = 64, kTokens = kPageTokens;
static_assert(kTokens == 64, "a page is a tile of keys");

template <int kDim>
constexpr size_t kShared = (kVectors + 2 * kTokens) * kRow<kDim> * sizeof(__half);

struct TileArgs {
  const float* q;
  DeviceStep step;
  int32_t n_seqs;
  AttendShape shape;
  KvView kv;
  float* out;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/// The tile of a block: which sequence, which of its rows. False when there is none.
struct Tile {
  SeqRows seq;
  int row, rows;  // of the sequence's new rows
};
__device__ bool find_tile(const TileArgs& a, int rows_a_tile, Tile* tile) {
  int index = blockIdx.x;
  for (int s = 0; s < a.n_seqs; ++s) {
    const SeqRows seq = a.step.seqs[s];
    const int tiles = (seq.n_rows + rows_a_tile - 1) / rows_a_tile;
    if (index < tiles) {
      const int row = (tiles - 1 - index) * rows_a_tile;  // those that see most come first
      *tile = {seq, row, min(rows_a_tile, seq.n_rows - row)};
      return true;
    }
    index -= tiles;
  }
  return false;
}

template <int kDim>
__device__ void attend_tile(const TileArgs& a) {
  extern __shared__ __half shared[];
  __half *const queries = shared, *const keys = queries + kVectors * kRow<kDim>,
                *const values = keys + kTokens * kRow<kDim>;
  const int group = a.shape.heads / a.shape.kv_heads, kv_head = blockIdx.y;
  Tile tile;
  if (!find_tile(a, kVectors / group, &tile)) return;
  const int vectors = tile.rows * group;
  const int64_t first_row = tile.seq.first_row + tile.row;
  const int position = tile.seq.position + tile.row;  // of the tile's first row
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int seen = position + tile.rows, pages = (seen + kTokens - 1) / kTokens;
  const auto head = [&](int p, bool keys) { return head_of(a.kv, page_of(a.kv, a.step, tile.seq, p), keys, kv_head); };
  const auto load_keys = [&](int p) {
    load_tokens<kDim, kTokens, kThreads>(keys, head(p, true), a.kv.k_type, 0, seen - p * kTokens, threadIdx.x);
    copy_async_commit();
  };
  const auto load_values = [&](int p) {
    load_tokens<kDim, kTokens, kThreads>(values, head(p, false), a.kv.v_type, 0, seen - p * kTokens, threadIdx.x);
    copy_async_commit();
  };
  load_keys(0);
  for (int i = threadIdx.x; i < kVectors * kDim / 2; i += kThreads) {
    const int m = i / (kDim / 2), d = i % (kDim / 2) * 2;
    float2 x{0, 0};
    if (m < vectors)
      x = *reinterpret_cast<const float2*>(
          a.q + ((first_row + m / group) * a.shape.heads + kv_head * group + m % group) * kDim + d);
    *reinterpret_cast<uint32_t*>(queries + m * kRow<kDim> + d) = pack(x.x, x.y);
  }
  const float scale = a.shape.scale * kLog2e;
  int visible[2];  // of the lane's two vectors
  for (int half = 0; half < 2; ++half)
    visible[half] = position + min(warp * 16 + lane / 4 + 8 * half, vectors - 1) / group;

  float sums[kDim / 8][4] = {};
  Online online;
  for (int p = 0; p < pages; ++p) {
    load_values(p);
    copy_async_wait<1>();
    __syncthreads();
    float s[kTokens / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t q[4];
      load_matrices(q, queries + (warp * 16 + lane % 16) * kRow<kDim> + k * 16 + lane / 16 * 8);
#pragma unroll
      for (int n = 0; n < kTokens / 16; ++n) {
        uint32_t b[4];
        load_matrices(b, keys + (n * 16 + lane % 8 + lane / 16 * 8) * kRow<kDim> + k * 16 + lane / 8 % 2 * 8);
        multiply_add(s[2 * n], q, b[0], b[1]);
        multiply_add(s[2 * n + 1], q, b[2], b[3]);
      }
    }
    __syncthreads();  // the keys have been read
    if (p + 1 < pages)
      load_keys(p + 1);
    else
      copy_async_commit();
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int token = p * kTokens + n * 8 + lane % 4 * 2 + i % 2;
        s[n][i] = token <= visible[i / 2] ? s[n][i] * scale : -INFINITY;
      }
    }
    float keep[2];
    soften(s, online, keep);
#pragma unroll
    for (auto& sum : sums) {
      for (int i = 0; i < 4; ++i) sum[i] *= keep[i / 2];
    }
    copy_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTokens / 16; ++k) {
      const uint32_t w[4] = {pack(s[2 * k][0], s[2 * k][1]), pack(s[2 * k][2], s[2 * k][3]),
                             pack(s[2 * k + 1][0], s[2 * k + 1][1]), pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        load_matrices_transposed(b, values + (k * 16 + lane % 16) * kRow<kDim> + n * 16 + lane / 16 * 8);
        multiply_add(sums[2 * n], w, b[0], b[1]);
        multiply_add(sums[2 * n + 1], w, b[2], b[3]);
      }
    }
    __syncthreads();  // the values have been read
  }
  for (int half = 0; half < 2; ++half) {
    float total = online.total[half];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int m = warp * 16 + lane / 4 + 8 * half;
    if (m >= vectors) continue;
    float* const to = a.out + ((first_row + m / group) * a.shape.heads + kv_head * group + m % group) * kDim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<float2*>(to + n * 8 + lane % 4 * 2) = {sums[n][2 * half] / total,
                                                               sums[n][2 * half + 1] / total};
  }
}

#endif

template <int kDim>
__global__ void __launch_bounds__(kThreads) attend_tiles_kernel(const __grid_constant__ TileArgs a) {
  begin_kernel();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  attend_tile<kDim>(a);
#endif
}

template <int kDim>
void launch_tiles(cudaStream_t s, const TileArgs& a, int64_t rows) {
  static const cudaError_t raised = cudaFuncSetAttribute(
      attend_tiles_kernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared<kDim>));
  check_launch(raised, "attend_tiles");
  const int64_t rows_a_tile = kVectors / (a.shape.heads / a.shape.kv_heads);
  const dim3 grid(static_cast<unsigned>(rows / rows_a_tile + a.n_seqs), static_cast<unsigned>(a.shape.kv_heads));
  launch("attend_tiles", attend_tiles_kernel<kDim>, grid, kThreads, kShared<kDim>, s, a);
}

}  // namespace

bool attend_tiles_supports(const AttendShape& shape, const KvView& kv, int compute_capability) {
  const bool dims = shape.dim_k == shape.dim_v && (shape.dim_k == 64 || shape.dim_k == 128 || shape.dim_k == 256);
  const bool types = kv.k_type != PageType::kF32 && kv.v_type != PageType::kF32;  // f32 is there to be exact
  return compute_capability >= 80 && dims && types && shape.heads / shape.kv_heads <= kVectors;
}

void attend_tiles(cudaStream_t s, const float* q, const DeviceStep& step, int64_t rows, int64_t n_seqs,
                  const AttendShape& shape, const KvView& kv, float* out) {
  if (rows == 0) return;
  const TileArgs a{q, step, static_cast<int32_t>(n_seqs), shape, kv, out};
  if (shape.dim_k == 64) {
    launch_tiles<64>(s, a, rows);
  } else if (shape.dim_k == 128) {
    launch_tiles<128>(s, a, rows);
  } else {
    launch_tiles<256>(s, a, rows);
  }
}

}  // namespace tern::cuda
