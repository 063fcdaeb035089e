#include "engine/sequence.h"

#include <utility>

#include "base/error.h"

namespace tern {

Sequence::Sequence(std::shared_ptr<CachePools> pools, bool recurrent) : pools_(std::move(pools)) {
  if (!recurrent) return;
  if (pools_->states.available() < kStateSlots)
    fail(ErrorCode::kOutOfMemory, "all {} recurrent-state slots are in use: finish a sequence or reserve more",
         pools_->states.size());
  for (int32_t& slot : slots_) slot = pools_->states.take();
}

Sequence::~Sequence() {
  release();
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this != &other) {
    release();
    pools_ = std::move(other.pools_);
    tokens_ = std::move(other.tokens_);
    pages_ = std::move(other.pages_);
    slots_ = other.slots_;
    current_ = other.current_;
    saved_ = other.saved_;
    saved_position_ = other.saved_position_;
  }
  return *this;
}

void Sequence::checkpoint() noexcept {
  saved_ = current_;
  saved_position_ = position();
}

int32_t Sequence::rewind(int32_t position) {
  CHECK(position >= 0, "rewind to {}", position);
  if (position >= this->position()) return this->position();
  if (recurrent()) {
    const bool to_checkpoint = saved_ >= 0 && saved_position_ <= position;
    position = to_checkpoint ? saved_position_ : 0;
    if (to_checkpoint) {
      current_ = saved_;
    } else {
      saved_ = -1;
    }
  }
  tokens_.resize(static_cast<size_t>(position));
  pools_->kv.shrink(pages_, position);
  return position;
}

void Sequence::release() noexcept {
  if (!pools_) return;  // moved from
  pools_->kv.shrink(pages_, 0);
  if (recurrent())
    for (const int32_t slot : slots_) pools_->states.release(slot);
  pools_.reset();
}

}  // namespace tern
