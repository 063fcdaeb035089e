#include "engine/sequence.h"

#include <utility>

#include "base/error.h"

namespace tern {

Sequence::Sequence(std::shared_ptr<CachePools> pools, bool recurrent) : pools_(std::move(pools)) {
  if (!recurrent) return;
  slot_ = pools_->states.take();
  if (slot_ < 0)
    fail(ErrorCode::kOutOfMemory, "all {} recurrent-state slots are in use: finish a sequence or reserve more",
         pools_->states.size());
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
    slot_ = std::exchange(other.slot_, -1);
  }
  return *this;
}

int32_t Sequence::rewind(int32_t position) {
  CHECK(position >= 0, "rewind to {}", position);
  if (position >= this->position()) return this->position();
  if (recurrent()) position = 0;
  tokens_.resize(static_cast<size_t>(position));
  pools_->kv.shrink(pages_, position);
  return position;
}

void Sequence::release() noexcept {
  if (!pools_) return;  // moved from
  pools_->kv.shrink(pages_, 0);
  if (slot_ >= 0) pools_->states.release(slot_);
  pools_.reset();
}

}  // namespace tern
