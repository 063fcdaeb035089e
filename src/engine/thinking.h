// Thoughts in front of an answer: where they begin and end, and how they are ended when they have gone on long enough.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tern {

struct Thinking {
  enum class Start : uint8_t {
    kInside,  // the prompt ended in an open thought
    kMaybe,   // the answer may begin with one
    kForced,  // the answer begins with one: `open_tokens` come first
  } start = Start::kMaybe;
  std::string open{}, close{};          // what begins and ends a thought, control tokens spelled out
  std::vector<int32_t> open_tokens{};   // `open` as the model writes it
  std::vector<int32_t> close_tokens{};  // what is put behind a thought that has used up its budget, `close` in it
  std::vector<int32_t> gap_tokens{};    // blanks: one may stand between a thought and an answer that a grammar holds
  int64_t budget = -1;                  // tokens of a thought; < 0: any number
};

/// Follows an answer token by token. A grammar holds only what is no thought.
class ThinkingWatch {
 public:
  /// The tokenizer outlives it.
  ThinkingWatch(const Thinking& thinking, const text::Tokenizer& tokenizer);
  /// The token that must come next, whatever the model says.
  std::optional<int32_t> forced() const;
  /// The next token belongs to a thought.
  bool inside() const noexcept { return state_ == State::kInside; }
  /// Tokens that may come next although a grammar forbids them.
  std::span<const int32_t> extra() const;
  /// Takes the token that came. False when it belongs to the answer.
  bool see(int32_t token);

 private:
  enum class State : uint8_t { kStart, kOpening, kInside, kClosing, kGap, kAnswer };
  bool see_start(int32_t token);
  void see_thought(int32_t token);
  void enter();

  Thinking thinking_;
  const text::Tokenizer& tokenizer_;
  State state_ = State::kStart;
  std::string text_;  // since the start, or the end of a thought that may begin `close`
  int64_t spent_ = 0;
  size_t next_ = 0;  // of the tokens being forced
};

}  // namespace tern
