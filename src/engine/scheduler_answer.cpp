#include "engine/scheduler_answer.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace tern {
namespace {

void check_settings(const Request& request, const text::Tokenizer& tokenizer) {
  for (const std::string& stop : request.stop)
    if (stop.empty()) fail(ErrorCode::kInvalidArgument, "an empty stop string would end every answer at once");
  for (const auto& [token, bias] : request.logit_bias)
    if (token < 0 || token >= tokenizer.n_vocab() || std::isnan(bias) || bias == INFINITY)
      fail(ErrorCode::kInvalidArgument, "a bias of {} for token {}: there are tokens 0 to {}", bias, token,
           tokenizer.n_vocab() - 1);
  std::unordered_set<int32_t> banned;
  for (const auto& [token, bias] : request.logit_bias)
    if (bias == -INFINITY) banned.insert(token);
  if (std::cmp_equal(banned.size(), tokenizer.n_vocab()))
    fail(ErrorCode::kInvalidArgument, "logit_bias bans all {} tokens: no answer is left", tokenizer.n_vocab());
}

}  // namespace

std::string StopText::push(const std::string& text) {
  if (stops_.empty()) return text;
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at >= first) continue;
    first = at;
    found_ = stop;
  }
  if (first != std::string::npos) return take_held().substr(0, first);
  size_t kept = 0;  // the longest end of the text that some stop string begins with
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > kept; --n)
      if (held_.ends_with(std::string_view(stop).substr(0, n))) kept = n;
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

Answer::Answer(const Request& request, const text::Tokenizer& tokenizer, std::shared_ptr<const text::TokenTable> table,
               int64_t room)
    : tokenizer_(tokenizer),
      sampler_(request.sampling),
      decoder_(tokenizer, request.show_special),
      stop_text_(request.stop),
      stop_tokens_(request.stop_tokens),
      bias_(request.logit_bias),
      most_(request.max_tokens < 0 ? room : std::min(request.max_tokens, room)),
      top_logprobs_(request.top_logprobs),
      ignore_end_(request.ignore_end) {
  check_settings(request, tokenizer);
  if (request.grammar) grammar_.emplace(request.grammar, std::move(table));
  if (request.thinking) thinking_.emplace(*request.thinking, tokenizer);
  for (const int32_t token : request.prompt) sampler_.accept(token);
}

Wanted Answer::wanted() const {
  constexpr Wanted kAll{};
  const bool chances = top_logprobs_ >= 0;
  if (generated_ == most_) return kBestToken;
  if (thinking_ && thinking_->forced()) return chances ? kAll : kBestToken;
  if (!bias_.empty() || grammar_) return kAll;
  const Wanted wanted = sampler_.wanted();
  if (wanted.best == 0 || top_logprobs_ > kMostCandidates) return kAll;
  return chances ? Wanted{.best = std::max(wanted.best, top_logprobs_), .log_sum = true} : wanted;
}

int32_t Answer::choose(const Scores& scores) {
  if (const auto forced = thinking_ ? thinking_->forced() : std::nullopt) {
    sampler_.accept(*forced);
    return *forced;
  }
  if (bias_.empty() && !grammar_) return sampler_.sample(scores);
  const auto logits = scores.logits;
  edited_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : bias_) edited_[static_cast<size_t>(token)] += bias;
  if (grammar_ && thinking_ && thinking_->inside()) {
    grammar_->mask_ends(edited_);
  } else if (grammar_) {
    grammar_->mask(edited_);
    if (thinking_)
      for (const int32_t token : thinking_->extra())
        edited_[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
  }
  return sampler_.sample(edited_);
}

void Answer::explain(const Scores& scores, TokenEvent& event) const {
  if (top_logprobs_ < 0) return;
  const auto tell = [&](double all, float chosen, std::span<const Candidate> best) {
    const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - all); };
    event.logprob = logprob(chosen);
    for (const auto& [token, logit] : best) event.top.push_back({token, logprob(logit)});
  };
  if (const Shortlist* list = scores.shortlist) {
    const auto best = list->candidates();
    const auto chosen = std::ranges::find(best, event.token, &Candidate::id);
    CHECK(chosen != best.end(), "token {} is not among the {} best", event.token, best.size());
    tell(list->log_sum, chosen->logit, best.first(std::min(static_cast<size_t>(top_logprobs_), best.size())));
  } else {
    const auto logits = scores.logits;
    tell(log_sum_exp(logits), logits[static_cast<size_t>(event.token)], top(logits, top_logprobs_));
  }
}

Answer::Next Answer::next(const Scores& scores) {
  if (generated_ == most_) return {.end = EndReason::kLength};  // none was asked for
  token_ = choose(scores);
  if (!ignore_end_ && tokenizer_.is_end_of_generation(token_)) return {.end = EndReason::kEndOfText};
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token_) != stop_tokens_.end())
    return {.end = EndReason::kStopToken};
  const bool thought = thinking_ && thinking_->see(token_);
  if (grammar_ && !thought) grammar_->accept(token_);
  ++generated_;
  Next next{.event = TokenEvent{.token = token_, .text = stop_text_.push(decoder_.push(token_))}};
  explain(scores, *next.event);
  if (!stop().empty()) {
    next.end = EndReason::kStopString;
  } else if (grammar_ && grammar_->finished()) {
    next.end = EndReason::kEndOfText;
  } else if (generated_ == most_) {
    next.end = EndReason::kLength;
  }
  return next;
}

std::string Answer::rest() {
  if (!stop().empty()) return {};
  return stop_text_.take_held() + decoder_.finish();
}

}  // namespace tern
