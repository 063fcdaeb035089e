// Hopper's warpgroup products of int8 (sm_90a): four warps multiply 64 weight rows in registers by activations in
// shared memory. The places of rows and columns in lanes are those of mma.h, each warp with 16 of the rows.
#pragma once
#include <cstdint>

namespace tern::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TERN_WGMMA 1

/// All warps of a warpgroup: its registers a thread from here on, a multiple of eight.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// Activation rows of 128 bytes, 16-byte pieces exchanged within eight rows (act_piece), from an address that is a
/// multiple of 1024 plus 32 bytes a k-step.
__device__ __forceinline__ uint64_t wgmma_acts(const void* shared) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return static_cast<uint64_t>((at & 0x3ffff) >> 4) | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

#define TERN_ACC4(i) "+r"(c[i][0]), "+r"(c[i][1]), "+r"(c[i][2]), "+r"(c[i][3])
/// c (+)= A B over a k-step, of 64 activation rows; `add` false starts from zero.
__device__ __forceinline__ void wgmma_s8(int (&c)[8][4], const uint32_t (&a)[4], uint64_t acts, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p;}"
      : TERN_ACC4(0), TERN_ACC4(1), TERN_ACC4(2), TERN_ACC4(3), TERN_ACC4(4), TERN_ACC4(5), TERN_ACC4(6), TERN_ACC4(7)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(acts), "r"(static_cast<int>(add)));
}
#undef TERN_ACC4
#endif

}  // namespace tern::cuda
