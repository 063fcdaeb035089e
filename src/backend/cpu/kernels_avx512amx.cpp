#define TERN_TIER "avx512amx"
#define TERN_BASE3
#define TERN_AMX
#include "backend/cpu/kernel_simd_avx512amx.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kAvx512AmxTier = kThisTier;

}  // namespace tern::cpu
