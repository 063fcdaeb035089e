// The reference executor: scalar, one thread, sums in double, one op after the other. Slow and obvious; the oracle of
// every op test. It rounds activations and KV entries exactly as their rules say.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace tern {

enum class Precision : uint8_t {
  // The result of every op is rounded to f32: what fast kernels are compared with, op by op. Norms, softmax and
  // products of Q8_0 also add up in f32 in llama.cpp's order, which its goldens of int8 activations depend on.
  kF32,
  // Nothing but the rules of the model is rounded. A whole-model oracle: where activations become int8 (BitNet), an f32
  // pipeline flips about one integer in ten tokens, and a flip moves logits by 1e-2
  // (docs/decisions/0001-ref-precision.md).
  kF64,
};

std::unique_ptr<Backend> make_ref_backend(Precision precision = Precision::kF32);

}  // namespace tern
