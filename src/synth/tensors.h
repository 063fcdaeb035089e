// What a file of a given shape contains: its tensors in file order and its keys.
#pragma once
#include <string>
#include <vector>

#include "gguf/file.h"
#include "synth/shape.h"

namespace tern::synth {

/// What a tensor is for: decides its type and how its values are drawn.
enum class Role : uint8_t {
  kTable,   // token embedding
  kHead,    // output matrix
  kMatrix,  // linear of a block, or of its experts
  kGate,    // narrow linear that stays in 16 bits where the others are folded (ssm_alpha, ssm_beta)
  kRouter,  // choice of experts, f32
  kNorm,
  kBias,
  kConv,
  kDecay,     // ssm_a: -exp(A_log)
  kStepBias,  // ssm_dt.bias
  kDivisors,  // rope_freqs
  kScale,     // <matrix>.scale
};

struct Tensor {
  std::string name;
  std::vector<int64_t> ne;  // ne[0], the contiguous one, first
  Role role = Role::kMatrix;
};

std::vector<Tensor> tensors_of(const Shape& shape);

/// Sets `general.*`, `<architecture>.*` and, for a folded shape, `prism.hadamard.*` with signs drawn from `seed`.
void set_keys(gguf::Metadata& metadata, const Shape& shape, const std::vector<Tensor>& tensors, uint64_t seed);

}  // namespace tern::synth
