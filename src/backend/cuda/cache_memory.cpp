#include "backend/cuda/cache_memory.h"

#include "base/checked.h"
#include "base/error.h"

namespace tern::cuda {
namespace {

constexpr int64_t kAlign = 256;

void check_head(KvType type, int64_t dim, const char* what) {
  if (type == KvType::kQ8_0 && dim % 32 != 0) {
    fail(ErrorCode::kInvalidArgument, "a q8_0 cache needs heads of a multiple of 32 {}, this model has {}; use f16",
         what, dim);
  }
}

PageType page_type(KvType type) {
  switch (type) {
    case KvType::kF32:
      return PageType::kF32;
    case KvType::kF16:
      return PageType::kF16;
    case KvType::kQ8_0:
      return PageType::kQ8;
    default:
      fail(ErrorCode::kUnsupported, "the CUDA backend has no {} cache; use f32, f16 or q8_0", kv_type_name(type));
  }
}

KvView view_of(const KvLayer& l, const CacheShape& shape) {
  KvView v{.k_type = page_type(shape.k), .v_type = page_type(shape.v)};
  v.k_head_bytes = kv_bytes(shape.k, kPageTokens * l.head_dim_k);
  v.v_head_bytes = kv_bytes(shape.v, kPageTokens * l.head_dim_v);
  v.v_offset = l.kv_heads * v.k_head_bytes;
  v.page_bytes = v.v_offset + l.kv_heads * v.v_head_bytes;
  return v;
}

}  // namespace

void CacheMemory::reserve(const Plan& plan, const CacheShape& shape) {
  for (const KvLayer& l : plan.kv_layers) {
    check_head(shape.k, l.head_dim_k, "keys");
    check_head(shape.v, l.head_dim_v, "values");
  }
  memory_ = DeviceMemory();  // the old one first: both together may not fit
  kv_.clear();
  states_.clear();
  shape_ = shape;
  ++generation_;
  int64_t bytes = 0;
  const auto place = [&](int64_t n) { return std::exchange(bytes, bytes + round_up(n, kAlign)); };
  for (const KvLayer& l : plan.kv_layers) {
    kv_.push_back(view_of(l, shape));
    place(kv_.back().page_bytes * shape.pages);
  }
  for (const StateLayer& l : plan.state_layers) {
    states_.push_back({.conv_floats = l.conv_floats(), .delta_floats = l.delta_floats()});
    place(4 * l.conv_floats() * shape.state_slots);
    place(4 * l.delta_floats() * shape.state_slots);
  }
  memory_ = DeviceMemory(static_cast<size_t>(bytes));
  bytes = 0;
  for (KvView& v : kv_) v.base = reinterpret_cast<char*>(memory_.data() + place(v.page_bytes * shape.pages));
  for (StateView& v : states_) {
    v.conv = reinterpret_cast<float*>(memory_.data() + place(4 * v.conv_floats * shape.state_slots));
    v.delta = reinterpret_cast<float*>(memory_.data() + place(4 * v.delta_floats * shape.state_slots));
  }
}

namespace {

void copy(cudaStream_t stream, void* base, int64_t bytes, int32_t from, int32_t to) {
  auto* const p = static_cast<char*>(base);
  check(cudaMemcpyAsync(p + to * bytes, p + from * bytes, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
        "copying a part of the cache");
}

}  // namespace

void CacheMemory::copy_page(cudaStream_t stream, int32_t from, int32_t to) {
  for (const KvView& v : kv_) copy(stream, v.base, v.page_bytes, from, to);
}

void CacheMemory::copy_state(cudaStream_t stream, int32_t from, int32_t to) {
  for (const StateView& v : states_) {
    copy(stream, v.conv, 4 * v.conv_floats, from, to);
    copy(stream, v.delta, 4 * v.delta_floats, from, to);
  }
}

}  // namespace tern::cuda
