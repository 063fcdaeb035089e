// The two kinds of memory a sequence owns: KV pages of kPageTokens tokens, and slots of recurrent state. Both can have
// several owners, so that a prefix shared by sequences is stored once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/ref_pool.h"
#include "plan/step.h"

namespace tern {

/// Pages of KV memory, shared by all sequences of an engine.
class KvPool : public RefPool {
 public:
  using RefPool::RefPool;
  /// Pages that hold `tokens` tokens.
  static constexpr int32_t pages_for(int64_t tokens) noexcept {
    return static_cast<int32_t>((tokens + kPageTokens - 1) / kPageTokens);
  }
  /// Extends `table` until it covers `tokens` tokens. All or nothing: false, and `table` unchanged, when the pool has
  /// too few free pages.
  bool extend(std::vector<int32_t>& table, int64_t tokens);
  /// Gives up the pages of `table` that lie wholly behind `tokens`.
  void shrink(std::vector<int32_t>& table, int64_t tokens);
};

/// Slots of recurrent state (delta-net matrix and convolution history of every layer).
class StatePool : public RefPool {
 public:
  using RefPool::RefPool;
};

}  // namespace tern
