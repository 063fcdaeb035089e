// What a kernels_<isa>.cpp exports. These translation units include intrinsics and headers of ours only, and call no
// inline function with linkage: the linker could keep the copy compiled for the newest machine.
#pragma once
#include "backend/cpu/matrix.h"

namespace tern::cpu {

struct Tier {
  /// Tuned kernels, best first for a given format and rule.
  const Kernel* kernels;
  int count;
  /// Any format, any rule: rows decoded to f32 against rounded f32 activations.
  void (*matmul_decoded)(const MatmulArgs& args) noexcept;
};

extern const Tier kScalarTier, kAvx2Tier, kAvxVnniTier, kAvx512VnniTier, kAvx512AmxTier, kNeonDotTier, kNeonI8mmTier;

/// Activations as f32 rows: [cols] floats, zeros up to a multiple of 16.
ActLayout float_layout(quant::Activation rule, int64_t cols) noexcept;
/// Copies a row into float_layout.
void copy_row(const float* x, int64_t cols, std::byte* act) noexcept;

}  // namespace tern::cpu
