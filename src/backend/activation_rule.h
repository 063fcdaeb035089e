// The one place that decides how the activations before a matrix product are rounded; every backend asks it.
#pragma once
#include "backend/backend.h"
#include "plan/plan.h"
#include "quant/format.h"

namespace tern {

/// The rule of a product with a weight of `format`: none in kF32 mode, the family's own for ternary weights where the
/// model was trained with one (BitNet), otherwise the format's.
inline quant::Activation activation_rule(const Plan& plan, const quant::Format& format, ActivationMode mode) noexcept {
  if (mode == ActivationMode::kF32) return quant::Activation::kF32;
  if (plan.ternary_row_activations && format.ternary) return quant::Activation::kI8Row;
  return format.activation;
}

}  // namespace tern
