// Merging neighbours by rank until nothing merges: the one loop that byte-level BPE and SPM share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tern::text {

/// Working memory of merge(); one a thread, reused from piece to piece.
struct MergeScratch {
  struct Candidate {
    uint32_t rank, left;  // left: position of the left symbol
    int32_t left_symbol, right_symbol, merged;
  };
  std::vector<uint32_t> previous, next;
  std::vector<Candidate> heap;
};

/// Which pairs of symbols merge, into what, and in which order. Symbols are ints >= 0.
class MergeTable {
 public:
  explicit MergeTable(size_t n_pairs);
  /// A lower rank merges first. Of two entries for one pair the first counts.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  /// Merges in place, the lowest rank first and the leftmost among equals. O(n log n) for any input.
  void merge(std::vector<int32_t>& symbols, MergeScratch& scratch) const;

 private:
  // Open addressing, two of three slots full.
  struct Slot {
    int32_t left = -1, right = -1;
    uint32_t rank = 0;
    int32_t merged = -1;
  };
  size_t slot_of(int32_t left, int32_t right) const noexcept;

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace tern::text
