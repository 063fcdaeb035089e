#include "backend/cpu/cache_memory.h"

#include <cstring>

#include "base/error.h"

namespace tern::cpu {
namespace {

void check_head(KvType type, int64_t dim, const char* what) {
  if (type > KvType::kF16 && dim % 32 != 0) {
    fail(ErrorCode::kInvalidArgument, "a {} cache needs heads of a multiple of 32 {}, this model has {}; use f16",
         kv_type_name(type), what, dim);
  }
  if (type == KvType::kQ4_0 && dim > kMostHeadDim) {
    fail(ErrorCode::kInvalidArgument, "a q4_0 cache takes heads of up to {} {}, this model has {}; use q8_0",
         kMostHeadDim, what, dim);
  }
}

}  // namespace

void CacheMemory::reserve(const Plan& plan, const CacheShape& shape) {
  for (const KvLayer& l : plan.kv_layers) {
    check_head(shape.k, l.head_dim_k, "keys");
    check_head(shape.v, l.head_dim_v, "values");
  }
  memory_ = Memory();  // the old one first: both together may not fit
  memory_ = Memory(static_cast<size_t>(cache_bytes(plan, shape)));
  shape_ = shape;
  kv_.clear();
  states_.clear();
  std::byte* next = memory_.data();
  for (const KvLayer& l : plan.kv_layers) {
    KvLayerMemory m{.base = next};
    m.k_head_bytes = kv_bytes(shape.k, kPageTokens * l.head_dim_k);
    m.v_head_bytes = kv_bytes(shape.v, kPageTokens * l.head_dim_v);
    m.v_offset = l.kv_heads * m.k_head_bytes;
    m.page_bytes = m.v_offset + l.kv_heads * m.v_head_bytes;
    next += m.page_bytes * shape.pages;
    m.tails = next;
    m.kv_heads = l.kv_heads;
    m.v_tail_offset = tail_bytes(shape.k, l.kv_heads * l.head_dim_k * kPageTokens);
    m.tail_bytes = m.v_tail_offset + tail_bytes(shape.v, l.kv_heads * l.head_dim_v * kPageTokens);
    m.k_tail_bytes = tail_bytes(shape.k, l.head_dim_k * kPageTokens) / 2;
    m.v_tail_bytes = tail_bytes(shape.v, l.head_dim_v * kPageTokens) / 2;
    next += m.tail_bytes * shape.state_slots;
    kv_.push_back(m);
  }
  tail_headers_ = next;
  if (shape.has_tails()) next += kTailHeaderBytes * shape.state_slots;
  for (const StateLayer& s : plan.state_layers) {
    StateLayerMemory m{.conv_floats = s.conv_floats(), .delta_floats = s.delta_floats()};
    m.conv = reinterpret_cast<float*>(next);
    m.delta = m.conv + m.conv_floats * shape.state_slots;
    states_.push_back(m);
    next = reinterpret_cast<std::byte*>(m.delta + m.delta_floats * shape.state_slots);
  }
  CHECK(next == memory_.data() + memory_.size(), "the cache is laid out in other bytes than cache_bytes() counts");
}

void CacheMemory::copy_page(int32_t from, int32_t to) {
  for (const KvLayerMemory& m : kv_) {
    std::memcpy(m.base + to * m.page_bytes, m.base + from * m.page_bytes, static_cast<size_t>(m.page_bytes));
  }
}

void CacheMemory::copy_tails(int32_t from, int32_t to) const {
  if (!shape_.has_tails()) return;
  tail_half(to) = tail_half(from);
  for (const KvLayerMemory& m : kv_) {
    std::memcpy(m.tails + to * m.tail_bytes, m.tails + from * m.tail_bytes, static_cast<size_t>(m.tail_bytes));
  }
}

void CacheMemory::copy_state(int32_t from, int32_t to) {
  copy_tails(from, to);
  const auto copy = [&](float* p, int64_t n) { std::memcpy(p + to * n, p + from * n, static_cast<size_t>(n) * 4); };
  for (const StateLayerMemory& m : states_) {
    copy(m.conv, m.conv_floats);
    copy(m.delta, m.delta_floats);
  }
}

}  // namespace tern::cpu
