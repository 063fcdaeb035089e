#include "text/tokenizer_special.h"

#include <algorithm>
#include <iterator>

#include "text/spm.h"

namespace tern::text {
namespace {

/// Length of the blank at the head of `text`, 0 when there is none.
size_t blank_at(std::string_view text) {
  constexpr std::string_view kAscii = " \t\n\v\f\r";
  if (!text.empty() && kAscii.find(text[0]) != std::string_view::npos) return 1;
  return text.starts_with(kSpmBlank) ? kSpmBlank.size() : 0;
}

}  // namespace

SpecialTokens::SpecialTokens(const std::vector<Token>& tokens) {
  all_.tokens = tokens;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(always_.tokens),
               [](const Token& t) { return !t.control; });
  for (Set* set : {&always_, &all_}) {
    std::sort(set->tokens.begin(), set->tokens.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
    for (const Token& token : set->tokens) set->starts[static_cast<uint8_t>(token.text[0])] = true;
  }
}

const SpecialTokens::Token* SpecialTokens::Set::longest_at(std::string_view text) const {
  const Token* found = nullptr;
  // [first, last): the tokens that begin with the first `length` bytes of the text.
  auto first = tokens.begin(), last = tokens.end();
  for (size_t length = 0; length < text.size(); ++length) {
    const auto byte = static_cast<uint8_t>(text[length]);
    const auto at = [&](const Token& t) { return length < t.text.size() ? static_cast<uint8_t>(t.text[length]) : -1; };
    first = std::partition_point(first, last, [&](const Token& t) { return at(t) < byte; });
    last = std::partition_point(first, last, [&](const Token& t) { return at(t) <= byte; });
    if (first == last) break;
    if (first->text.size() == length + 1) found = &*first;
  }
  return found;
}

std::vector<SpecialTokens::Fragment> SpecialTokens::split(std::string_view text, bool control) const {
  const Set& set = control ? all_ : always_;
  std::vector<Fragment> out;
  size_t start = 0, at = 0;
  const auto flush = [&](size_t end) {
    if (end > start) out.push_back({-1, text.substr(start, end - start)});
  };
  while (at < text.size()) {
    const Token* token = set.starts[static_cast<uint8_t>(text[at])] ? set.longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    flush(at);
    out.push_back({token->id, token->text});
    at += token->text.size();
    while (token->strip_right && blank_at(text.substr(at)) > 0) at += blank_at(text.substr(at));
    start = at;
  }
  flush(text.size());
  return out;
}

}  // namespace tern::text
