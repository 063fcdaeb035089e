// Attention of few rows on the tensor cores: one row's query heads of a KV head are a tile of 16 vectors. Its context
// is cut into parts; of two pages at a time each warp has 16 tokens, whose keys and values it brings to shared memory
// for itself, so that no warp waits for another before the end. In a decode step the row's queries, and its key and
// value in the block that has the newest page, come from their projections here.
#include "backend/cuda/attend_inputs.h"
#include "backend/cuda/attend_tile.h"

namespace tern::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kVectors = 16;
constexpr int kTokens = 16;  // of a warp: one k-step of the values
constexpr int kWarpsOfPage = kPageTokens / kTokens;
[[maybe_unused]] constexpr int kPages = kWarps / kWarpsOfPage;  // at a time

template <int kDim>
constexpr int kStage = 2 * kTokens* kRow<kDim>;  // halves: keys and values of a warp
template <int kDim, int kStages>
constexpr size_t kShared = (kVectors * kRow<kDim> + kWarps * kStages * kStage<kDim>)*sizeof(__half);
/// What a block has beside that, and a kilobyte of the system's: heads on their way, tops and totals, weights of parts.
template <int kDim>
constexpr size_t kStatic = sizeof(float) * (kWarps * kDim + 2 * kWarps * kVectors + kMostHeads * kMostParts) + 2048;
template <int kDim, int kStages>
bool fits() {
  return kShared<kDim, kStages> + kStatic<kDim> <= static_cast<size_t>(most_shared_memory());
}

struct FewArgs {
  const float* q;   // [rows][heads][dim], or
  AttendInputs in;  // with in.q.x, where they and the row's key and value come from
  DeviceStep step;
  AttendShape shape;
  KvView kv;
  int64_t most_parts;
  float* scratch;
  int32_t* counters;
  float* out;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/// Scores of the tile and the warp's 16 tokens; two sums for each, so that products need not wait for each other.
template <int kDim>
__device__ void score(const __half* queries, const __half* keys, int lane, float (&s)[2][4]) {
  float odd[2][4] = {};
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t q[4], b[4];
    load_matrices(q, queries + lane % 16 * kRow<kDim> + k * 16 + lane / 16 * 8);
    load_matrices(b, keys + (lane % 8 + lane / 16 * 8) * kRow<kDim> + k * 16 + lane / 8 % 2 * 8);
    multiply_add(k % 2 ? odd[0] : s[0], q, b[0], b[1]);
    multiply_add(k % 2 ? odd[1] : s[1], q, b[2], b[3]);
  }
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) s[n][i] += odd[n][i];
  }
}

/// The queries of a block as halves, and, with `newest`, the row's key and value to their page. A barrier at the end.
template <int kDim>
__device__ void bring_queries(const FewArgs& a, const SeqRows& seq, int64_t row, int kv_head, bool newest,
                              __half* queries) {
  alignas(16) __shared__ float heads[kWarps][kDim];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = a.shape.heads / a.shape.kv_heads;
  const auto store = [&](int m, int d, float2 x) {
    *reinterpret_cast<uint32_t*>(queries + m * kRow<kDim> + d) = pack(x.x, x.y);
  };
  for (int i = group * kDim / 2 + threadIdx.x; i < kVectors * kDim / 2; i += kThreads)
    store(i / (kDim / 2), i % (kDim / 2) * 2, {0, 0});
  if (!a.in.q.x) {
    wait_for_previous_kernel();
    for (int i = threadIdx.x; i < group * kDim / 2; i += kThreads) {
      const int m = i / (kDim / 2), d = i % (kDim / 2) * 2;
      store(m, d, *reinterpret_cast<const float2*>(a.q + (row * a.shape.heads + kv_head * group + m) * kDim + d));
    }
    return __syncthreads();
  }
  const int32_t position = a.step.positions[row];
  char* const page = page_of(a.kv, a.step, seq, position / kPageTokens);
  const auto source_of = [&](int job) -> const HeadInput& {
    return job < group ? a.in.q : job == group ? a.in.k : a.in.v;
  };
  HeadNorm<kDim> norm;
  norm.read(source_of(warp), kDim, lane);
  wait_for_previous_kernel();
#pragma unroll 1
  for (int job = warp; job < group + (newest ? 2 : 0); job += kWarps) {
    const HeadInput& from = source_of(job);
    if (job != warp) norm.read(from, kDim, lane);
    compute_head(from, a.in, row, job < group ? kv_head * group + job : kv_head, kDim, norm, lane, heads[warp]);
    if (job < group) {
      for (int d = lane * 2; d < kDim; d += 64) store(job, d, *reinterpret_cast<const float2*>(&heads[warp][d]));
    } else {
      write_head(a.kv, page, job == group, kv_head, position % kPageTokens, kDim, heads[warp], lane);
    }
    __syncwarp();
  }
  __syncthreads();
}

