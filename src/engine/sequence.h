// One conversation as the engine sees it: its tokens, the KV pages and the recurrent-state slot that hold what was
// computed from them. Owned by whoever talks; gives its memory back when it goes.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_pool.h"

namespace tern {

/// The memory of sequences, accounted. Shared by a Runner and its Sequences.
struct CachePools {
  CachePools(int32_t pages, int32_t slots) : kv(pages), states(slots) {}
  KvPool kv;
  StatePool states;
};

class Sequence {
 public:
  /// Takes a state slot when `recurrent`. kOutOfMemory when none is free.
  Sequence(std::shared_ptr<CachePools> pools, bool recurrent);
  ~Sequence();
  Sequence(Sequence&& other) noexcept = default;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Tokens whose effect is in the cache.
  std::span<const int32_t> tokens() const noexcept { return tokens_; }
  int32_t position() const noexcept { return static_cast<int32_t>(tokens_.size()); }
  bool recurrent() const noexcept { return slot_ >= 0; }
  /// Forgets everything behind `position`. A recurrent sequence cannot go back part of the way: its state knows only
  /// "now", so it forgets everything instead. Returns the position reached.
  int32_t rewind(int32_t position);

 private:
  friend class Runner;
  void release() noexcept;

  std::shared_ptr<CachePools> pools_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> pages_;
  int32_t slot_ = -1;
};

}  // namespace tern
