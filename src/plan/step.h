// A Step: everything that varies from one iteration to the next. Plain data at a fixed address; the engine fills it, a
// backend runs a Program against it without allocating.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tern {

inline constexpr int32_t kPageTokens = 64;  // tokens in one KV page
inline constexpr int32_t kZeroState = -1;   // SeqRows::state_in of a sequence that starts here

/// Consecutive rows of the batch that belong to one sequence, at consecutive positions.
struct SeqRows {
  int32_t first_row = 0, n_rows = 0;
  int32_t position = 0;  // of first_row; the cache already holds positions [0, position)
  int32_t first_page =
      0;  // index into Step::pages of the sequence's page table: token p lives in pages[first_page + p/64]
  int32_t n_pages = 0;                           // covers position + n_rows tokens
  int32_t state_in = kZeroState, state_out = 0;  // recurrent-state slots read and written (may be equal)
};

inline constexpr int32_t kMostCandidates = 256;  // that an output row can be asked for

/// How one of an output row's best candidates is drawn (backend/draw.h): top-p, then min-p, then temperature, as
/// llama.cpp's samplers in their default order.
struct Draw {
  double uniform = 0;        // of [0, 1), the caller's: the draw itself knows no chance
  double least = -INFINITY;  // logits of candidates that far from the best one's are drawn; 0 or less
  float top_p = 1;           // the fewest best whose probabilities sum to it are drawn; 1: all
  float temperature = 1;     // greater than 0
};

/// What is wanted of an output row: its logits, or only the best of them, or one of these. Plain data: devices read it.
struct Wanted {
  int32_t best = 0;      // candidates in place of the logits, up to kMostCandidates; 0: the logits
  bool log_sum = false;  // beside the candidates: log(sum(exp(logits))) of all tokens
  bool token = false;    // in place of the candidates: the one of them that `draw` draws; with best = 1 the best
  Draw draw{};
};
inline constexpr Wanted kBestToken{.best = 1, .token = true};  // the least that can be asked for

struct Step {
  std::vector<int32_t> tokens;     // [rows]
  std::vector<SeqRows> seqs;       // in row order, covering all rows
  std::vector<int32_t> pages;      // page tables of all sequences
  std::vector<int32_t> out_rows;   // rows whose results are wanted, ascending
  std::vector<Wanted> wanted;      // of each of them; empty: the logits of all
  std::span<const float> input{};  // of a plan that begins with an InputArgs: all rows of its result

  int32_t rows() const { return static_cast<int32_t>(tokens.size()); }
  void clear() {
    tokens.clear();
    seqs.clear();
    pages.clear();
    out_rows.clear();
    wanted.clear();
  }
};

}  // namespace tern
