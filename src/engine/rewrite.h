// Writes a model file anew with its weights in another form.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "gguf/file.h"

namespace tern {

struct RewriteReport {
  int tensors = 0;  // in the file
  int changed = 0;  // whose bytes are different
  uint64_t bytes = 0;
};
using RewriteProgress = std::function<void(uint64_t done, uint64_t total)>;  // bytes of the source

/// Every tensor of a ternary format becomes `target`, without loss; everything else is copied. kUnsupported, naming the
/// first weight that does not fit, as quant::transcode says; kInvalidArgument when nothing in the file is ternary.
RewriteReport transcode_file(const gguf::File& file, TensorType target, const std::string& out,
                             const RewriteProgress& progress);

/// Undoes a Hadamard fold: W = W' H diag(s), its input permutation undone where ssm_out has one; rows of a rotated
/// table e = diag(s) H z; no `prism.hadamard.*` keys. These tensors, and the formats stock llama.cpp lacks, become
/// `target` (F32, F16 or Q8_0). The rest is copied.
RewriteReport unfold_file(const gguf::File& file, TensorType target, const std::string& out,
                          const RewriteProgress& progress);

}  // namespace tern
