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
  uint32_t phase = 0;

  __device__ WarpRing(uint8_t* memory, int lane_of_warp) : base(memory), lane(lane_of_warp) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      for (int i = 0; i < kDepth; ++i) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier(i)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
#endif
  }
  __device__ __forceinline__ uint32_t barrier(int i) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(base + kStageBytes * kDepth + 8 * i));
  }
  /// Starts filling stage i: `bytes` (a multiple of 16; 0: nothing) of each part. All lanes have read what was there.
  __device__ __forceinline__ void fill(int i, const uint8_t* const (&from)[kParts], int bytes) const {
#if __CUDA_ARCH__ >= 900
    if (lane == 0 && bytes > 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier(i)), "r"(bytes * kParts)
                   : "memory");
#pragma unroll
      for (int m = 0; m < kParts; ++m) {
        const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(base + i * kStageBytes + m * kPartBytes));
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from[m]), "r"(bytes), "r"(barrier(i))
            : "memory");
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
  /// The stage that was filled longest ago, complete.
  __device__ __forceinline__ const uint8_t* wait() const {
#if __CUDA_ARCH__ >= 900
    uint32_t done;
    do {
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                   : "=r"(done)
                   : "r"(barrier(slot)), "r"(phase)
                   : "memory");
    } while (!done);
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
