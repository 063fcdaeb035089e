#include "backend/backend.h"

#include <array>

#include "backend/draw.h"
#include "base/error.h"

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
    case KvType::kKivi:
      return "kivi";
    case KvType::kKivi4:
      return "kivi4";
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
    case KvType::kKivi:
    case KvType::kKivi4:
      return n / 32 * (4 * kivi_bits(type) + 4);
  }
  return 0;
}

int64_t tail_bytes(KvType type, int64_t page_values) noexcept {
  return kivi_bits(type) > 0 ? 2 * kv_bytes(KvType::kF16, page_values) : 0;
}

int64_t cache_bytes(const Plan& plan, const CacheShape& shape) noexcept {
  int64_t a_token = 0, a_slot = 0;
  for (const KvLayer& l : plan.kv_layers) {
    const int64_t k = l.kv_heads * l.head_dim_k, v = l.kv_heads * l.head_dim_v;
    a_token += kv_bytes(shape.k, k) + kv_bytes(shape.v, v);
    a_slot += tail_bytes(shape.k, k * kPageTokens) + tail_bytes(shape.v, v * kPageTokens);
  }
  for (const StateLayer& s : plan.state_layers) a_slot += 4 * (s.conv_floats() + s.delta_floats());
  if (shape.has_tails()) a_slot += kTailHeaderBytes;
  return a_token * kPageTokens * shape.pages + a_slot * shape.state_slots;
}

void check_wishes(const Step& step, const Results& results) {
  CHECK(step.wanted.size() == step.out_rows.size() || (step.wanted.empty() && !results.of_wishes()),
        "{} wishes of {} outputs", step.wanted.size(), step.out_rows.size());
  if (!results.of_wishes()) return;
  for (const Wanted& wanted : step.wanted) {
    CHECK(wanted.best >= 0 && wanted.best <= kMostCandidates, "{} candidates", wanted.best);
    CHECK(wanted.best > 0 || !wanted.token, "a token of no candidates");
    if (wanted.best == 0) continue;
    const size_t room = wanted.token ? results.tokens.size() : results.shortlists.size();
    CHECK(room == step.out_rows.size(), "room for {} of {} outputs", room, step.out_rows.size());
  }
}

void grant_wish(const Plan& plan, const Step& step, const Results& results, size_t row) {
  const Wanted& wanted = step.wanted[row];
  if (wanted.best == 0) return;
  const auto cols = static_cast<size_t>(plan.info(plan.logits).cols);
  const auto logits = results.logits.subspan(row * cols, static_cast<size_t>(plan.n_tokens));
  if (wanted.token) {
    std::array<Lane, kMostCandidates> lanes;
    results.tokens[row] = draw(shortlist(logits, wanted).candidates(), wanted.draw, lanes);
  } else {
    results.shortlists[row] = shortlist(logits, wanted);
  }
}

}  // namespace tern
