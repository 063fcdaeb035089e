// One conversation as the engine sees it: its tokens, the KV pages and the recurrent-state slot that hold what was
// computed from them. Owned by whoever talks; gives its memory back when it goes.
#pragma once
#include <array>
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
  /// Slots of recurrent state a sequence takes: one for now, one for a checkpoint.
  static constexpr int32_t kStateSlots = 2;

  /// Takes state slots when `recurrent`. kOutOfMemory when there are not enough.
  Sequence(std::shared_ptr<CachePools> pools, bool recurrent);
  ~Sequence();
  Sequence(Sequence&& other) noexcept = default;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Tokens whose effect is in the cache.
  std::span<const int32_t> tokens() const noexcept { return tokens_; }
  int32_t position() const noexcept { return static_cast<int32_t>(tokens_.size()); }
  bool recurrent() const noexcept { return slots_[0] >= 0; }
  /// Marks the present as a place that rewind() can return to. Costs nothing: what follows is written to the other
  /// slot.
  void checkpoint() noexcept;
  /// Forgets everything behind `position`. A recurrent sequence knows only its state now and at the checkpoint: it goes
  /// back to that, or to the start, whichever is the last one not behind `position`. Returns the position reached.
  int32_t rewind(int32_t position);

 private:
  friend class Runner;
  void release() noexcept;
  int32_t slot_to_write() const noexcept {
    return slots_[static_cast<size_t>(saved_ == current_ ? 1 - current_ : current_)];
  }

  std::shared_ptr<CachePools> pools_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> pages_;
  std::array<int32_t, kStateSlots> slots_{-1, -1};
  int32_t current_ = 0;  // index of the slot with the state at position()
  int32_t saved_ = -1;   // index of the slot with the state at the checkpoint; -1: none
  int32_t saved_position_ = 0;
};

}  // namespace tern
