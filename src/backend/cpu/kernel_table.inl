// The table of one tier, made by including this after a kernel_simd_*.h.
#pragma once
#include "backend/cpu/kernel_float.inl"

namespace tern::cpu {
namespace {

using quant::Activation;

bool supports_any(int64_t, int64_t) noexcept {
  return true;
}
size_t nothing_packed(int64_t, int64_t) noexcept {
  return 0;
}
ActLayout layout_f32(int64_t cols) noexcept {
  return float_layout(Activation::kF32, cols);
}

template <typename Rows>
constexpr Kernel float_kernel(const char* name, TensorType type) {
  return {.name = name,
          .type = type,
          .rule = Activation::kF32,
          .row_unit = Simd::kFloatRows,
          .supports = supports_any,
          .holds = nullptr,
          .packed_bytes = nothing_packed,
          .pack = nullptr,
          .act_layout = layout_f32,
          .quantize = copy_row,
          .matmul = matmul_rows<Rows>};
}

#define TERN_KERNEL_NAME(what) what "_" TERN_TIER

constexpr Kernel kTierKernels[] = {
    float_kernel<RowsF32>(TERN_KERNEL_NAME("f32"), TensorType::F32),
    float_kernel<RowsF16>(TERN_KERNEL_NAME("f16"), TensorType::F16),
    float_kernel<RowsBF16>(TERN_KERNEL_NAME("bf16"), TensorType::BF16),
};

constexpr Tier kThisTier = {.kernels = kTierKernels,
                            .count = static_cast<int>(sizeof kTierKernels / sizeof kTierKernels[0]),
                            .matmul_decoded = matmul_decoded};

}  // namespace
}  // namespace tern::cpu
