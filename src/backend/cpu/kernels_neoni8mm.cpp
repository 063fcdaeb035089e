#define TERN_TIER "neoni8mm"
#include "backend/cpu/kernel_simd_neoni8mm.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kNeonI8mmTier = kThisTier;

}  // namespace tern::cpu
