// tern logits: what a model computes, for comparison with other engines.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "cli/trace.h"
#include "cli/verbs.h"
#include "engine/sampler.h"

namespace tern::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  Flags() { model.type_k = model.type_v = "f32"; }  // to compare with references that round no cache
  ModelFlags model{};
  std::string text, tokens;
  int32_t top = 20, greedy = 0;
  bool all = false, json = false, no_special = false;
  TraceFlags trace{};
};

Json top_pairs(std::span<const float> logits, int32_t k) {
  Json pairs = Json::array();
  for (const auto& [id, logit] : top(logits, k)) pairs.push_back({id, logit});
  return pairs;
}

/// Continues with the most likely token each, the ending one included, as the references do.
void continue_greedily(Model& model, Sequence& sequence, std::vector<float> logits, int32_t n, Json& out) {
  out["greedy"] = Json::array();
  out["greedy_logprobs"] = Json::array();
  for (int32_t i = 0; i < n; ++i) {
    const int32_t token = argmax(logits);
    out["greedy"].push_back(token);
    out["greedy_logprobs"].push_back(static_cast<double>(logits[static_cast<size_t>(token)]) - log_sum_exp(logits));
    if (model.tokenizer().is_end_of_generation(token) || i + 1 == n) break;
    const auto next = model.runner().decode(sequence, token);
    logits.assign(next.begin(), next.end());
  }
}

void print_text(const Json& out) {
  fmt::print("position  token  argmax  logsumexp\n");
  for (size_t i = 0; i < out["tokens"].size(); ++i)
    fmt::print("{:>8}  {:>5}  {:>6}  {:.6f}\n", i, out["tokens"][i].get<int>(), out["argmax"][i].get<int>(),
               out["logsumexp"][i].get<double>());
  fmt::print("last: {}\n", out["last_top"].dump());
  if (out.contains("greedy")) fmt::print("greedy: {}\n", out["greedy"].dump());
}

int logits(const Flags& flags) {
  if (flags.text.empty() == flags.tokens.empty()) throw UsageError("give either --text or --tokens");
  std::vector<int32_t> tokens = parse_token_list(flags.tokens);
  ModelFlags::Need need;
  // The context has to be known before the model is loaded, and the tokenizer tells how long the text is.
  if (!flags.text.empty()) {
    const gguf::File file = gguf::File::open(flags.model.file.resolve());
    tokens = text::Tokenizer::from_metadata(file.metadata())
                 .encode(flags.text, {.add_special = !flags.no_special, .parse_special = true});
  }
  if (flags.model.context == 0) need.context = static_cast<int32_t>(tokens.size()) + flags.greedy + 1;
  const auto model = flags.model.load(need);
  model->runner().require_room(static_cast<int64_t>(tokens.size()));

  if (const auto code = trace_prompt(flags.trace, flags.model, *model, tokens)) return *code;
  Json out{{"model", model_name(model->file())},
           {"backend", model->backend().info().name},
           {"activations", flags.model.activations},
           {"tokens", tokens},
           {"argmax", Json::array()},
           {"logsumexp", Json::array()}};
  if (flags.all) out["top"] = Json::array();
  std::vector<float> last;
  Sequence sequence = model->runner().start();
  model->runner().score(sequence, tokens, [&](size_t index, std::span<const float> row) {
    const int32_t best = argmax(row);
    if (best < 0) fail(ErrorCode::kInvalidArgument, "no logit at position {} is a finite number", index);
    out["argmax"].push_back(best);
    out["logsumexp"].push_back(log_sum_exp(row));
    if (flags.all) out["top"].push_back(top_pairs(row, flags.top));
    if (index + 1 == tokens.size()) last.assign(row.begin(), row.end());
  });
  out["last_top"] = top_pairs(last, flags.top);
  if (flags.greedy > 0) continue_greedily(*model, sequence, std::move(last), flags.greedy, out);
  if (flags.json) {
    print_json(out);
  } else {
    print_text(out);
  }
  return 0;
}

}  // namespace

Action setup_logits(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, false);
  set.option("-p,--prompt,--text", flags->text, "the text; control tokens spelled out in it count");
  set.option("--tokens", flags->tokens, "token ids instead, separated by commas");
  set.option("--top", flags->top, "pairs of id and logit to list").at_least(1);
  set.option("--greedy", flags->greedy, "continue with that many most likely tokens").at_least(0);
  set.flag("--all", flags->all, "list the pairs at every position");
  set.flag("--no-special", flags->no_special, "do not add the tokens that begin and end a text");
  flags->trace.declare(set);
  set.flag("--json", flags->json, "as one JSON object");
  return [flags] { return logits(*flags); };
}

}  // namespace tern::cli
