// Tensor-core products of int8 fragments and the few other instructions that C++ has no name for.
//
// One k-step is 32 columns of 16 weight rows. Lane (g = lane / 4, t = lane % 4) holds of A four registers of four
// consecutive columns: a[0] row g, columns 4t..; a[1] row g + 8, the same; a[2], a[3] the same rows, columns 16 + 4t..;
// of B (activations) b0 and b1: columns 4t.. and 16 + 4t.. of activation row g; of the sums c[0], c[1] for weight row g
// and activation rows 2t, 2t + 1, and c[2], c[3] for weight row g + 8.
#pragma once
#include <cstdint>

namespace tern::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
/// Turing multiplies 8 x 8 x 16 at a time, with the same placement of rows and columns in lanes.
#define TERN_MMA_8X8X16(TYPE, c0, c1, a, b)                                                \
  asm("mma.sync.aligned.m8n8k16.row.col.s32." TYPE ".s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" \
      : "+r"(c0), "+r"(c1)                                                                 \
      : "r"(a), "r"(b))
#define TERN_MMA_K16(TYPE, c, a0, a1, b)        \
  TERN_MMA_8X8X16(TYPE, (c)[0], (c)[1], a0, b); \
  TERN_MMA_8X8X16(TYPE, (c)[2], (c)[3], a1, b)
#define TERN_MMA_K32(TYPE, c, a, b0, b1)     \
  TERN_MMA_K16(TYPE, c, (a)[0], (a)[1], b0); \
  TERN_MMA_K16(TYPE, c, (a)[2], (a)[3], b1)
#else
#define TERN_MMA_K16(TYPE, c, a0, a1, b)                                                                   \
  asm("mma.sync.aligned.m16n8k16.row.col.s32." TYPE ".s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
      : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                                             \
      : "r"(a0), "r"(a1), "r"(b))
#define TERN_MMA_K32(TYPE, c, a, b0, b1)                                                                            \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." TYPE ".s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                                                      \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))
#endif

/// c += A B over one k-step, weights signed.
__device__ __forceinline__ void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  TERN_MMA_K32("s8", c, a, b0, b1);
}
/// Half a k-step: its first 16 columns (a[0], a[1], b0) or its last (a[2], a[3], b1).
__device__ __forceinline__ void mma_s8_half(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  TERN_MMA_K16("s8", c, a0, a1, b);
}

__device__ __forceinline__ int dot_s8(uint32_t a, uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}

/// The same for one activation row, without the tensor cores, whose answer takes longer than these few products: c[0]
/// and c[2] get the part of the sums that lies in this lane's columns. The lanes t of a row add up to the sum.
template <bool kOne>
__device__ __forceinline__ void multiply_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kOne) {
    c[0] = dot_s8(a[2], b1, dot_s8(a[0], b0, c[0]));
    c[2] = dot_s8(a[3], b1, dot_s8(a[1], b0, c[2]));
  } else {
    mma_s8(c, a, b0, b1);
  }
}
template <bool kOne>
__device__ __forceinline__ void multiply_s8_half(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  if constexpr (kOne) {
    c[0] = dot_s8(a0, b, c[0]);
    c[2] = dot_s8(a1, b, c[2]);
  } else {
    mma_s8_half(c, a0, a1, b);
  }
}

/// d = c + the bits that rows of a and columns of b have in common, 256 of each: lane (g, t) holds words t and t + 4 of
/// rows g (a[0], a[2]) and g + 8 (a[1], a[3]) and of column g (b0, b1).
__device__ __forceinline__ void count_bits(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                           const int (&c)[4]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else  // Turing counts other bits
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) d[i] = c[i];
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 2; ++i) {
      const int column = lane % 4 * 2 + i;
      const uint32_t x0 = __shfl_sync(~0u, b0, column * 4 + t), x1 = __shfl_sync(~0u, b1, column * 4 + t);
      for (int h = 0; h < 2; ++h) {
        const int from = lane / 4 * 4 + t;
        d[2 * h + i] += __popc(__shfl_sync(~0u, a[h], from) & x0) + __popc(__shfl_sync(~0u, a[2 + h], from) & x1);
      }
    }
  }
#endif
}

/// 16 bytes that are read once: not kept in L1.
__device__ __forceinline__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
/// Four matrices of 8 rows of 16 bytes; lane l names row l % 8 of matrix l / 8, and gets of each bytes 4t.. of row g.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
/// 16 bytes from global to shared memory; asynchronous where the chip can. `valid` false writes zeros.
__device__ __forceinline__ void copy_async16(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid ? 16 : 0) : "memory");
#else
  *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : uint4{};
#endif
}
__device__ __forceinline__ void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until at most `kLeft` of this thread's groups are under way.
template <int kLeft>
__device__ __forceinline__ void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
// Barriers in shared memory and the copy engine that completes them.
__device__ __forceinline__ void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// After the initialisation, by the thread that did it.
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives; the phase ends once `bytes` have been copied too.
__device__ __forceinline__ void expect_bytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_barrier(const uint64_t* barrier, int parity) {
  uint32_t done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  } while (!done);
}
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
#endif

/// A kernel started by launch() comes up while the one before it still runs: it may read what no kernel writes
/// (weights), and waits here before anything else.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// From here on the next kernel may start, if it was launched early; it waits for the end of this one by itself.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// An int sum that starts at kMagicBits is, read as f32, kMagic + the sum, exact for |sum| < 2^22: one subtraction
/// converts it, where the int-to-float unit takes four times as long.
constexpr int kMagicBits = 0x4b400000;
__device__ __forceinline__ float from_magic(int sum) {
  return __int_as_float(sum) - 12582912.0f;
}

}  // namespace tern::cuda
