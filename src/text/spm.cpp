#include "text/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

constexpr char32_t kBlank = 0x2581;

/// Offsets of the characters of `text`, and its end.
std::vector<size_t> boundaries(std::string_view text) {
  std::vector<size_t> out;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text.substr(at)).length) out.push_back(at);
  out.push_back(text.size());
  return out;
}

size_t upper_bound_of_pairs(const Vocabulary& vocabulary) {
  size_t n = 0;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.is_ordinary(id)) n += boundaries(vocabulary.text(id)).size();
  }
  return n;
}

}  // namespace

Spm::Spm(const Vocabulary& vocabulary, std::optional<int32_t> unknown)
    : n_tokens_(vocabulary.size()), unknown_(unknown), merges_(upper_bound_of_pairs(vocabulary)) {
  if (vocabulary.scores.empty()) {
    fail(ErrorCode::kBadFile, "the file has no tokenizer.ggml.scores, which a SentencePiece (llama) vocabulary needs");
  }
  for (size_t b = 0; b < byte_ids_.size(); ++b) {
    byte_ids_[b] = vocabulary.find(fmt::format("<0x{:02X}>", b)).value_or(-1);
  }
  std::vector<float> by_rank = vocabulary.scores;
  std::sort(by_rank.begin(), by_rank.end(), std::greater<>());

  std::vector<std::vector<size_t>> cuts(static_cast<size_t>(n_tokens_));
  for (int32_t id = 0; id < n_tokens_; ++id) {
    if (!vocabulary.is_ordinary(id)) continue;
    auto& at = cuts[static_cast<size_t>(id)] = boundaries(vocabulary.text(id));
    if (at.size() == 2) char_ids_.emplace(decode_utf8(vocabulary.text(id)).code_point, id);
  }
  // Every way to make a token of two symbols, so that merging never has to look at text.
  for (int32_t id = 0; id < n_tokens_; ++id) {
    const auto& at = cuts[static_cast<size_t>(id)];
    if (at.size() < 3) continue;  // one character: nothing to make it of
    const std::string_view text = vocabulary.text(id);
    size_t word = 0;
    while (text.substr(word).starts_with(kSpmBlank)) word += kSpmBlank.size();
    if (text.find(kSpmBlank, word) != std::string_view::npos) blanks_only_lead_ = false;
    const float score = vocabulary.scores[static_cast<size_t>(id)];
    const auto rank = static_cast<uint32_t>(std::lower_bound(by_rank.begin(), by_rank.end(), score, std::greater<>()) -
                                            by_rank.begin());
    for (size_t i = 1; i + 1 < at.size(); ++i) {
      const auto half = [&](std::string_view part, bool one_character) -> std::optional<int32_t> {
        return one_character ? symbol_of(decode_utf8(part).code_point) : vocabulary.find_ordinary(part);
      };
      const auto left = half(text.substr(0, at[i]), i == 1);
      if (!left) continue;
      const auto right = half(text.substr(at[i]), i + 2 == at.size());
      if (right) merges_.add(*left, *right, rank, id);
    }
  }
}

int32_t Spm::symbol_of(char32_t code_point) const {
  const auto it = char_ids_.find(code_point);
  return it != char_ids_.end() ? it->second : n_tokens_ + static_cast<int32_t>(code_point);
}

void Spm::encode(std::string_view text, bool space_prefix, std::vector<int32_t>& out) const {
  const int32_t blank = symbol_of(kBlank);
  std::vector<int32_t> symbols;
  MergeScratch scratch;
  bool after_unknown = false;
  const auto flush = [&] {
    merges_.merge(symbols, scratch);
    for (const int32_t symbol : symbols) after_unknown = append(symbol, after_unknown, out);
    symbols.clear();
  };
  if (space_prefix) symbols.push_back(blank);
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence s = decode_utf8(text.substr(at));
    const int32_t symbol = symbol_of(s.code_point);
    if (blanks_only_lead_ && symbol == blank && !symbols.empty() && symbols.back() != blank) flush();
    symbols.push_back(symbol);
    at += s.length;
  }
  flush();
}

bool Spm::append(int32_t symbol, bool after_unknown, std::vector<int32_t>& out) const {
  if (symbol < n_tokens_) {
    out.push_back(symbol);
    return false;
  }
  const auto code_point = static_cast<char32_t>(symbol - n_tokens_);
  std::string bytes;
  append_utf8(bytes, code_point);
  const auto id_of = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
  if (std::all_of(bytes.begin(), bytes.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (const char c : bytes) out.push_back(id_of(c));
    return false;
  }
  if (!unknown_) {
    fail(ErrorCode::kBadFile, "the vocabulary has no token for U+{:04X}, no byte tokens and no unknown token",
         static_cast<uint32_t>(code_point));
  }
  if (!after_unknown) out.push_back(*unknown_);
  return true;
}

}  // namespace tern::text
