#include "cli/bench_contenders.h"

#include <random>

namespace tern::cli {
namespace {

/// What fills the cache: the same for both engines; attention does not ask what was said.
std::vector<int32_t> filler(int32_t from, int32_t to, int64_t n_vocab) {
  std::mt19937 random(static_cast<uint32_t>(from));
  std::vector<int32_t> ids;
  for (int32_t i = from; i < to; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(n_vocab)));
  return ids;
}

class Ours final : public measure::Contender {
 public:
  explicit Ours(Model& model) : runner_(model.runner()), sequence_(runner_.start()) {}

  void seek(int32_t depth) override {
    const int32_t from = sequence_.rewind(depth);
    if (from == depth) return;
    runner_.prefill(sequence_, filler(from, depth, runner_.plan().n_vocab), {}, kBestToken);
    sequence_.checkpoint();  // a recurrent state cannot be rewound to any other place
  }
  void prompt(std::span<const int32_t> tokens) override { runner_.prefill(sequence_, tokens, {}, kBestToken); }
  void generate(std::span<const int32_t> tokens) override {
    for (const int32_t token : tokens) runner_.decode(sequence_, token, kBestToken);
  }

 private:
  Runner& runner_;
  Sequence sequence_;
};

class Theirs final : public measure::Contender {
 public:
  Theirs(LlamaModel& model, int threads, int fill_threads)
      : model_(model), threads_(threads), fill_threads_(fill_threads) {}

  void seek(int32_t depth) override {
    model_.rewind(depth);
    if (model_.position() < depth) {
      model_.set_threads(fill_threads_);
      model_.append(filler(model_.position(), depth, model_.n_vocab()));
    }
    model_.set_threads(threads_);
  }
  void prompt(std::span<const int32_t> tokens) override { model_.append(tokens); }
  void generate(std::span<const int32_t> tokens) override {
    for (size_t i = 0; i < tokens.size(); ++i) model_.append(tokens.subspan(i, 1));
  }

 private:
  LlamaModel& model_;
  int threads_, fill_threads_;
};

}  // namespace

std::unique_ptr<measure::Contender> make_contender(Model& model) {
  return std::make_unique<Ours>(model);
}

std::unique_ptr<measure::Contender> make_contender(LlamaModel& model, int threads, int fill_threads) {
  return std::make_unique<Theirs>(model, threads, fill_threads);
}

}  // namespace tern::cli
