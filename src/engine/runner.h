// Runs batches: gathers ragged slices of sequences (prompt chunks and single decode rows, mixed) into one Step and
// gives it to a backend. Compiles a Program for each size class of batch on first use. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/sequence.h"
#include "plan/plan.h"
#include "plan/step.h"

namespace tern {

/// Rows of a slice of which results are wanted.
enum class Outputs : uint8_t { kNone, kLast, kAll };

/// Tokens to append to a sequence in one batch.
struct Slice {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;  // at least one
  Outputs outputs = Outputs::kLast;
  Wanted wanted{};  // of each of these rows
};

class Runner {
 public:
  struct Limits {
    int32_t context = 4096;  // tokens a sequence may hold
    int32_t sequences = 1;   // alive at a time
    int32_t rows = 512;      // tokens in a batch
    KvType k = KvType::kF16, v = KvType::kF16;
    int32_t checkpoints = 0;  // state slots beside those of the sequences, for the prefix cache
    CacheShape cache(const Plan& plan) const;
    /// Whether a sequence takes state slots: of recurrent layers, or for newest tokens that its pages do not hold.
    bool has_state(const Plan& plan) const;
  };

  /// Reserves the caches. `plan` and `backend` (loaded with it) outlive the Runner.
  Runner(const Plan& plan, Backend& backend, const Limits& limits);

  Sequence start();
  Sequence start(SequenceStart from);
  /// Appends the slices and returns the logits [outputs, n_vocab] in slice order, valid until the next call; those of
  /// outputs that want anything else are not told, see scores(). A failed call leaves every sequence as it
  /// was. kContextFull with both numbers when a sequence would outgrow the context; kInvalidArgument for a token
  /// outside the vocabulary.
  std::span<const float> run(std::span<const Slice> slices);
  /// Of an output of the last run(), valid as long as its logits: of tokens alone, not of what pads the vocabulary.
  Scores scores(size_t output = 0) const;
  /// The same as run() with what the head reads in place of logits: [outputs, n_embd] behind the final norm.
  std::span<const float> run_hidden(std::span<const Slice> slices);
  /// Appends `tokens` in batches of Limits::rows; logits of the last one. `progress` is told after every batch how many
  /// are done and may return false to stop early: then the result is empty.
  using Progress = std::function<bool(int64_t done, int64_t total)>;
  std::span<const float> prefill(Sequence& sequence, std::span<const int32_t> tokens, const Progress& progress = {},
                                 const Wanted& wanted = {});
  std::span<const float> decode(Sequence& sequence, int32_t token, const Wanted& wanted = {});
  /// Appends `tokens` and shows the logits [n_vocab] behind each, by its index in `tokens`. In batches small enough
  /// that the logits of one stay within kScoredFloats.
  void score(Sequence& sequence, std::span<const int32_t> tokens,
             const std::function<void(size_t index, std::span<const float> logits)>& visit);

  /// Throws kContextFull when a prompt of `tokens` leaves no room for an answer of at least one token.
  void require_room(int64_t tokens) const;
  const Limits& limits() const noexcept { return limits_; }
  const Plan& plan() const noexcept { return plan_; }
  Backend& backend() const noexcept { return backend_; }
  const std::shared_ptr<CachePools>& pools() const noexcept { return pools_; }

 private:
  static constexpr int64_t kScoredFloats = int64_t{1} << 25;  // 128 MB

  std::span<const float> run(std::span<const Slice> slices, const Plan& plan);
  void check(std::span<const Slice> slices) const;
  void fill(std::span<const Slice> slices);
  Program& program(const Step& step, const Plan& plan);

  const Plan& plan_;
  Backend& backend_;
  Limits limits_;
  std::shared_ptr<CachePools> pools_;
  std::unique_ptr<const Plan> hidden_;  // the part without the head, once somebody asks
  std::map<std::tuple<const Plan*, int32_t, int32_t>, std::unique_ptr<Program>> programs_;  // (plan, rows, outputs)
  Step step_;
  std::vector<Shortlist> shortlists_;  // of the outputs of the last run, where some want candidates
  std::vector<int32_t> tokens_;        // the same, where some want tokens
  std::span<const float> logits_;
};

}  // namespace tern
