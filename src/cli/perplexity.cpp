// tern perplexity: how well a model predicts a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "engine/sampler.h"

namespace tern::cli {
namespace {

struct Flags {
  ModelFlags model;
  std::string text_file;
  int32_t window = 0;
  int32_t windows = -1;
  bool json = false;
};

/// Sum of -log p(next token) over a window that starts from nothing: all of its positions but the last are scored.
double window_nll(Model& model, std::span<const int32_t> tokens) {
  Sequence sequence = model.runner().start();
  double nll = 0;
  model.runner().score(sequence, tokens.first(tokens.size() - 1), [&](size_t index, std::span<const float> logits) {
    nll += log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(tokens[index + 1])]);
  });
  return nll;
}

constexpr int32_t kWindow = 512;

/// One rule for both flags: a window is what is read at once, so -c alone is the window, as llama.cpp has it, and
/// beside --window it must not be smaller.
int32_t window_of(const Flags& flags) {
  const int32_t context = flags.model.context;
  if (flags.window == 0) return context > 0 ? context : kWindow;
  if (context > 0 && context < flags.window)
    throw UsageError(fmt::format("a window of {} tokens does not fit a context of {}: leave out -c, or make it {}",
                                 flags.window, context, flags.window));
  return flags.window;
}

int perplexity(const Flags& flags) {
  const int32_t window = window_of(flags);
  if (window < 2) throw UsageError("a window needs 2 tokens: one to read and one to predict");
  if (flags.text_file.empty() && !stdin_has_text()) throw UsageError("give a text with -f FILE, or on stdin");
  const std::string text = flags.text_file.empty() ? read_stdin() : read_text_file(flags.text_file);
  const auto model = flags.model.load({.context = window});
  const std::vector<int32_t> tokens = model->tokenizer().encode(text, {.add_special = true, .parse_special = true});
  const auto size = static_cast<size_t>(window);
  const size_t available = tokens.size() / size;
  if (available == 0)
    fail(ErrorCode::kInvalidArgument,
         "the text has {} tokens, and one window needs {}: take a longer text or a smaller --window", tokens.size(),
         size);
  const size_t n = flags.windows < 0 ? available : std::min(available, static_cast<size_t>(flags.windows));
  ProgressLine line("perplexity", ProgressLine::Unit::kTokens, flags.model.quiet);
  double nll = 0;
  for (size_t w = 0; w < n; ++w) {
    nll += window_nll(*model, std::span(tokens).subspan(w * size, size));
    line.update((w + 1) * size, n * size);
  }
  line.finish();
  const double mean = nll / static_cast<double>(n * (size - 1));
  if (flags.json) {
    const nlohmann::ordered_json out{{"model", model_name(model->file())},
                                     {"text", flags.text_file},
                                     {"tokens", tokens.size()},
                                     {"window", window},
                                     {"windows", n},
                                     {"nll", mean},
                                     {"ppl", std::exp(mean)}};
    print_json(out);
  } else {
    fmt::print("perplexity {:.4f} (nll {:.5f}) over {} of {} windows of {} tokens\n", std::exp(mean), mean, n,
               available, size);
  }
  return 0;
}

}  // namespace

Action setup_perplexity(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->model.declare(set, false);
  set.option("-f,--file", flags->text_file, "the text (default: stdin)");
  set.option("--window", flags->window,
             "tokens of a window; each starts from nothing and all its positions count (0: what -c says, else 512)")
      .between(0, 1 << 20);
  set.option("--windows,--chunks", flags->windows, "score that many windows only (-1: all)").between(-1, 1 << 30);
  set.flag("--json", flags->json, "as one JSON object");
  return [flags] { return perplexity(*flags); };
}

}  // namespace tern::cli