template <int kDim, int kStages>
__device__ void attend_part(const FewArgs& a) {
  extern __shared__ __half shared[];
  __shared__ float tops[kWarps][kVectors], totals[kWarps][kVectors];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = a.shape.heads / a.shape.kv_heads, kv_head = blockIdx.y;
  const int64_t row = blockIdx.z;
  const SeqRows seq = a.step.seqs[a.step.seq_of_row[row]];
  const int32_t seen = a.step.positions[row] + 1, pages = (seen + kPageTokens - 1) / kPageTokens;
  const int parts = parts_of(pages, min(a.most_parts, int64_t{(pages + kPages - 1) / kPages})), part = blockIdx.x;
  if (part >= parts) return;
  const int begin = first_page_of(pages, part, parts), end = first_page_of(pages, part + 1, parts);

  __half *const queries = shared, *const mine = queries + kVectors * kRow<kDim> + warp * kStages * kStage<kDim>;
  const int first_token = warp % kWarpsOfPage * kTokens, rounds = (end - begin + kPages - 1) / kPages;
  const auto page_of_round = [&](int i) { return begin + i * kPages + warp / kWarpsOfPage; };
  /// The warp's keys or values of a round, on their way.
  const auto load = [&](int i, bool keys) {
    if (const int p = page_of_round(i); p < end) {
      load_tokens<kDim, kTokens, 32>(mine + i % kStages * kStage<kDim> + (keys ? 0 : kTokens * kRow<kDim>),
                                     head_of(a.kv, page_of(a.kv, a.step, seq, p), keys, kv_head),
                                     keys ? a.kv.k_type : a.kv.v_type, first_token, seen - p * kPageTokens, lane);
    }
    copy_async_commit();
  };
  const auto load_first = [&] {
    for (int i = 0; i < 2 * kStages; ++i) load(i / 2, i % 2 == 0);
  };
  const bool written_before = (begin + kStages * kPages) * kPageTokens <= seq.position;  // by no kernel of this Step
  if (written_before) load_first();
  bring_queries<kDim>(a, seq, row, kv_head, end == pages, queries);
  if (!written_before) load_first();

  const float scale = a.shape.scale * kLog2e;
  float sums[kDim / 8][4] = {};
  Online online;
  for (int round = 0; round < rounds; ++round) {
    copy_async_wait<2 * kStages - 1>();
    __syncwarp();
    const __half* const keys = mine + round % kStages * kStage<kDim>;
    const int p = page_of_round(round), tokens = seen - p * kPageTokens;
    if (p >= end) break;  // the last round, of pages that are not a multiple of kPages
    float s[2][4] = {};
    score<kDim>(queries, keys, lane, s);
    __syncwarp();  // the keys have been read
    load(round + kStages, true);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int token = first_token + n * 8 + lane % 4 * 2 + i % 2;
        s[n][i] = token < tokens ? s[n][i] * scale : -INFINITY;
      }
    }
    float keep[2];
    soften(s, online, keep);
    const uint32_t w[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1]),
                           pack(s[1][2], s[1][3])};
    const __half* const values = keys + kTokens * kRow<kDim>;
    copy_async_wait<2 * kStages - 1>();
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, values + lane % 16 * kRow<kDim> + n * 16 + lane / 16 * 8);
      for (int t = 0; t < 2; ++t) {
        for (int i = 0; i < 4; ++i) sums[2 * n + t][i] *= keep[i / 2];
        multiply_add(sums[2 * n + t], w, b[2 * t], b[2 * t + 1]);
      }
    }
    __syncwarp();  // the values have been read
    load(round + kStages, false);
  }
  copy_async_wait<0>();
  __syncthreads();
  float* const all = reinterpret_cast<float*>(shared);  // [warps][vectors][kDim]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m = lane / 4 + 8 * half;
    float total = online.total[half];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    if (lane % 4 == 0) tops[warp][m] = online.top[half], totals[warp][m] = total;
    if (m >= group) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<float2*>(all + (warp * group + m) * kDim + n * 8 + lane % 4 * 2) = {sums[n][2 * half],
                                                                                            sums[n][2 * half + 1]};
  }
  __syncthreads();
  finish_row({.shape = a.shape,
              .row = row,
              .first_head = kv_head * group,
              .heads = group,
              .parts = parts,
              .part = part,
              .most_parts = a.most_parts,
              .scratch = a.scratch,
              .counter = a.counters + row * gridDim.y + kv_head,
              .out = a.out},
             [&](int h, int d) {
               Partial sum;
               for (int k = 0; k < kWarps; ++k) sum.top = fmaxf(sum.top, tops[k][h]);
               for (int k = 0; k < kWarps; ++k) {
                 const float w = weight_of(tops[k][h], sum.top);
                 sum.total += w * totals[k][h];
                 sum.value += w * all[(k * group + h) * kDim + d];
               }
               return sum;
             });
}

