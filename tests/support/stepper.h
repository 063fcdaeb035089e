// Drives a backend by hand, one Step at a time: what an engine does, reduced to what tests need to control.
#pragma once
#include <numeric>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "plan/plan.h"
#include "plan/step.h"

namespace tern::test {

/// Runs chunks of several sequences on a loaded backend. Sequence s owns the pages [s*pages, (s+1)*pages) and slot s.
class Stepper {
 public:
  struct Options {
    int32_t seqs = 1, context = 1024, max_rows = 1024;
    KvType kv = KvType::kF32;
  };
  Stepper(Backend& backend, const Plan& plan, const Options& o)
      : backend_(backend),
        plan_(plan),
        pages_((o.context + kPageTokens - 1) / kPageTokens),
        past_(static_cast<size_t>(o.seqs)) {
    backend.reserve({.pages = pages_ * o.seqs, .state_slots = o.seqs, .k = o.kv, .v = o.kv});
    program_ = backend.compile({.rows = o.max_rows, .outputs = o.max_rows, .seqs = o.seqs});
  }

  struct Chunk {
    int32_t seq = 0;
    std::vector<int32_t> tokens;
  };
  /// One Step with all rows as outputs: logits [rows, n_vocab] in row order.
  std::vector<float> run(const std::vector<Chunk>& chunks) {
    step_.clear();
    for (const Chunk& c : chunks) {
      int32_t& past = past_[static_cast<size_t>(c.seq)];
      const auto n = static_cast<int32_t>(c.tokens.size());
      step_.seqs.push_back({.first_row = step_.rows(),
                            .n_rows = n,
                            .position = past,
                            .first_page = static_cast<int32_t>(step_.pages.size()),
                            .n_pages = pages_,
                            .state_in = past == 0 ? kZeroState : c.seq,
                            .state_out = c.seq});
      for (int32_t p = 0; p < pages_; ++p) step_.pages.push_back(c.seq * pages_ + p);
      step_.tokens.insert(step_.tokens.end(), c.tokens.begin(), c.tokens.end());
      past += n;
    }
    step_.out_rows.resize(step_.tokens.size());
    std::iota(step_.out_rows.begin(), step_.out_rows.end(), 0);
    std::vector<float> logits(step_.tokens.size() * static_cast<size_t>(plan_.n_vocab));
    backend_.run(*program_, step_, {.logits = logits});
    return logits;
  }
  std::vector<float> run_one(std::vector<int32_t> tokens, int32_t seq = 0) {
    return run({{.seq = seq, .tokens = std::move(tokens)}});
  }
  void reset(int32_t seq = 0) { past_[static_cast<size_t>(seq)] = 0; }

 private:
  Backend& backend_;
  const Plan& plan_;
  int32_t pages_;
  std::vector<int32_t> past_;
  std::unique_ptr<Program> program_;
  Step step_;
};

}  // namespace tern::test
