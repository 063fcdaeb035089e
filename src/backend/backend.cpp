#include "backend/backend.h"

namespace tern {

std::string_view kv_type_name(KvType type) noexcept {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kQ8_0:
      return "q8_0";
    case KvType::kQ4_0:
      return "q4_0";
  }
  return "?";
}

int64_t kv_bytes(KvType type, int64_t n) noexcept {
  switch (type) {
    case KvType::kF32:
      return 4 * n;
    case KvType::kF16:
      return 2 * n;
    case KvType::kQ8_0:
      return n / 32 * 34;
    case KvType::kQ4_0:
      return n / 32 * 18;
  }
  return 0;
}

int64_t cache_bytes(const Plan& plan, const CacheShape& shape) noexcept {
  int64_t a_token = 0, a_slot = 0;
  for (const KvLayer& l : plan.kv_layers) {
    a_token += kv_bytes(shape.k, l.kv_heads * l.head_dim_k) + kv_bytes(shape.v, l.kv_heads * l.head_dim_v);
  }
  for (const StateLayer& s : plan.state_layers) a_slot += 4 * (s.conv_floats() + s.delta_floats());
  return a_token * kPageTokens * shape.pages + a_slot * shape.state_slots;
}

}  // namespace tern
