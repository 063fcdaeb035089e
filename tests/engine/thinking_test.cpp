// Thoughts in front of answers, step by step: a model that always wants the same tokens stands in for a real one.
#include "engine/thinking.h"

#include <gtest/gtest.h>

#include "backend/shortlist_cases.h"
#include "engine/scheduler_answer.h"
#include "text/tokenizer_vocabulary.h"

namespace tern {
namespace {

const text::Tokenizer& vocabulary() {
  static const text::Tokenizer tokenizer = [] {
    gguf::Metadata metadata = text::byte_level({}, {{"<think>", text::TokenType::kUserDefined},
                                                    {"</think>", text::TokenType::kUserDefined},
                                                    {"<|end|>", text::TokenType::kControl},
                                                    {"<|go|>", text::TokenType::kControl}});
    metadata.set_u32("tokenizer.ggml.eos_token_id", 258);
    return text::Tokenizer::from_metadata(metadata);
  }();
  return tokenizer;
}
constexpr int32_t kOpen = 256, kClose = 257, kEnd = 258, kGo = 259;

Thinking thinking(Thinking::Start start, int64_t budget = -1) {
  return {.start = start,
          .open = "<think>",
          .close = "</think>",
          .open_tokens = {kOpen},
          .close_tokens = {'\n', kClose, '\n'},
          .gap_tokens = {'\n'},
          .budget = budget};
}

/// What an answer becomes when the model likes the tokens of `wishes` in turn best, and of the others the last.
std::string answer(const Request& request, std::vector<int32_t> wishes, size_t tokens) {
  Request greedy = request;
  greedy.prompt = {'x'};
  greedy.sampling = {.temperature = 0};
  greedy.show_special = true;
  Answer one(greedy, vocabulary(), std::make_shared<const text::TokenTable>(vocabulary()), 1000);
  std::string text;
  for (size_t i = 0; i < tokens; ++i) {
    std::vector<float> logits(static_cast<size_t>(vocabulary().n_vocab()));
    for (size_t t = 0; t < logits.size(); ++t) logits[t] = static_cast<float>(t) / 1000;
    if (i < wishes.size()) logits[static_cast<size_t>(wishes[i])] = 100;
    const Answer::Next next = one.next(test::Granted(logits, one.wanted()).scores);
    if (next.event) text += next.event->text;
    if (next.end) break;
  }
  return text + one.rest();
}

Request held(std::optional<Thinking> thoughts, const char* grammar = "root ::= \"yes\"") {
  Request request;
  request.thinking = std::move(thoughts);
  if (grammar != nullptr) request.grammar = text::Grammar::from_gbnf(grammar);
  return request;
}

TEST(Thinking, AGrammarBeginsBehindTheThought) {
  const Request request = held(thinking(Thinking::Start::kInside));
  EXPECT_EQ(answer(request, {'h', 'm', kClose, 'n', 'o'}, 20), "hm</think>yes");
  EXPECT_EQ(answer(request, {'h', kClose, '\n', '\n'}, 20), "h</think>\nyes") << "a blank may stand between them";
  EXPECT_EQ(answer(request, {'<', '/', 't', 'h', 'i', 'n', 'k', '>'}, 20), "</think>yes") << "spelled letter by letter";
  EXPECT_EQ(answer(request, {'h', kEnd, kClose}, 20).substr(0, 1), "h");
  EXPECT_TRUE(answer(request, {'h', kEnd, kClose}, 20).ends_with("</think>yes")) << "no end before the grammar began";
}

TEST(Thinking, AnAnswerThatAGrammarHoldsMayBeginWithAThoughtOrNot) {
  const Request request = held(thinking(Thinking::Start::kMaybe));
  EXPECT_EQ(answer(request, {kOpen, 'h', kClose}, 20), "<think>h</think>yes");
  EXPECT_EQ(answer(request, {'y', kOpen}, 20), "yes") << "only its very beginning";
  EXPECT_EQ(answer(held(std::nullopt), {kOpen}, 20), "yes") << "a model that does not think";
}

TEST(Thinking, ABudgetEndsAThoughtWithTheMarkup) {
  const std::vector<int32_t> endless(50, 'h');
  EXPECT_EQ(answer(held(thinking(Thinking::Start::kInside, 3)), endless, 20), "hhh\n</think>\nyes");
  EXPECT_EQ(answer(held(thinking(Thinking::Start::kInside, 0)), endless, 20), "\n</think>\nyes");
  EXPECT_EQ(answer(held(thinking(Thinking::Start::kInside, 3), nullptr), endless, 8), "hhh\n</think>\nhh");
  std::vector<int32_t> opens = endless;
  opens[0] = kOpen;
  EXPECT_EQ(answer(held(thinking(Thinking::Start::kMaybe, 2), nullptr), opens, 8), "<think>hh\n</think>\nhh");
  EXPECT_EQ(answer(held(thinking(Thinking::Start::kMaybe, 2), nullptr), endless, 8), "hhhhhhhh") << "it never thought";
  EXPECT_EQ(answer(held(thinking(Thinking::Start::kInside, 3), nullptr), {'h', kClose, 'a', 'b', 'c', 'd'}, 6),
            "h</think>abcd")
      << "it ended by itself";
}

TEST(Thinking, AThoughtOfSeveralTokensIsPutInFrontOrFound) {
  Thinking channels{.start = Thinking::Start::kForced,
                    .open = "<|go|>a:",
                    .close = "<|go|>",
                    .open_tokens = {kGo, 'a', ':'},
                    .close_tokens = {kGo},
                    .budget = 4};
  EXPECT_EQ(answer(held(channels), {'n', 'n', 'n', 'h', kGo}, 20), "<|go|>a:h<|go|>yes");
  channels.start = Thinking::Start::kMaybe;
  EXPECT_EQ(answer(held(channels, nullptr), {kGo, 'a', ':', 'h', 'h', 'h', 'h', 'h', 'h'}, 9), "<|go|>a:hhhh<|go|>h");
  EXPECT_EQ(answer(held(channels, nullptr), {kGo, 'b', ':', 'h', 'h', 'h', 'h', 'h', 'h'}, 9), "<|go|>b:hhhhhh");
}

}  // namespace
}  // namespace tern
