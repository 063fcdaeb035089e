// The arithmetic of weights stored in a Hadamard-rotated basis (docs/formats.md): rows of f32, no metadata, no graph.
//
// A folded linear keeps W' = W P^T diag(s) H: the activation goes through P (delta-net outputs only), the signs s, and
// the blockwise transform H before the ordinary product. H = H_N / sqrt(N) on each block of N consecutive elements,
// natural (Sylvester) order; it is symmetric and its own inverse.
#pragma once
#include <cstdint>
#include <span>

namespace tern::quant {

/// x <- H x. `block` is a power of two that divides x.size(). Bit-exact by definition: every element is multiplied by
/// 1/sqrt(block) first, then the strides are 1, 2, 4 ... block/2, each pair (a, b) -> (a + b, a - b) in f32.
void walsh_hadamard(std::span<float> x, int64_t block) noexcept;

/// x <- H diag(signs) x: what an activation needs before a folded weight. `signs` holds +1 / -1, as many as x, or none
/// for the identity.
void rotate(std::span<float> x, std::span<const float> signs, int64_t block) noexcept;
void rotate(std::span<double> x, std::span<const float> signs, int64_t block) noexcept;  // the same in double

/// x <- diag(signs) H x: turns a looked-up row of a rotated table back into an embedding; also turns a row of W' (its
/// input permutation aside) into the same row of W.
void unrotate(std::span<float> x, std::span<const float> signs, int64_t block) noexcept;
void unrotate(std::span<double> x, std::span<const float> signs, int64_t block) noexcept;

/// Where the value heads of a gated delta net stand: the graph has head (k, r) at k + k_heads * r ("tiled"), a folded
/// ssm_out expects it at k * repeat + r ("grouped").
struct HeadOrder {
  int64_t k_heads = 1;
  int64_t repeat = 1;    // value heads per key head
  int64_t head_dim = 1;  // elements a value head
};

/// P: the activation of a folded ssm_out. out and x have k_heads * repeat * head_dim elements and do not overlap.
void tiled_to_grouped(const HeadOrder& order, std::span<const float> x, std::span<float> out) noexcept;
/// P^T: the inverse.
void grouped_to_tiled(const HeadOrder& order, std::span<const float> x, std::span<float> out) noexcept;

}  // namespace tern::quant
