// Products of tiles of f16 queries with keys and values of the paged cache: what attention over many rows and over few
// share. Device code for sm_80 and later.
#pragma once
#include "backend/cuda/attend_parts.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma_f16.h"
#include "backend/cuda/ops.h"

namespace tern::cuda {

/// Halves of a row in shared memory: 16 bytes more than the head, so that eight rows lie in different banks.
template <int kDim>
constexpr int kRow = kDim + 8;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/// Tokens [first_token, first_token + kTokens) of a page of keys or values of a head as halves [kTokens][kRow], by
/// kThreads threads of which this is `thread`; zeros from token `exist` of the page on.
template <int kDim, int kTokens, int kThreads>
__device__ void load_tokens(__half* to, const char* head, PageType type, int first_token, int exist, int thread) {
  constexpr int kPieces = kDim / 8;
#pragma unroll 4
  for (int i = thread; i < kTokens * kPieces; i += kThreads) {
    const int token = first_token + i / kPieces, column = i % kPieces * 8;
    __half* const row = to + i / kPieces * kRow<kDim> + column;
    const int at = token * kDim + column;
    if (type == PageType::kF16) {
      copy_async16(row, head + 2 * at, token < exist);
      continue;
    }
    uint4 packed{0, 0, 0, 0};
    if (token < exist) {
      const uint2 codes = *reinterpret_cast<const uint2*>(head + at);
      const auto* scales = reinterpret_cast<const __half*>(head + kPageTokens * kDim);
      const float d = __half2float(scales[token * (kDim / 32) + column / 32]);
      const auto value = [&](int j) {
        return static_cast<float>(static_cast<int8_t>((j < 4 ? codes.x : codes.y) >> j % 4 * 8)) * d;
      };
      packed = {pack(value(0), value(1)), pack(value(2), value(3)), pack(value(4), value(5)), pack(value(6), value(7))};
    }
    *reinterpret_cast<uint4*>(row) = packed;
  }
}

/// Running softmax of the two vectors (g and g + 8 of the warp's 16) whose scores a lane holds.
struct Online {
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};

/// scores -> weights; what must be multiplied into the sums so far goes to `keep`.
template <int kTiles>
__device__ void soften(float (&s)[kTiles][4], Online& o, float (&keep)[2]) {
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

#endif

}  // namespace tern::cuda
