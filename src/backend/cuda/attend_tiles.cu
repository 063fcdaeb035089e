// Attention of many rows on the tensor cores: a block takes a tile of query vectors of one KV head (consecutive rows of
// a sequence times the query heads of the group), and its pages of keys and values one after the other. Products are
// f16 with sums in f32; the softmax runs in f32.
#include <cuda_fp16.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {
namespace {

constexpr int kThreads = 128, kVectors = 64, kTokens = kPageTokens;
static_assert(kTokens == 64, "a page is a tile of keys");

/// Halves of a row in shared memory: 16 bytes more than the head, so that eight rows lie in different banks.
template <int kDim>
constexpr int kRow = kDim + 8;
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

__device__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ void load_matrices(uint32_t (&r)[4], const __half* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ void load_matrices_transposed(uint32_t (&r)[4], const __half* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// 16 bytes to shared memory, beside the computation; zeros when there is nothing to read.
__device__ void copy_16(__half* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0));
}
__device__ void commit_copies() {
  asm volatile("cp.async.commit_group;");
}
template <int kLater>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater));
}
__device__ uint32_t pack(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return reinterpret_cast<const uint32_t&>(h);
}

/// One page of keys or values of a head as halves [64][kRow]; tokens from `tokens` on are zeros.
template <int kDim>
__device__ void load_page(__half* to, const char* head, PageType type, int tokens) {
  constexpr int kPieces = kDim / 8;
  for (int i = threadIdx.x; i < kTokens * kPieces; i += kThreads) {
    const int token = i / kPieces, first = i % kPieces * 8;
    __half* const row = to + token * kRow<kDim> + first;
    const int at = token * kDim + first;
    if (type == PageType::kF16) {
      copy_16(row, head + 2 * at, token < tokens);
      continue;
    }
    uint4 packed{0, 0, 0, 0};
    if (token < tokens) {
      const uint2 codes = *reinterpret_cast<const uint2*>(head + at);
      const float d =
          __half2float(reinterpret_cast<const __half*>(head + kTokens * kDim)[token * (kDim / 32) + first / 32]);
      const auto value = [&](int j) {
        return static_cast<float>(static_cast<int8_t>((j < 4 ? codes.x : codes.y) >> j % 4 * 8)) * d;
      };
      packed = {pack(value(0), value(1)), pack(value(2), value(3)), pack(value(4), value(5)), pack(value(6), value(7))};
    }
    *reinterpret_cast<uint4*>(row) = packed;
  }
  commit_copies();
}

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

/// Running softmax of the two vectors (g and g + 8 of the warp's 16) whose scores a lane holds.
struct Online {
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};

/// scores -> weights; what must be multiplied into the sums so far goes to `keep`.
__device__ void soften(float (&s)[kTokens / 8][4], Online& o, float (&keep)[2]) {
  for (int half = 0; half < 2; ++half) {
    float top = o.top[half];
    for (auto& tile : s) top = fmaxf(top, fmaxf(tile[2 * half], tile[2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float base = top == -INFINITY ? 0.0f : top;
    keep[half] = exp2f(o.top[half] - base);
    o.top[half] = top;
    float sum = 0;
    for (auto& tile : s) {
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        tile[i] = exp2f(tile[i] - base);
        sum += tile[i];
      }
    }
    o.total[half] = o.total[half] * keep[half] + sum;  // of this lane's columns: the lanes are added at the end
  }
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
  const auto page = [&](int p) {
    return a.kv.base + static_cast<int64_t>(a.step.pages[tile.seq.first_page + p]) * a.kv.page_bytes;
  };
  const auto load_keys = [&](int p) {
    load_page<kDim>(keys, page(p) + kv_head * a.kv.k_head_bytes, a.kv.k_type, seen - p * kTokens);
  };
  const auto load_values = [&](int p) {
    load_page<kDim>(values, page(p) + a.kv.v_offset + kv_head * a.kv.v_head_bytes, a.kv.v_type, seen - p * kTokens);
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
  const float scale = a.shape.scale * 1.4426950408889634f;  // to powers of two
  int visible[2];                                           // of the lane's two vectors
  for (int half = 0; half < 2; ++half)
    visible[half] = position + min(warp * 16 + lane / 4 + 8 * half, vectors - 1) / group;

  float sums[kDim / 8][4] = {};
  Online online;
  for (int p = 0; p < pages; ++p) {
    load_values(p);
    wait_copies<1>();
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
      commit_copies();
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
    wait_copies<1>();
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
