// Tensor-core products of f16 fragments, sums in f32, and what brings their operands. Device code for sm_80 and later.
//
// One k-step is 16 columns of 16 rows of A. Lane (g = lane / 4, t = lane % 4) holds of A four pairs of columns: a[0]
// row g, columns 2t, 2t + 1; a[1] row g + 8, the same; a[2], a[3] the same rows, columns 8 + 2t..; of B the rows 2t, 2t
// + 1 (b0) and 8 + 2t.. (b1) of column g; of the sums c[0], c[1] row g, columns 2t, 2t + 1, and c[2], c[3] row g + 8.
// Two tiles of sums side by side are thus the operand A of a k-step.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/mma.h"

namespace tern::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/// load_matrices (mma.h), each matrix of 8 x 8 halves transposed: a lane gets rows 2t, 2t + 1 of column g.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const __half* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// Barrier `id` (1 to 15) of so many threads of a block.
__device__ __forceinline__ void synchronise(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// For those who wait there: this thread does not.
__device__ __forceinline__ void arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ uint32_t pack(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return reinterpret_cast<const uint32_t&>(h);
}

#endif

}  // namespace tern::cuda
