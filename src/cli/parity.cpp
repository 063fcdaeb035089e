// tern parity: this engine against a libllama: tokens, then distributions at every position of some prompts and of a
// continuation that both engines are given.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/libllama.h"
#include "cli/parity_texts.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "engine/compare.h"
#include "engine/sampler.h"
#include "text/unicode.h"

namespace tern::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  Flags() { model.type_k = model.type_v = "f32"; }  // as libllama is run
  ModelFlags model{};
  std::string reference, folder, text_file;
  int32_t steps = 100, context = 2048;
  bool json = false;
};

struct TokenizerResult {
  int texts = 0;
  std::vector<std::string> different;
};

TokenizerResult compare_tokenizers(const text::Tokenizer& ours, const LlamaModel& theirs) {
  TokenizerResult result;
  std::string storage;
  for (const std::string_view original : parity_tokenizer_texts())
    for (const bool special : {false, true}) {
      ++result.texts;
      // libllama has no normaliser: where the model's tokenizer has one, both get the text it makes.
      const std::string_view text = ours.normalises() ? text::to_nfc(original, storage) : original;
      if (ours.encode(text, {.add_special = special, .parse_special = special}) !=
          theirs.tokenize(text, special, special))
        result.different.emplace_back(text);
    }
  return result;
}

struct TextResult {
  std::string name;
  Differences prompt, decode;
};

/// Both engines read the prompt, then the continuation that the reference finds likeliest.
TextResult compare_text(Model& model, LlamaModel& reference, std::string_view text, int32_t steps) {
  TextResult result;
  const std::vector<int32_t> tokens = model.tokenizer().encode(text, {.add_special = true, .parse_special = true});
  std::vector<std::vector<float>> expected;
  reference.clear();
  reference.score(tokens, [&](size_t, std::span<const float> row) { expected.emplace_back(row.begin(), row.end()); });
  Sequence sequence = model.runner().start();
  model.runner().score(sequence, tokens,
                       [&](size_t i, std::span<const float> row) { result.prompt.add(compare(expected[i], row)); });
  std::vector<float> last = std::move(expected.back());
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t token = argmax(last);
    reference.score({&token, 1}, [&](size_t, std::span<const float> row) { last.assign(row.begin(), row.end()); });
    result.decode.add(compare(last, model.runner().decode(sequence, token)));
  }
  return result;
}

std::string short_name(std::string_view text) {
  std::string name(text.substr(0, 32));
  std::replace(name.begin(), name.end(), '\n', ' ');
  while (!name.empty() && (static_cast<unsigned char>(name.back()) & 0x80) != 0) name.pop_back();  // half a character
  return name;
}

Json as_json(const Differences& d) {
  return {{"positions", d.positions},
          {"kl", d.mean(d.kl)},
          {"kl_back", d.mean(d.kl_back)},
          {"worst_kl", d.worst_kl},
          {"total_variation", d.mean(d.total_variation)},
          {"top10_overlap", d.mean(d.top10_overlap)},
          {"flips", d.flips},
          {"worst_gap", d.worst_gap},
          {"verdict", verdict_name(verdict(d))}};
}

void add_row(Table& table, const std::string& name, const char* part, const Differences& d) {
  table.add({name, part, fmt::format("{}", d.positions), fmt::format("{:.2e}", d.mean(d.kl)),
             fmt::format("{:.2e}", d.mean(d.kl_back)), fmt::format("{:.2e}", d.worst_kl),
             fmt::format("{:.4f}", d.mean(d.total_variation)), fmt::format("{:.2f}", d.mean(d.top10_overlap)),
             fmt::format("{}", d.flips), fmt::format("{:.3f}", d.worst_gap), std::string(verdict_name(verdict(d)))});
}

