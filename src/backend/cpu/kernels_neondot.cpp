#define TERN_TIER "neondot"
#include "backend/cpu/kernel_simd_neondot.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kNeonDotTier = kThisTier;

}  // namespace tern::cpu
