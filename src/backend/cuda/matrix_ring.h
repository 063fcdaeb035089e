// A warp's own ring of stages in shared memory, filled from consecutive bytes of global memory ahead of their use: by
// the bulk copy engine where there is one (one instruction a stage), otherwise by the lanes, 16 bytes each.
#pragma once
#include <cstdint>

#include "backend/cuda/mma.h"

namespace tern::cuda {

/// A stage is kParts parts of kPartBytes from different places (a short last stage has fewer bytes of each).
template <int kPartBytes, int kParts, int kDepth>
struct WarpRing {
  static_assert(kPartBytes % 16 == 0);
  static constexpr int kStageBytes = kPartBytes * kParts;
  static constexpr int kBytes = kStageBytes * kDepth + 16 * ((kDepth + 1) / 2);  // then a barrier of 8 bytes a stage

  uint8_t* base;
  int lane, slot = 0;  // slot: of the next wait and refill
  int phase = 0;

  __device__ WarpRing(uint8_t* memory, int lane_of_warp) : base(memory), lane(lane_of_warp) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      for (int i = 0; i < kDepth; ++i) init_barrier(barrier(i), 1);
      fence_barriers();
    }
    __syncwarp();
#endif
  }
  __device__ __forceinline__ uint64_t* barrier(int i) const {
    return reinterpret_cast<uint64_t*>(base + kStageBytes * kDepth) + i;
  }
  /// Starts filling stage i: `bytes` (a multiple of 16; 0: nothing) of each part. All lanes have read what was there.
  __device__ __forceinline__ void fill(int i, const uint8_t* const (&from)[kParts], int bytes) const {
#if __CUDA_ARCH__ >= 900
    if (lane == 0 && bytes > 0) {
      expect_bytes(barrier(i), bytes * kParts);
#pragma unroll
      for (int m = 0; m < kParts; ++m) {
        copy_bulk(base + i * kStageBytes + m * kPartBytes, from[m], bytes, barrier(i));
      }
    }
#else
#pragma unroll
    for (int m = 0; m < kParts; ++m) {
      for (int at = lane * 16; at < bytes; at += 512) {
        copy_async16(base + i * kStageBytes + m * kPartBytes + at, from[m] + at, true);
      }
    }
    copy_async_commit();
#endif
  }
  /// Fills the ring for the first time, a stage when the one before has come, and lets the next kernel start. What all
  /// multiprocessors ask for at once waits in line, and behind it what the small kernels before this one still read:
  /// one stage of each warp is enough to keep the memory busy.
  template <typename Fill>
  __device__ __forceinline__ void fill_in_turn(Fill fill_stage) const {
    bool filled = false;
#pragma unroll 1
    for (int i = 0; i < kDepth; ++i) {
#if __CUDA_ARCH__ >= 900
      if (filled) wait_barrier(barrier(i - 1), 0);
#endif
      filled = fill_stage(i);
      if (i == 0) let_next_kernel_start();
    }
  }
  /// The stage that was filled longest ago, complete.
  __device__ __forceinline__ const uint8_t* wait() const {
#if __CUDA_ARCH__ >= 900
    wait_barrier(barrier(slot), phase);
#else
    copy_async_wait<kDepth - 1>();
    __syncwarp();
#endif
    return base + slot * kStageBytes;
  }
  /// Gives that stage back and refills it.
  __device__ __forceinline__ void refill(const uint8_t* const (&from)[kParts], int bytes) {
    __syncwarp();
    fill(slot, from, bytes);
    if (++slot == kDepth) slot = 0, phase ^= 1;
  }
};

}  // namespace tern::cuda
