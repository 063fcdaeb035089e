// The codecs of ggml, loaded from the libggml-base.so of the npm package the tests pin: an independent reading of every
// mainline format.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace tern::test {

/// ggml's struct ggml_type_traits, as of the pinned package; `traits` below checks that it still means this.
struct GgmlTraits {
  const char* type_name;
  int64_t block_elements;
  int64_t block_elements_interleave;
  size_t block_bytes;
  bool is_quantized;
  void (*to_float)(const void* blocks, float* out, int64_t n);
  void (*from_float_ref)(const float* x, void* blocks, int64_t n);
};

/// ggml's row of `type`. Throws with what to do when the library is absent.
const GgmlTraits& ggml_traits(TensorType type);

}  // namespace tern::test
