// The table of one tier, made by including this after a kernel_simd_*.h.
#pragma once
#include "backend/cpu/kernel_float.inl"
#include "backend/cpu/kernel_tile.inl"
#ifdef TERN_AMX
#include "backend/cpu/kernel_amx.inl"
#endif

namespace tern::cpu {
namespace {

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

template <typename P>
constexpr Kernel int_kernel(const char* name, TensorType type) {
  return {.name = name,
          .type = type,
          .rule = P::kRule,
          .row_unit = kLanes,
          .supports = P::supports,
          .holds = nullptr,
          .packed_bytes = P::packed_bytes,
          .pack = pack<P>,
          .act_layout = int_layout<P::kRule>,
          .quantize = quantize_int<P::kRule>,
#ifdef TERN_AMX
          .matmul = matmul_amx<P>};
#else
          .matmul = matmul_int<P>};
#endif
}
#ifdef TERN_BASE3
/// Ternary weights in base 3: the fewest bytes, for weights without the code of +2.
template <typename Block, typename Scales, Activation kRule>
constexpr Kernel base3_kernel(const char* name, TensorType type) {
  using P = Product<Block, Base3, Scales, kRule>;
  Kernel k = int_kernel<P>(name, type);
  k.holds = holds_ternary<P>;
  return k;
}
#endif

#define TERN_KERNEL_NAME(what) what "_" TERN_TIER

using enum TensorType;
using enum Activation;

constexpr Kernel kTierKernels[] = {
    float_kernel<RowsF32>(TERN_KERNEL_NAME("f32"), F32),
    float_kernel<RowsF16>(TERN_KERNEL_NAME("f16"), F16),
    float_kernel<RowsBF16>(TERN_KERNEL_NAME("bf16"), BF16),
#ifdef TERN_BASE3
    base3_kernel<BlockTQ1_0, HalfScale<256, 256>, kI8x256>(TERN_KERNEL_NAME("base3_256"), TQ1_0),
    base3_kernel<BlockTQ2_0, HalfScale<256, 256>, kI8x256>(TERN_KERNEL_NAME("base3_256"), TQ2_0),
    base3_kernel<BlockTQ1_0, HalfScale<256, 256>, kI8Row>(TERN_KERNEL_NAME("base3_256"), TQ1_0),
    base3_kernel<BlockTQ2_0, HalfScale<256, 256>, kI8Row>(TERN_KERNEL_NAME("base3_256"), TQ2_0),
    base3_kernel<BlockPTQ1_0, HalfScale<256, 128>, kI8x128>(TERN_KERNEL_NAME("base3_128"), PTQ1_0),
    base3_kernel<BlockPQ2_0, HalfScale<256, 128>, kI8x128>(TERN_KERNEL_NAME("base3_128"), PQ2_0),
    base3_kernel<BlockPTQ1_0, HalfScale<256, 128>, kI8Row>(TERN_KERNEL_NAME("base3_128"), PTQ1_0),
    base3_kernel<BlockPQ2_0, HalfScale<256, 128>, kI8Row>(TERN_KERNEL_NAME("base3_128"), PQ2_0),
    base3_kernel<BlockI2_S, NoScale<256>, kI8Row>(TERN_KERNEL_NAME("base3_row"), I2_S),
#endif
    int_kernel<Product<BlockTQ1_0, Bits2<256, 1>, HalfScale<256, 256>, kI8x256>>(TERN_KERNEL_NAME("bits2_256"), TQ1_0),
    int_kernel<Product<BlockTQ2_0, Bits2<256, 1>, HalfScale<256, 256>, kI8x256>>(TERN_KERNEL_NAME("bits2_256"), TQ2_0),
    int_kernel<Product<BlockTQ1_0, Bits2<256, 1>, HalfScale<256, 256>, kI8Row>>(TERN_KERNEL_NAME("bits2_256"), TQ1_0),
    int_kernel<Product<BlockTQ2_0, Bits2<256, 1>, HalfScale<256, 256>, kI8Row>>(TERN_KERNEL_NAME("bits2_256"), TQ2_0),
    int_kernel<Product<BlockPTQ1_0, Bits2<128, 1>, HalfScale<128, 128>, kI8x128>>(TERN_KERNEL_NAME("bits2_128"),
                                                                                  PTQ1_0),
    int_kernel<Product<BlockPQ2_0, Bits2<128, 1>, HalfScale<128, 128>, kI8x128>>(TERN_KERNEL_NAME("bits2_128"), PQ2_0),
    int_kernel<Product<BlockPTQ1_0, Bits2<128, 1>, HalfScale<128, 128>, kI8Row>>(TERN_KERNEL_NAME("bits2_128"), PTQ1_0),
    int_kernel<Product<BlockPQ2_0, Bits2<128, 1>, HalfScale<128, 128>, kI8Row>>(TERN_KERNEL_NAME("bits2_128"), PQ2_0),
    int_kernel<Product<BlockI2_S, Bits2<128, 1>, NoScale<128>, kI8Row>>(TERN_KERNEL_NAME("bits2_row"), I2_S),
    // Blocks of 32 eight at a time, else one by one.
    int_kernel<Product<BlockQ8_0, Bits8<256>, HalfScale<256, 32>, kI8x32>>(TERN_KERNEL_NAME("bits8"), Q8_0),
    int_kernel<Product<BlockQ4_0, Bits4<256, 8>, HalfScale<256, 32>, kI8x32>>(TERN_KERNEL_NAME("bits4"), Q4_0),
    int_kernel<Product<BlockQ5_0, Bits5<256, 16>, HalfScale<256, 32>, kI8x32>>(TERN_KERNEL_NAME("bits5"), Q5_0),
    int_kernel<Product<BlockQ4_1, Bits4<256, 0>, HalfScaleOffset<256>, kI8x32>>(TERN_KERNEL_NAME("bits4_offset"), Q4_1),
    int_kernel<Product<BlockQ5_1, Bits5<256, 0>, HalfScaleOffset<256>, kI8x32>>(TERN_KERNEL_NAME("bits5_offset"), Q5_1),
    int_kernel<Product<BlockIQ4_NL, Book4<256, BookIq4>, HalfScale<256, 32>, kI8x32>>(TERN_KERNEL_NAME("book4"),
                                                                                      IQ4_NL),
    int_kernel<Product<BlockMXFP4, Book4<256, BookE2m1>, ExponentScale<256>, kI8x32>>(TERN_KERNEL_NAME("book4"), MXFP4),
    int_kernel<Product<BlockQ8_0, Bits8<32>, HalfScale<32, 32>, kI8x32>>(TERN_KERNEL_NAME("bits8_narrow"), Q8_0),
    int_kernel<Product<BlockQ4_0, Bits4<32, 8>, HalfScale<32, 32>, kI8x32>>(TERN_KERNEL_NAME("bits4_narrow"), Q4_0),
    int_kernel<Product<BlockQ5_0, Bits5<32, 16>, HalfScale<32, 32>, kI8x32>>(TERN_KERNEL_NAME("bits5_narrow"), Q5_0),
    int_kernel<Product<BlockQ4_1, Bits4<32, 0>, HalfScaleOffset<32>, kI8x32>>(TERN_KERNEL_NAME("bits4_offset_narrow"),
                                                                              Q4_1),
    int_kernel<Product<BlockQ5_1, Bits5<32, 0>, HalfScaleOffset<32>, kI8x32>>(TERN_KERNEL_NAME("bits5_offset_narrow"),
                                                                              Q5_1),
    int_kernel<Product<BlockIQ4_NL, Book4<32, BookIq4>, HalfScale<32, 32>, kI8x32>>(TERN_KERNEL_NAME("book4_narrow"),
                                                                                    IQ4_NL),
    int_kernel<Product<BlockMXFP4, Book4<32, BookE2m1>, ExponentScale<32>, kI8x32>>(TERN_KERNEL_NAME("book4_narrow"),
                                                                                    MXFP4),
    int_kernel<Product<BlockQ6_K, Bits6<256, 32>, GroupScale<16, false>, kI8x256>>(TERN_KERNEL_NAME("bits6_k"), Q6_K),
    int_kernel<Product<BlockQ4_K, Bits4<256, 0>, GroupScale<32, true>, kI8x256>>(TERN_KERNEL_NAME("bits4_k"), Q4_K),
    int_kernel<Product<BlockNVFP4, Book4<64, BookE2m1>, HalfScale<64, 16>, kI8x32>>(TERN_KERNEL_NAME("book4"), NVFP4),
    int_kernel<Product<BlockQ1_0, Bits1<128>, HalfScale<128, 128>, kI8x128>>(TERN_KERNEL_NAME("bits1"), Q1_0),
    int_kernel<Product<BlockQ2_0, Bits2<64, 1>, HalfScale<64, 64>, kI8x32>>(TERN_KERNEL_NAME("bits2_64"), Q2_0),
    int_kernel<Product<BlockQ5_K, Bits5<256, 0>, GroupScale<32, true>, kI8x256>>(TERN_KERNEL_NAME("bits5_k"), Q5_K),
    int_kernel<Product<BlockQ3_K, Bits3<256, 4>, GroupScale<16, false>, kI8x256>>(TERN_KERNEL_NAME("bits3_k"), Q3_K),
    int_kernel<Product<BlockQ2_K, Bits2<256, 0>, GroupScale<16, true>, kI8x256>>(TERN_KERNEL_NAME("bits2_k"), Q2_K),
    int_kernel<Product<BlockIQ4_XS, Book4<256, BookIq4>, GroupScale<32, false>, kI8x256>>(TERN_KERNEL_NAME("book4_k"),
                                                                                          IQ4_XS),
};

constexpr Tier kThisTier = {.kernels = kTierKernels,
                            .count = static_cast<int>(sizeof kTierKernels / sizeof kTierKernels[0]),
                            .matmul_decoded = matmul_decoded};

}  // namespace
}  // namespace tern::cpu