void print_report(const TokenizerResult& tokenizer, const std::vector<TextResult>& texts, const Differences& all) {
  fmt::print("tokenizer: {} of {} texts identical\n", tokenizer.texts - static_cast<int>(tokenizer.different.size()),
             tokenizer.texts);
  for (const std::string& text : tokenizer.different)
    fmt::print("  differs: {}\n", Json(text).dump(-1, ' ', true, Json::error_handler_t::replace));
  Table table(
      {"TEXT", "PART", ">POSITIONS", ">KL", ">KL BACK", ">WORST", ">TV", ">TOP10", ">FLIPS", ">GAP", "VERDICT"});
  for (const TextResult& t : texts) {
    add_row(table, t.name, "prompt", t.prompt);
    add_row(table, t.name, "decode", t.decode);
  }
  add_row(table, "all", "", all);
  fmt::print("\n{}", table.text());
}

/// The worst part decides: an average must not hide a text that goes wrong.
Verdict overall(const TokenizerResult& tokenizer, const std::vector<TextResult>& texts) {
  if (!tokenizer.different.empty()) return Verdict::kWrong;
  Verdict worst = Verdict::kMatch;
  for (const TextResult& t : texts) worst = std::max({worst, verdict(t.prompt), verdict(t.decode)});
  return worst;
}

int parity(const Flags& flags) {
  const Libllama library(flags.folder);
  const auto model = flags.model.load({.context = flags.context});
  const std::string reference_path = flags.reference.empty() ? model->file().path() : flags.reference;
  LlamaModel reference(library, reference_path, flags.context, model->backend().info().threads);
  if (reference.n_vocab() != model->plan().n_vocab)
    fail(ErrorCode::kInvalidArgument, "{} has {} tokens and {} has {}: they are not the same model", reference_path,
         reference.n_vocab(), model->file().path(), model->plan().n_vocab);
  fmt::print(stderr, "tern {} ({}) against libllama {} on {}\n", version(), model->backend().info().name,
             library.version(), reference_path);

  const TokenizerResult tokenizer = compare_tokenizers(model->tokenizer(), reference);
  std::vector<std::string> prompts(parity_prompts().begin(), parity_prompts().end());
  if (!flags.text_file.empty()) prompts = {read_text_file(flags.text_file)};
  std::vector<TextResult> texts;
  Differences all;
  ProgressLine line("comparing", ProgressLine::Unit::kTokens);
  for (const std::string& prompt : prompts) {
    texts.push_back(compare_text(*model, reference, prompt, flags.steps));
    texts.back().name = short_name(prompt);
    all.add(texts.back().prompt);
    all.add(texts.back().decode);
    line.update(texts.size(), prompts.size());
  }
  line.finish();
  const Verdict result = overall(tokenizer, texts);
  if (flags.json) {
    Json out{{"verdict", verdict_name(result)},
             {"reference", reference_path},
             {"libllama", library.version()},
             {"tokenizer_texts", tokenizer.texts},
             {"tokenizer_different", tokenizer.different.size()},
             {"all", as_json(all)},
             {"texts", Json::array()}};
    for (const TextResult& t : texts)
      out["texts"].push_back({{"text", t.name}, {"prompt", as_json(t.prompt)}, {"decode", as_json(t.decode)}});
    print_json(out);
  } else {
    print_report(tokenizer, texts, all);
    fmt::print("\n{}\n", verdict_name(result));
  }
  return result == Verdict::kWrong ? 1 : 0;
}

}  // namespace

Action setup_parity(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, false);
  set.option("--libllama", flags->folder, "the folder of libllama*.so and its backends (llama.cpp v0.5.0)").required();
  set.option("--reference", flags->reference,
             "the model libllama runs, when it cannot read the other (an unfolded one)");
  set.option("-f,--file", flags->text_file, "compare on this text instead of the built-in ones");
  set.option("--steps", flags->steps, "decode steps a text").at_least(0);
  set.flag("--json", flags->json, "as one JSON object");
  return [flags] { return parity(*flags); };
}

}  // namespace tern::cli
