// One answer while it grows: from logits to the next token, from tokens to text that may be shown, and where it ends.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/thinking.h"
#include "text/detokenizer.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace tern {

/// Holds back what may become a stop string.
class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  /// What may be shown once `text` has come.
  std::string push(const std::string& text);
  /// The stop string that came; what stood before it has been shown, and nothing is held back.
  const std::string& found() const noexcept { return found_; }
  std::string take_held() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> stops_;
  std::string held_, found_;
};

class Answer {
 public:
  /// `room`: tokens that fit behind the prompt. `table` is there when the request has a grammar. kInvalidArgument for
  /// settings that make no sense. The tokenizer outlives the answer.
  Answer(const Request& request, const text::Tokenizer& tokenizer, std::shared_ptr<const text::TokenTable> table,
         int64_t room);

  struct Next {
    std::optional<TokenEvent> event{};  // to tell, if any
    std::optional<EndReason> end{};
  };
  /// What next() needs to see.
  Wanted wanted() const;
  /// Chooses a token.
  Next next(const Scores& scores);
  /// At its end: text that was held back and no stop string took.
  std::string rest();
  const std::string& stop() const noexcept { return stop_text_.found(); }
  int64_t generated() const noexcept { return generated_; }
  int64_t most() const noexcept { return most_; }
  int32_t last_token() const noexcept { return token_; }

 private:
  int32_t choose(const Scores& scores);
  void explain(const Scores& scores, TokenEvent& event) const;

  const text::Tokenizer& tokenizer_;
  Sampler sampler_;
  text::StreamDecoder decoder_;
  StopText stop_text_;
  std::vector<int32_t> stop_tokens_;
  std::vector<std::pair<int32_t, float>> bias_;
  std::optional<text::GrammarState> grammar_;
  std::optional<ThinkingWatch> thinking_;
  std::vector<float> edited_;  // logits under bias and grammar
  int64_t most_, generated_ = 0;
  int32_t top_logprobs_, token_ = -1;
  bool ignore_end_;
};

}  // namespace tern
