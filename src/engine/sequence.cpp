#include "engine/sequence.h"

#include <utility>

#include "base/error.h"

namespace tern {

Sequence::Sequence(std::shared_ptr<CachePools> pools, bool recurrent) : pools_(std::move(pools)) {
  if (!recurrent) return;
  if (pools_->states.available() < kStateSlots)
    fail(ErrorCode::kOutOfMemory, "all {} recurrent-state slots are in use: finish a sequence or reserve more",
         pools_->states.size());
  out_ = pools_->states.take();
  spare_ = pools_->states.take();
}

Sequence::Sequence(std::shared_ptr<CachePools> pools, SequenceStart start)
    : pools_(std::move(pools)),
      tokens_(std::move(start.tokens)),
      pages_(std::move(start.pages)),
      in_(start.state),
      out_(start.next_state) {
  CHECK(pages_.size() == static_cast<size_t>(KvPool::pages_for(position())));
  CHECK(in_ < 0 || out_ >= 0);
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
    in_ = other.in_;
    out_ = other.out_;
    saved_ = other.saved_;
    spare_ = other.spare_;
    saved_position_ = other.saved_position_;
  }
  return *this;
}

void Sequence::checkpoint() noexcept {
  if (saved_ >= 0 && saved_ != in_) spare_ = saved_;
  saved_ = in_;
  saved_position_ = position();
  if (out_ == in_) out_ = std::exchange(spare_, -1);
}

int32_t Sequence::rewind(int32_t position) {
  CHECK(position >= 0, "rewind to {}", position);
  if (position >= this->position()) return this->position();
  if (recurrent()) {
    const bool to_checkpoint = saved_ >= 0 && saved_position_ <= position;
    position = to_checkpoint ? saved_position_ : 0;
    if (in_ >= 0 && in_ != out_ && in_ != saved_) pools_->states.release(in_);
    in_ = to_checkpoint ? saved_ : -1;
    if (!to_checkpoint && saved_ >= 0) spare_ = std::exchange(saved_, -1);
  }
  tokens_.resize(static_cast<size_t>(position));
  pools_->kv.shrink(pages_, position);
  return position;
}

int32_t Sequence::share_state(int32_t next_state) {
  CHECK(in_ >= 0, "no state at {}", position());
  pools_->states.share(in_);
  if (next_state >= 0) {
    CHECK(!shares_state());
    out_ = next_state;
  }
  return in_;
}

void Sequence::advance(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (in_ >= 0 && in_ != out_ && in_ != saved_) pools_->states.release(in_);
  in_ = out_;
}

void Sequence::release() noexcept {
  if (!pools_) return;  // moved from
  pools_->kv.shrink(pages_, 0);
  const auto drop = [&](int32_t slot) {
    if (slot >= 0) pools_->states.release(slot);
  };
  drop(out_);
  if (in_ != out_) drop(in_);
  if (saved_ != in_ && saved_ != out_) drop(saved_);
  drop(spare_);
  pools_.reset();
}

}  // namespace tern
