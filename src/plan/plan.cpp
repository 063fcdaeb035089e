#include "plan/plan.h"

#include <array>

namespace tern {

std::string_view op_name(const Op& op) noexcept {
  static constexpr std::array<std::string_view, std::variant_size_v<OpArgs>> kNames = {
      "embed",  "rms_norm",      "l2_norm",   "linear",     "add",    "glu",           "rope",       "attend",   "take",
      "rotate", "permute_heads", "conv_silu", "delta_rule", "router", "expert_linear", "expert_sum", "pick_rows"};
  return kNames[op.args.index()];
}

}  // namespace tern
