// Pages of keys and values and slots of recurrent state, in the layouts of the CPU ops.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/ops.h"
#include "base/memory.h"

namespace tern::cpu {

/// One attention layer: page p of KV head h starts at k(h) + p * page_bytes.
struct KvLayerMemory {
  std::byte* base = nullptr;
  int64_t page_bytes = 0, k_head_bytes = 0, v_head_bytes = 0, v_offset = 0;
  std::byte* k(int64_t head) const { return base + head * k_head_bytes; }
  std::byte* v(int64_t head) const { return base + v_offset + head * v_head_bytes; }

  /// The newest tokens of the sequence of a slot, where a type leaves them unquantised: two f16 pages,
  /// [half][kv_heads].
  std::byte* tails = nullptr;
  int64_t kv_heads = 0, tail_bytes = 0, k_tail_bytes = 0, v_tail_bytes = 0, v_tail_offset = 0;
  std::byte* k_tail(int64_t slot, int64_t half, int64_t head) const {
    return tails + slot * tail_bytes + (half * kv_heads + head) * k_tail_bytes;
  }
  std::byte* v_tail(int64_t slot, int64_t half, int64_t head) const {
    return tails + slot * tail_bytes + v_tail_offset + (half * kv_heads + head) * v_tail_bytes;
  }
};

/// One recurrent layer: slot s of the conv history at conv + s * conv_floats, of the delta state likewise.
struct StateLayerMemory {
  float *conv = nullptr, *delta = nullptr;
  int64_t conv_floats = 0, delta_floats = 0;
};

class CacheMemory {
 public:
  /// kOutOfMemory with the numbers; kInvalidArgument when a type does not fit a head (q8_0 needs a multiple of 32).
  void reserve(const Plan& plan, const CacheShape& shape);
  const CacheShape& shape() const { return shape_; }
  const KvLayerMemory& kv(int32_t layer) const { return kv_[static_cast<size_t>(layer)]; }
  const StateLayerMemory& state(int32_t layer) const { return states_[static_cast<size_t>(layer)]; }
  /// Which of its two tail pages a slot's sequence is filling.
  int32_t& tail_half(int32_t slot) const {
    return *reinterpret_cast<int32_t*>(tail_headers_ + slot * kTailHeaderBytes);
  }
  void copy_tails(int32_t from, int32_t to) const;
  void copy_page(int32_t from, int32_t to);
  void copy_state(int32_t from, int32_t to);

 private:
  CacheShape shape_;
  Memory memory_;
  std::byte* tail_headers_ = nullptr;
  std::vector<KvLayerMemory> kv_;
  std::vector<StateLayerMemory> states_;
};

}  // namespace tern::cpu
