#include "plan/plan.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tern {

std::string_view op_name(const Op& op) noexcept {
  static constexpr std::array<std::string_view, std::variant_size_v<OpArgs>> kNames = {
      "embed",  "rms_norm",      "l2_norm",   "linear",     "add",    "glu",           "rope",       "attend",   "take",
      "rotate", "permute_heads", "conv_silu", "delta_rule", "router", "expert_linear", "expert_sum", "pick_rows", "input"};
  return kNames[op.args.index()];
}

Plan hidden_part(const Plan& plan) {
  const auto made = std::ranges::find_if(plan.ops, [&](const Op& op) { return op.out == plan.hidden; });
  CHECK(made != plan.ops.end(), "a plan without hidden states");
  Plan part = plan;
  part.ops.resize(static_cast<size_t>(made - plan.ops.begin()) + 1);
  part.logits = plan.hidden;
  part.n_tokens = 0;
  return part;
}

}  // namespace tern
