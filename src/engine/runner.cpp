#include "engine/runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace tern {

bool Runner::Limits::has_state(const Plan& plan) const {
  return plan.recurrent() || (!plan.kv_layers.empty() && CacheShape{.k = k, .v = v}.has_tails());
}

CacheShape Runner::Limits::cache(const Plan& plan) const {
  CacheShape shape{.pages = KvPool::pages_for(context) * sequences, .k = k, .v = v};
  if (has_state(plan)) shape.state_slots = sequences * Sequence::kStateSlots + checkpoints;
  return shape;
}

Runner::Runner(const Plan& plan, Backend& backend, const Limits& limits)
    : plan_(plan), backend_(backend), limits_(limits) {
  CHECK(limits.context > 0 && limits.sequences > 0 && limits.rows > 0);
  limits_.rows = static_cast<int32_t>(std::min<int64_t>(limits_.rows, int64_t{limits_.context} * limits_.sequences));
  limits_.rows = std::max(limits_.rows, limits_.sequences);
  const CacheShape shape = limits_.cache(plan);
  backend_.reserve(shape);
  pools_ = std::make_shared<CachePools>(shape.pages, shape.state_slots);
}

Sequence Runner::start() {
  return Sequence(pools_, limits_.has_state(plan_));
}

Sequence Runner::start(SequenceStart from) {
  CHECK((from.next_state >= 0) == limits_.has_state(plan_));
  return Sequence(pools_, std::move(from));
}

void Runner::require_room(int64_t tokens) const {
  if (tokens < limits_.context) return;
  const int64_t needed = (tokens + 1 + kPageTokens - 1) / kPageTokens * kPageTokens;
  Limits larger = limits_;
  larger.context = static_cast<int32_t>(std::min<int64_t>(needed, INT32_MAX / 2));
  const int64_t extra = cache_bytes(plan_, larger.cache(plan_)) - cache_bytes(plan_, limits_.cache(plan_));
  fail(ErrorCode::kContextFull,
       "the prompt has {} tokens, and the context holds {}: it must be shorter, or try -c {} (+{:.1f} MB){}", tokens,
       limits_.context, needed, static_cast<double>(extra) / 1e6,
       plan_.n_context_train > 0 && needed > plan_.n_context_train
           ? fmt::format("; the model was trained for {}", plan_.n_context_train)
           : "");
}

void Runner::check(std::span<const Slice> slices) const {
  int64_t rows = 0;
  for (const Slice& slice : slices) {
    CHECK(slice.sequence && !slice.tokens.empty());
    CHECK(slice.sequence->pools_ == pools_, "a sequence of another runner");
    rows += static_cast<int64_t>(slice.tokens.size());
    for (const int32_t token : slice.tokens)
      if (token < 0 || token >= plan_.n_vocab)
        fail(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}", token, plan_.n_vocab);
    const int64_t end = slice.sequence->position() + static_cast<int64_t>(slice.tokens.size());
    if (end > limits_.context)
      fail(ErrorCode::kContextFull, "the context holds {} tokens, and {} are needed: start with a larger one (-c {})",
           limits_.context, end, KvPool::pages_for(end) * kPageTokens);
  }
  CHECK(!slices.empty() && rows <= limits_.rows, "{} rows of {}", rows, limits_.rows);
}

void Runner::fill(std::span<const Slice> slices) {
  step_.clear();
  for (const Slice& slice : slices) {
    Sequence& s = *slice.sequence;
    SeqRows rows{.first_row = step_.rows(),
                 .n_rows = static_cast<int32_t>(slice.tokens.size()),
                 .position = s.position(),
                 .first_page = static_cast<int32_t>(step_.pages.size()),
                 .n_pages = static_cast<int32_t>(s.pages_.size())};
    if (s.recurrent()) {
      rows.state_in = s.position() == 0 ? kZeroState : s.in_;
      rows.state_out = s.out_;
    }
    step_.seqs.push_back(rows);
    step_.pages.insert(step_.pages.end(), s.pages_.begin(), s.pages_.end());
    step_.tokens.insert(step_.tokens.end(), slice.tokens.begin(), slice.tokens.end());
    const int32_t end = step_.rows();
    const int32_t first = slice.outputs == Outputs::kAll    ? rows.first_row
                          : slice.outputs == Outputs::kLast ? end - 1
                                                            : end;
    for (int32_t row = first; row < end; ++row) step_.out_rows.push_back(row);
    step_.wanted.resize(step_.out_rows.size(), slice.wanted);
  }
}

