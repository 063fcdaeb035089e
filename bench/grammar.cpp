// What a grammar costs a token, with a vocabulary of 150,000: the mask over all tokens and the step behind the one that
// was chosen, from the first token of an answer on, as nothing is kept from one answer to the next.
//   bench_grammar
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "text/grammar.h"
#include "text/tokenizer_vocabulary.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTokens = 150'000;

/// Words, words behind a blank, numbers, pieces of code and characters of several bytes, as far as they differ.
std::vector<std::pair<std::string, TokenType>> pieces() {
  std::mt19937 random(1);
  const auto any = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::vector<std::string> syllables = {"a",   "be",   "con", "de",  "er",  "for", "in", "ing",
                                              "ly",  "men",  "ner", "on",  "per", "qu",  "re", "sta",
                                              "ter", "tion", "un",  "ver", "w",   "x"};
  const std::string code = "{}[]()<>:;,.\"'/\\=+-*_#&|!? \n\t";
  std::vector<std::string> out;
  while (out.size() < kTokens) {
    std::string piece = any(2) == 0 ? " " : "";
    const size_t kind = any(20);
    if (kind < 14) {
      for (size_t n = 1 + any(5); n > 0; --n) piece += syllables[any(syllables.size())];
      if (any(4) == 0) piece[piece[0] == ' ' ? 1 : 0] -= 'a' - 'A';
    } else if (kind < 15) {
      piece = std::to_string(any(1000));
    } else if (kind < 17) {
      piece.clear();
      for (size_t n = 1 + any(5); n > 0; --n) piece += code[any(code.size())];
    } else {
      for (size_t n = 1 + any(3); n > 0; --n) append_utf8(piece, static_cast<char32_t>(0x400 + any(0x7000)));
    }
    out.push_back(std::move(piece));
    if (out.size() == kTokens) {
      std::sort(out.begin(), out.end());
      out.erase(std::unique(out.begin(), out.end()), out.end());
      std::erase_if(out, [](const std::string& s) { return s.size() < 2; });
    }
  }
  std::vector<std::pair<std::string, TokenType>> named;
  for (const std::string& piece : out) named.push_back({spelled(piece), TokenType::kNormal});
  named.push_back({"<|end|>", TokenType::kControl});
  return named;
}

struct Vocabulary {
  Tokenizer tokenizer = [] {
    const auto others = pieces();
    gguf::Metadata metadata = byte_level({}, others);
    metadata.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(255 + others.size()));
    return Tokenizer::from_metadata(metadata);
  }();
  std::shared_ptr<const TokenTable> table = std::make_shared<const TokenTable>(tokenizer);
};
const Vocabulary& vocabulary() {
  static const Vocabulary one;
  return one;
}

/// `text` in the longest tokens there are.
std::vector<int32_t> tokens_of(std::string_view text) {
  std::vector<int32_t> out;
  const Tokenizer& tokenizer = vocabulary().tokenizer;
  while (!text.empty()) {
    for (size_t n = std::min<size_t>(text.size(), 24); n > 0; --n) {
      const auto token = tokenizer.find(spelled(text.substr(0, n)));
      if (!token) continue;
      out.push_back(*token);
      text.remove_prefix(n);
      break;
    }
  }
  return out;
}

void answer(benchmark::State& state, const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  const std::vector<int32_t> tokens = tokens_of(text);
  std::vector<float> logits(static_cast<size_t>(vocabulary().tokenizer.n_vocab()), 0.0f);
  std::vector<double> times;
  for (auto _ : state) {
    GrammarState place(grammar, vocabulary().table);
    for (const int32_t token : tokens) {
      const auto begin = std::chrono::steady_clock::now();
      place.mask(logits);
      place.accept(token);
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  std::sort(times.begin(), times.end());
  double all = 0;
  for (const double t : times) all += t;
  state.counters["ms/token"] = 1e3 * all / static_cast<double>(times.size());
  state.counters["p50"] = 1e3 * times[times.size() / 2];
  state.counters["p95"] = 1e3 * times[times.size() * 95 / 100];
  state.counters["worst"] = 1e3 * times.back();
  state.counters["tokens"] = static_cast<double>(tokens.size());
}

constexpr std::string_view kDocument =
    R"({"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "poetical science"], "notes": [)"
    R"({"title": "Note G", "text": "The Analytical Engine weaves algebraic patterns just as the loom weaves leaves."},)"
    R"( {"title": "Note A", "text": "Übersetzung \"und\" Erläuterung\nin zwei Zeilen."}], "alive": false})";

void free_json(benchmark::State& state) {
  answer(state, Grammar::from_json_schema({{"type", "object"}}), kDocument);
}
void json_schema(benchmark::State& state) {
  answer(state, Grammar::from_json_schema(Json::parse(R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 40}, "born": {"type": "integer", "minimum": 0, "maximum": 2100},
    "fields": {"type": "array", "items": {"type": "string"}},
    "notes": {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"},
      "text": {"type": "string"}}, "required": ["title", "text"], "additionalProperties": false}},
    "alive": {"type": "boolean"}}, "required": ["name", "born", "fields", "notes", "alive"]})")),
         kDocument);
}
void plain_text(benchmark::State& state) {
  answer(state, Grammar::from_gbnf("root ::= [^<]* \"<end>\""), "Just some words, one after the other, without end.");
}
BENCHMARK(free_json)->Unit(benchmark::kMillisecond);
BENCHMARK(json_schema)->Unit(benchmark::kMillisecond);
BENCHMARK(plain_text)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tern::text

BENCHMARK_MAIN();
