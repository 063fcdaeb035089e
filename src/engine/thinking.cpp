#include "engine/thinking.h"

#include <algorithm>

namespace tern {

ThinkingWatch::ThinkingWatch(const Thinking& thinking, const text::Tokenizer& tokenizer)
    : thinking_(thinking), tokenizer_(tokenizer) {
  if (thinking_.start == Thinking::Start::kForced) state_ = State::kOpening;
  if (thinking_.start == Thinking::Start::kInside) enter();
}

void ThinkingWatch::enter() {
  text_.clear();
  state_ = thinking_.budget == 0 ? State::kClosing : State::kInside;
  next_ = 0;
}

std::optional<int32_t> ThinkingWatch::forced() const {
  if (state_ == State::kOpening) return thinking_.open_tokens[next_];
  if (state_ == State::kClosing) return thinking_.close_tokens[next_];
  return std::nullopt;
}

std::span<const int32_t> ThinkingWatch::extra() const {
  if (state_ == State::kStart && text_.empty() && thinking_.open_tokens.size() == 1) return thinking_.open_tokens;
  if (state_ == State::kGap) return thinking_.gap_tokens;
  return {};
}

bool ThinkingWatch::see(int32_t token) {
  switch (state_) {
    case State::kStart:
      return see_start(token);
    case State::kOpening:
      if (++next_ == thinking_.open_tokens.size()) enter();
      return true;
    case State::kInside:
      see_thought(token);
      return true;
    case State::kClosing:
      if (++next_ == thinking_.close_tokens.size()) state_ = State::kAnswer;
      return true;
    case State::kGap:
      state_ = State::kAnswer;
      return std::find(thinking_.gap_tokens.begin(), thinking_.gap_tokens.end(), token) != thinking_.gap_tokens.end();
    case State::kAnswer:
      break;
  }
  return false;
}

/// A thought opens with its one token, or, where it has several, with their text.
bool ThinkingWatch::see_start(int32_t token) {
  const bool one = thinking_.open_tokens.size() == 1;
  text_ += tokenizer_.piece(token, true);
  if (one ? token == thinking_.open_tokens[0] : text_.starts_with(thinking_.open)) {
    enter();
    return true;
  }
  if (one || !thinking_.open.starts_with(text_)) state_ = State::kAnswer;
  return false;
}

void ThinkingWatch::see_thought(int32_t token) {
  text_ += tokenizer_.piece(token, true);
  if (text_.find(thinking_.close) != text_.npos) {
    state_ = State::kGap;
    return;
  }
  const size_t kept = std::min(text_.size(), thinking_.close.size() - 1);
  text_.erase(0, text_.size() - kept);
  if (thinking_.budget >= 0 && ++spent_ >= thinking_.budget) {
    state_ = State::kClosing;
    next_ = 0;
  }
}

}  // namespace tern
