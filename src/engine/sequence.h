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

/// What a sequence starts from. Its owner of every page and slot passes to the sequence.
struct SequenceStart {
  std::vector<int32_t> tokens{}, pages{};  // the last page is written to, the others may have other owners
  int32_t state = -1;                      // slot with the state behind `tokens`, -1: none
  int32_t next_state = -1;                 // slot to write to, -1: the model has no state
};

class Sequence {
 public:
  /// Slots of recurrent state a sequence takes: one for now, one for a checkpoint.
  static constexpr int32_t kStateSlots = 2;

  /// Takes state slots when `recurrent`. kOutOfMemory when there are not enough.
  Sequence(std::shared_ptr<CachePools> pools, bool recurrent);
  Sequence(std::shared_ptr<CachePools> pools, SequenceStart start);
  ~Sequence();
  Sequence(Sequence&& other) noexcept = default;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Tokens whose effect is in the cache.
  std::span<const int32_t> tokens() const noexcept { return tokens_; }
  std::span<const int32_t> pages() const noexcept { return pages_; }
  int32_t position() const noexcept { return static_cast<int32_t>(tokens_.size()); }
  bool recurrent() const noexcept { return out_ >= 0; }
  /// Marks the present as a place that rewind() can return to. Costs nothing: what follows is written to the other
  /// slot.
  void checkpoint() noexcept;
  /// Forgets everything behind `position`. A recurrent sequence knows only its state now and at the checkpoint: it goes
  /// back to that, or to the start, whichever is the last one not behind `position`. Returns the position reached.
  int32_t rewind(int32_t position);
  /// The slot with the present state, one owner of which is the caller's. What follows must go elsewhere: to
  /// `next_state` (whose owner passes to the sequence) when it has no other place, see shares_state().
  int32_t share_state(int32_t next_state = -1);
  /// The present state is not where the next one will be written.
  bool shares_state() const noexcept { return in_ != out_; }

 private:
  friend class Runner;
  void advance(std::span<const int32_t> tokens);  // after a run
  void release() noexcept;

  std::shared_ptr<CachePools> pools_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> pages_;
  // State slots, -1: none. Each that is named here, once or more often, has one owner for it.
  int32_t in_ = -1;     // with the state at position()
  int32_t out_ = -1;    // that the next run writes
  int32_t saved_ = -1;  // with the state at the checkpoint
  int32_t spare_ = -1;
  int32_t saved_position_ = 0;
};

}  // namespace tern