#endif

template <int kDim, int kStages>
__global__ void __launch_bounds__(kThreads) attend_few_kernel(const __grid_constant__ FewArgs a) {
  let_next_kernel_start();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  attend_part<kDim, kStages>(a);
#endif
}

template <int kDim, int kStages>
void launch_few(cudaStream_t s, const FewArgs& a, int64_t rows) {
  static const cudaError_t raised =
      cudaFuncSetAttribute(attend_few_kernel<kDim, kStages>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kShared<kDim, kStages>));
  check_launch(raised, "attend_few");
  const dim3 grid(static_cast<unsigned>(a.most_parts), static_cast<unsigned>(a.shape.kv_heads),
                  static_cast<unsigned>(rows));
  launch("attend_few", attend_few_kernel<kDim, kStages>, grid, kThreads, kShared<kDim, kStages>, s, a);
}

/// With two stages a multiprocessor has one block, with one several.
template <int kDim>
void launch_few(cudaStream_t s, const FewArgs& a, int64_t rows) {
  if (fits<kDim, 2>() && rows * a.shape.kv_heads * a.most_parts <= 2 * multiprocessors()) {
    launch_few<kDim, 2>(s, a, rows);
  } else {
    launch_few<kDim, 1>(s, a, rows);
  }
}

}  // namespace

bool attend_few_supports(const AttendShape& shape, const KvView& kv, int compute_capability) {
  const bool room = shape.dim_k == 64 ? fits<64, 1>() : shape.dim_k == 128 ? fits<128, 1>() : fits<256, 1>();
  return room && attend_tiles_supports(shape, kv, compute_capability) && shape.heads / shape.kv_heads <= kVectors;
}

void attend_few(cudaStream_t s, const float* q, const AttendInputs& in, const DeviceStep& step, int64_t rows,
                const AttendShape& shape, const KvView& kv, int64_t parts, float* scratch, int32_t* counters,
                float* out) {
  if (rows == 0) return;
  const FewArgs a{q, in, step, shape, kv, parts, scratch, counters, out};
  if (shape.dim_k == 64) {
    launch_few<64>(s, a, rows);
  } else if (shape.dim_k == 128) {
    launch_few<128>(s, a, rows);
  } else {
    launch_few<256>(s, a, rows);
  }
}

}  // namespace tern::cuda
