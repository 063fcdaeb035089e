#include "text/tokenizer_merges.h"

#include <algorithm>

#include "base/error.h"

namespace tern::text {
namespace {

constexpr int32_t kGone = -1;  // the right half of a merge
constexpr uint32_t kNone = UINT32_MAX;

// For std::*_heap, which keep the largest in front.
bool later(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

MergeTable::MergeTable(size_t n_pairs) : slots_(n_pairs + n_pairs / 2 + 2) {}

size_t MergeTable::slot_of(int32_t left, int32_t right) const noexcept {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  const uint64_t hash = (key * 0x9E3779B97F4A7C15u) >> 32;
  auto i = static_cast<size_t>((hash * slots_.size()) >> 32);
  while (slots_[i].left != -1 && (slots_[i].left != left || slots_[i].right != right)) {
    if (++i == slots_.size()) i = 0;
  }
  return i;
}

void MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left != -1) return;
  CHECK(++used_ < slots_.size(), "{} pairs in {} slots", used_, slots_.size());
  slot = {left, right, rank, merged};
}

void MergeTable::merge(std::vector<int32_t>& symbols, MergeScratch& scratch) const {
  const auto n = static_cast<uint32_t>(symbols.size());
  if (n < 2) return;
  std::vector<uint32_t>& previous = scratch.previous;
  std::vector<uint32_t>& next = scratch.next;
  std::vector<MergeScratch::Candidate>& heap = scratch.heap;
  previous.resize(n);
  next.resize(n);
  heap.clear();

  const auto find = [&](uint32_t left, uint32_t right) {
    const Slot& slot = slots_[slot_of(symbols[left], symbols[right])];
    if (slot.left == -1) return false;
    heap.push_back({slot.rank, left, slot.left, slot.right, slot.merged});
    return true;
  };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == n ? kNone : i + 1;
    if (next[i] != kNone) find(i, next[i]);
  }
  std::make_heap(heap.begin(), heap.end(), later);

  const auto consider = [&](uint32_t left, uint32_t right) {
    if (left != kNone && right != kNone && find(left, right)) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const MergeScratch::Candidate c = heap.back();
    heap.pop_back();
    if (symbols[c.left] != c.left_symbol) continue;  // overtaken by another merge
    const uint32_t right = next[c.left];
    if (right == kNone || symbols[right] != c.right_symbol) continue;
    symbols[c.left] = c.merged;
    symbols[right] = kGone;
    next[c.left] = next[right];
    if (next[right] != kNone) previous[next[right]] = c.left;
    consider(previous[c.left], c.left);
    consider(c.left, next[c.left]);
  }
  std::erase(symbols, kGone);
}

}  // namespace tern::text
