#define TERN_TIER "scalar"
#include "backend/cpu/kernel_simd_scalar.h"
// The vectors first: the bodies are written over them.
#include "backend/cpu/kernel_table.inl"

namespace tern::cpu {

const Tier kScalarTier = kThisTier;

}  // namespace tern::cpu
