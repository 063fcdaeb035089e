#include "text/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
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

/// A token at one end of another: its length in bytes, and its id.
struct Affix {
  size_t length = 0;
  int32_t id = 0;
};
enum class End : uint8_t { kFront, kBack };

/// By id: the ordinary tokens that an ordinary token begins (ends) with, itself excluded, shortest first. What a text
/// begins with stands before it in sorted order, so a stack of those finds them all in one pass over the vocabulary.
std::vector<std::vector<Affix>> affixes(const Vocabulary& vocabulary, End end) {
  std::vector<std::pair<std::string, int32_t>> sorted;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.is_ordinary(id) || vocabulary.text(id).empty()) continue;
    std::string key(vocabulary.text(id));
    if (end == End::kBack) std::reverse(key.begin(), key.end());
    sorted.emplace_back(std::move(key), id);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::vector<Affix>> out(static_cast<size_t>(vocabulary.size()));
  std::vector<size_t> open;  // each begins with the one before it
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [key, id] = sorted[i];
    while (!open.empty() && !key.starts_with(sorted[open.back()].first)) open.pop_back();
    for (const size_t at : open) out[static_cast<size_t>(id)].push_back({sorted[at].first.size(), sorted[at].second});
    open.push_back(i);
  }
  return out;
}

struct Pair {
  int32_t left, right;
  uint32_t rank;
  int32_t merged;
};

}  // namespace

Spm::Spm(const Vocabulary& vocabulary, std::optional<int32_t> unknown)
    : n_tokens_(vocabulary.size()), unknown_(unknown), merges_(0) {
  if (vocabulary.scores.empty()) {
    fail(ErrorCode::kBadFile, "the file has no tokenizer.ggml.scores, which a SentencePiece (llama) vocabulary needs");
  }
  for (size_t b = 0; b < byte_ids_.size(); ++b) {
    byte_ids_[b] = vocabulary.find(fmt::format("<0x{:02X}>", b)).value_or(-1);
  }
  for (int32_t id = 0; id < n_tokens_; ++id) {
    const std::string_view text = vocabulary.text(id);
    if (!vocabulary.is_ordinary(id) || text.empty()) continue;
    if (const Utf8Sequence first = decode_utf8(text); first.length == text.size())
      char_ids_.emplace(first.code_point, id);
  }
  read_merges(vocabulary);
}

/// Every way to make a token of two symbols, so that merging never has to look at text. Linear in the bytes of the
/// vocabulary and the ways there are: a file may hold a token of megabytes.
void Spm::read_merges(const Vocabulary& vocabulary) {
  const auto fronts = affixes(vocabulary, End::kFront), backs = affixes(vocabulary, End::kBack);
  std::vector<float> by_rank = vocabulary.scores;
  std::sort(by_rank.begin(), by_rank.end(), std::greater<>());
  std::vector<Pair> pairs;
  for (int32_t id = 0; id < n_tokens_; ++id) {
    const std::string_view text = vocabulary.text(id);
    if (!vocabulary.is_ordinary(id) || text.empty()) continue;
    const std::vector<size_t> at = boundaries(text);
    if (at.size() < 3) continue;  // one character: nothing to make it of
    size_t word = 0;
    while (text.substr(word).starts_with(kSpmBlank)) word += kSpmBlank.size();
    if (text.find(kSpmBlank, word) != std::string_view::npos) blanks_only_lead_ = false;
    const float score = vocabulary.scores[static_cast<size_t>(id)];
    const auto rank = static_cast<uint32_t>(std::lower_bound(by_rank.begin(), by_rank.end(), score, std::greater<>()) -
                                            by_rank.begin());
    // A half of one character needs no token.
    const auto halves = [&](const std::vector<Affix>& tokens, size_t from, size_t to) {
      std::vector<Affix> out{{to - from, symbol_of(decode_utf8(text.substr(from)).code_point)}};
      std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(out),
                   [&](const Affix& a) { return a.length > to - from; });
      return out;
    };
    const auto left = halves(fronts[static_cast<size_t>(id)], 0, at[1]);
    const auto right = halves(backs[static_cast<size_t>(id)], at[at.size() - 2], text.size());
    auto r = right.rbegin();
    for (const Affix& l : left) {
      while (r != right.rend() && l.length + r->length > text.size()) ++r;
      if (r == right.rend()) break;
      if (l.length + r->length == text.size() && std::binary_search(at.begin(), at.end(), l.length))
        pairs.push_back({l.id, r->id, rank, id});
    }
  }
  merges_ = MergeTable(pairs.size());
  for (const Pair& p : pairs) merges_.add(p.left, p.right, p.rank, p.merged);
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
