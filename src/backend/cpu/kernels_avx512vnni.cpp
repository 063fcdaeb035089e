#define TERN_TIER "avx512vnni"
#define TERN_BASE3
#include "backend/cpu/kernel_simd_avx512.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kAvx512VnniTier = kThisTier;

}  // namespace tern::cpu
