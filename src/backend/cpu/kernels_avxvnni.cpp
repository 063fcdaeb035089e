#define TERN_TIER "avxvnni"
#include "backend/cpu/kernel_simd_avx2.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kAvxVnniTier = kThisTier;

}  // namespace tern::cpu
