#include "synth/vocabulary.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_vocab.h"
#include "text/unicode.h"

namespace tern::synth {
namespace {

constexpr char kTrainingText[] = {
#include "training_text.inc"
};

constexpr std::string_view kControl[] = {"<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};
enum ControlToken : uint8_t { kBos, kEos, kTurn, kEot };

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct Word {
  std::vector<uint32_t> symbols;
  int64_t count = 0;
};
using Pair = std::pair<uint32_t, uint32_t>;

std::vector<Word> words_of(std::string_view text, std::string_view pre) {
  std::vector<std::string_view> pieces;
  text::PreTokenizer(pre).split(text, pieces);
  std::map<std::string_view, int64_t> counts;
  for (const std::string_view piece : pieces) ++counts[piece];
  std::vector<Word> words;
  for (const auto& [piece, count] : counts) {
    Word w{.symbols = {}, .count = count};
    for (const char c : piece) w.symbols.push_back(static_cast<unsigned char>(c));
    words.push_back(std::move(w));
  }
  return words;
}

/// The pair of neighbours seen most often, the lowest ids on a tie; count 0 when no pair occurs twice.
Pair best_pair(const std::vector<Word>& words) {
  std::unordered_map<uint64_t, int64_t> counts;
  for (const Word& w : words) {
    for (size_t i = 1; i < w.symbols.size(); ++i) counts[uint64_t{w.symbols[i - 1]} << 32 | w.symbols[i]] += w.count;
  }
  uint64_t best = 0;
  int64_t most = 1;
  for (const auto& [pair, count] : counts) {
    if (count > most || (count == most && most > 1 && pair < best)) {
      best = pair;
      most = count;
    }
  }
  return most > 1 ? Pair{static_cast<uint32_t>(best >> 32), static_cast<uint32_t>(best)} : Pair{};
}

void apply(std::vector<Word>& words, Pair pair, uint32_t merged) {
  for (Word& w : words) {
    size_t out = 0;
    for (size_t i = 0; i < w.symbols.size(); ++out) {
      const bool here = i + 1 < w.symbols.size() && w.symbols[i] == pair.first && w.symbols[i + 1] == pair.second;
      w.symbols[out] = here ? merged : w.symbols[i];
      i += here ? 2 : 1;
    }
    w.symbols.resize(out);
  }
}

}  // namespace

void set_vocabulary(gguf::Metadata& m, std::string_view pre, int64_t size) {
  const auto n_control = static_cast<int64_t>(std::size(kControl));
  if (size < 256 + n_control)
    fail(ErrorCode::kInvalidArgument, "a vocabulary of {} has no room for 256 bytes and {} control tokens", size,
         n_control);
  std::vector<std::string> tokens, merges;
  for (int b = 0; b < 256; ++b)
    text::append_utf8(tokens.emplace_back(), text::byte_to_code_point(static_cast<uint8_t>(b)));
  std::vector<Word> words = words_of({kTrainingText, sizeof kTrainingText}, pre);
  while (static_cast<int64_t>(tokens.size()) < size - n_control) {
    const Pair pair = best_pair(words);
    if (pair == Pair{}) break;
    apply(words, pair, static_cast<uint32_t>(tokens.size()));
    merges.push_back(tokens[pair.first] + " " + tokens[pair.second]);
    tokens.push_back(tokens[pair.first] + tokens[pair.second]);
  }
  std::vector<int64_t> types(tokens.size(), static_cast<int64_t>(text::TokenType::kNormal));
  const auto control = static_cast<uint32_t>(tokens.size());
  for (const std::string_view name : kControl) tokens.emplace_back(name);
  types.resize(tokens.size(), static_cast<int64_t>(text::TokenType::kControl));
  while (static_cast<int64_t>(tokens.size()) < size)
    tokens.push_back("<|unused_" + std::to_string(tokens.size()) + "|>");
  types.resize(tokens.size(), static_cast<int64_t>(text::TokenType::kUnused));

  const std::string p = "tokenizer.ggml.";
  m.set_string(p + "model", "gpt2");
  m.set_string(p + "pre", std::string(pre));
  m.set_strings(p + "tokens", std::move(tokens));
  m.set_i32s(p + "token_type", std::move(types));
  m.set_strings(p + "merges", std::move(merges));
  m.set_u32(p + "bos_token_id", control + kBos);
  m.set_u32(p + "eos_token_id", control + kEos);
  m.set_u32(p + "eot_token_id", control + kEot);
  m.set_bool(p + "add_bos_token", pre == "llama-bpe");
  m.set_string("tokenizer.chat_template", std::string(kChatTemplate));
}

}  // namespace tern::synth