Program& Runner::program(const Step& step, const Plan& plan) {
  // Powers of two: a prompt's last, shorter batch shares a Program with others of about its size.
  const auto bucket = [&](size_t n) {
    return std::min(static_cast<int32_t>(std::bit_ceil(std::max<size_t>(n, 1))), limits_.rows);
  };
  const int32_t rows = bucket(step.tokens.size());
  const bool few = step.out_rows.size() <= static_cast<size_t>(limits_.sequences);
  const int32_t outputs = few ? std::min(limits_.sequences, rows) : rows;
  std::unique_ptr<Program>& slot = programs_[{&plan, rows, outputs}];
  if (!slot)
    slot = backend_.compile({.rows = rows,
                             .outputs = outputs,
                             .seqs = std::min(limits_.sequences, rows),
                             .part = &plan == &plan_ ? nullptr : &plan});
  return *slot;
}

std::span<const float> Runner::run(std::span<const Slice> slices) {
  return run(slices, plan_);
}

std::span<const float> Runner::run_hidden(std::span<const Slice> slices) {
  if (!hidden_) hidden_ = std::make_unique<const Plan>(hidden_part(plan_));
  return run(slices, *hidden_);
}

std::span<const float> Runner::run(std::span<const Slice> slices, const Plan& plan) {
  check(slices);
  for (const Slice& slice : slices) {
    Sequence& s = *slice.sequence;
    const int64_t end = s.position() + static_cast<int64_t>(slice.tokens.size());
    if (!pools_->kv.extend(s.pages_, end))
      fail(ErrorCode::kOutOfMemory, "no KV pages left for {} tokens: {} of {} are free", end, pools_->kv.available(),
           pools_->kv.size());
  }
  fill(slices);
  const auto columns = static_cast<size_t>(plan.info(plan.logits).cols);
  const std::span<float> logits = backend_.logits_memory(step_.out_rows.size() * columns);
  const bool lists = std::ranges::any_of(step_.wanted, [](const Wanted& w) { return w.best > 0 && !w.token; });
  const bool tokens = std::ranges::any_of(step_.wanted, &Wanted::token);
  CHECK((!lists && !tokens) || plan.n_tokens > 0, "candidates of what are no logits");
  shortlists_.resize(lists ? step_.out_rows.size() : 0);
  tokens_.assign(tokens ? step_.out_rows.size() : 0, -1);
  backend_.run(program(step_, plan), step_, {.logits = logits, .shortlists = shortlists_, .tokens = tokens_});
  for (const Slice& slice : slices) slice.sequence->advance(slice.tokens);
  return logits_ = logits;
}

Scores Runner::scores(size_t output) const {
  if (step_.wanted[output].token) {
    const int32_t token = tokens_[output];
    CHECK(token >= -1 && token < plan_.n_tokens, "token {} of {} was drawn", token, plan_.n_tokens);
    return {.token = token};
  }
  if (step_.wanted[output].best > 0) return {.shortlist = &shortlists_[output]};
  return {.logits = logits_.subspan(output * static_cast<size_t>(plan_.n_vocab), static_cast<size_t>(plan_.n_tokens))};
}

std::span<const float> Runner::prefill(Sequence& sequence, std::span<const int32_t> tokens, const Progress& progress,
                                       const Wanted& wanted) {
  CHECK(!tokens.empty());
  const size_t batch = static_cast<size_t>(limits_.rows);
  std::span<const float> logits;
  for (size_t done = 0; done < tokens.size();) {
    const size_t n = std::min(batch, tokens.size() - done);
    const Slice slice{.sequence = &sequence,
                      .tokens = tokens.subspan(done, n),
                      .outputs = done + n == tokens.size() ? Outputs::kLast : Outputs::kNone,
                      .wanted = wanted};
    logits = run({&slice, 1});
    done += n;
    if (progress && !progress(static_cast<int64_t>(done), static_cast<int64_t>(tokens.size())) && done < tokens.size())
      return {};
  }
  return logits;
}

std::span<const float> Runner::decode(Sequence& sequence, int32_t token, const Wanted& wanted) {
  const Slice slice{.sequence = &sequence, .tokens = {&token, 1}, .wanted = wanted};
  return run({&slice, 1});
}

void Runner::score(Sequence& sequence, std::span<const int32_t> tokens,
                   const std::function<void(size_t index, std::span<const float> logits)>& visit) {
  const auto vocab = static_cast<size_t>(plan_.n_vocab);
  const auto batch = static_cast<size_t>(std::clamp<int64_t>(kScoredFloats / plan_.n_vocab, 1, limits_.rows));
  for (size_t done = 0; done < tokens.size(); done += batch) {
    const Slice slice{.sequence = &sequence,
                      .tokens = tokens.subspan(done, std::min(batch, tokens.size() - done)),
                      .outputs = Outputs::kAll};
    const std::span<const float> logits = run({&slice, 1});
    for (size_t i = 0; i < slice.tokens.size(); ++i) visit(done + i, logits.subspan(i * vocab, vocab));
  }
}

}  // namespace tern
