#include "cli/answer.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/output.h"
#include "engine/bandwidth.h"
#include "text/detokenizer.h"

namespace tern::cli {
namespace {

/// A model may be talked into saying what a terminal obeys; a file or a pipe gets every byte.
void show(const std::string& answer) {
  const std::string text = stdout_is_terminal() ? printable(answer, "\n\t") : answer;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// Ends the line of an answer that was begun, also when it ends in an error.
class Line {
 public:
  ~Line() {
    if (begun_) show("\n");
  }
  void add(const std::string& text) {
    if (text.empty()) return;
    show(text);
    begun_ = text.back() != '\n';
  }

 private:
  bool begun_ = false;
};

}  // namespace

Answer answer(Model& model, Sequence& sequence, std::span<const int32_t> prompt, const AnswerOptions& options,
              const InterruptGuard& interrupts) {
  Answer out;
  Line line;
  ProgressLine reading("reading prompt", ProgressLine::Unit::kTokens, options.quiet);
  text::StreamDecoder decoder(model.tokenizer());
  const auto emit = [&](const std::string& text) {
    out.text += text;
    line.add(text);
  };
  const Generated generated =
      generate(model.runner(), sequence, prompt,
               {.sampling = options.sampling,
                .max_tokens = options.max_tokens,
                .ends = [&](int32_t token) { return model.tokenizer().is_end_of_generation(token); },
                .on_token =
                    [&](int32_t token) {
                      reading.finish();
                      emit(decoder.push(token));
                      return !interrupts.interrupted();
                    },
                .on_prompt =
                    [&](int64_t done, int64_t total) {
                      reading.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
                      return !interrupts.interrupted();
                    }});
  reading.finish();
  emit(decoder.finish());
  out.reason = generated.reason;
  out.stats = generated.stats;
  return out;
}

void print_stats(Model& model, const Stats& stats) {
  const double bandwidth = stats.decoded_tokens > 0 ? read_bandwidth(model.backend().info().threads) : 0;
  fmt::print(stderr, "{}\n", stats_line(stats, bandwidth));
}

}  // namespace tern::cli
