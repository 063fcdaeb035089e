// The `prism.hadamard.*` metadata: which weights are stored in a Walsh-Hadamard-rotated basis, and every reason to
// refuse. Definition and sources: docs/formats.md. The transform itself is quant/hadamard.h.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"

namespace tern {

class HadamardFold {
 public:
  /// nullopt when the file has no such key. Throws kBadFile / kUnsupported for everything the definition refuses.
  static std::optional<HadamardFold> from_file(const gguf::File& file);

  int64_t block_size() const { return block_size_; }
  bool explicit_signs() const { return !signs_.empty(); }
  /// The signs for activations of `width` columns (+1/-1); empty without explicit signs.
  const std::vector<float>& signs(int64_t width) const;
  /// The activation must be rotated before this weight.
  bool folded(std::string_view name) const {
    return folded_.count(name) != 0 || (tied_output_ && name == "token_embd.weight");
  }
  /// Rows of this table must be rotated back after the look-up.
  bool inverse(std::string_view name) const { return inverse_.count(name) != 0; }
  /// The columns of ssm_out are in grouped V-head order.
  bool gdn_v_grouped() const { return gdn_v_grouped_; }
  bool tied_output() const { return tied_output_; }
  const std::set<std::string, std::less<>>& folded_names() const { return folded_; }

 private:
  int64_t block_size_ = 0;
  bool gdn_v_grouped_ = false, tied_output_ = false;
  std::set<std::string, std::less<>> folded_, inverse_;
  std::map<int64_t, std::vector<float>> signs_;
};

}  // namespace tern
