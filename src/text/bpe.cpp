#include "text/bpe.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"

namespace tern::text {
namespace {

const std::vector<std::string>& merges_of(const gguf::Metadata& metadata) {
  const std::vector<std::string>* merges = metadata.get_strings("tokenizer.ggml.merges");
  if (merges == nullptr) {
    fail(ErrorCode::kBadFile, "the file has no tokenizer.ggml.merges, which a byte-level (gpt2) vocabulary needs");
  }
  return *merges;
}

std::string in_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, byte_to_code_point(static_cast<uint8_t>(c)));
  return out;
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const gguf::Metadata& metadata, const Vocabulary& vocabulary, std::string_view pre)
    : vocabulary_(&vocabulary), pre_tokenizer_(pre), merges_(merges_of(metadata).size()) {
  for (size_t b = 0; b < byte_ids_.size(); ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = vocabulary.find_ordinary(in_byte_alphabet({&byte, 1})).value_or(-1);
  }
  const std::vector<std::string>& merges = merges_of(metadata);
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    // The blank at 0 would be a token of its own, not the separator.
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == merge.size()) {
      fail(ErrorCode::kBadFile, "tokenizer.ggml.merges[{}] is '{}', not two tokens with a blank between", i, merge);
    }
    const std::string_view left = merge.substr(0, blank), right = merge.substr(blank + 1);
    const auto id = [&](std::string_view token) {
      const auto found = vocabulary.find(token);
      if (!found) {
        fail(ErrorCode::kBadFile, "tokenizer.ggml.merges[{}] is '{}', but '{}' is not in tokenizer.ggml.tokens", i,
             merge, token);
      }
      return *found;
    };
    const int32_t left_id = id(left), right_id = id(right);
    merges_.add(left_id, right_id, static_cast<uint32_t>(i), id(std::string(left).append(right)));
  }
}

void ByteLevelBpe::encode(std::string_view text, std::vector<int32_t>& out) const {
  std::string normalised;
  if (pre_tokenizer().nfc) text = to_nfc(text, normalised);
  std::vector<std::string_view> pieces;
  pre_tokenizer_.split(text, pieces);

  std::vector<int32_t> symbols;
  MergeScratch scratch;
  // Words repeat: a text of a megabyte has some thousand different ones. The map lives as long as this call, so
  // encoding needs no lock; long pieces are not worth keeping.
  constexpr size_t kLongestKept = 32;
  std::unordered_map<std::string_view, std::pair<uint32_t, uint32_t>> seen;  // where in `out` its tokens stand
  for (const std::string_view piece : pieces) {
    const auto from = static_cast<uint32_t>(out.size());
    if (piece.size() <= kLongestKept) {
      const auto [it, is_new] = seen.try_emplace(piece, from, 0);
      if (!is_new) {
        const auto [start, count] = it->second;
        for (uint32_t i = 0; i < count; ++i) out.push_back(out[start + i]);
        continue;
      }
      encode_piece(piece, symbols, scratch);
      it->second.second = static_cast<uint32_t>(symbols.size());
    } else {
      encode_piece(piece, symbols, scratch);
    }
    out.insert(out.end(), symbols.begin(), symbols.end());
  }
}

void ByteLevelBpe::encode_piece(std::string_view piece, std::vector<int32_t>& symbols, MergeScratch& scratch) const {
  symbols.clear();
  if (pre_tokenizer().ignore_merges) {
    if (const auto whole = vocabulary_->find_ordinary(in_byte_alphabet(piece))) {
      symbols.push_back(*whole);
      return;
    }
  }
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0)
      fail(ErrorCode::kBadFile, "the vocabulary has no token for byte 0x{:02X}, which the text holds",
           static_cast<uint8_t>(c));
    symbols.push_back(id);
  }
  merges_.merge(symbols, scratch);
}

}  // namespace tern::text
