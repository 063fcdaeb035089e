#define TERN_TIER "avx2"
#include "backend/cpu/kernel_simd_avx2.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kAvx2Tier = kThisTier;

}  // namespace tern::cpu
