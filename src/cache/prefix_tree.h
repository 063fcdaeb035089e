// What sequences have left behind: a tree of prompts and answers over shared KV pages, with recurrent states where a
// model needs them, so that a request begins where an earlier one already was.
//
// A node is one page and the tokens it holds; nodes of whole pages have children. A sequence goes on writing into its
// own last page, behind the tokens the tree knows of, which nothing here reads: whoever begins in the middle of a page
// gets it as Prefix::partial and must copy it. A stateful tree (recurrent layers, or a kivi cache) can only be entered
// at a checkpoint, a position whose state is kept; what lies behind the last checkpoint is not kept either.
// No device is touched. One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cache/kv_pool.h"

namespace tern {

/// What a new sequence may begin with. One owner of every page and slot goes to whoever asked.
struct Prefix {
  int32_t tokens = 0;
  std::vector<int32_t> pages{};  // whole ones, with room for a copy of the partial one
  int32_t partial = -1;          // holds the last tokens % kPageTokens tokens
  int32_t state = -1;            // slot with the state behind `tokens`, of a stateful tree
};

class PrefixTree {
 public:
  /// The pools outlive the tree.
  PrefixTree(KvPool& kv, StatePool& states, bool stateful);
  /// Gives everything back.
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// The longest beginning of `tokens` that is here, used just now.
  Prefix match(std::span<const int32_t> tokens);
  /// Its length, nothing else.
  int32_t matched(std::span<const int32_t> tokens) const { return find(tokens).tokens; }
  /// Remembers that `pages` hold `tokens`, and of a stateful tree the slot with the state behind them, of which one
  /// owner goes to the tree. Where the tree holds the same tokens already, its own pages stay.
  void insert(std::span<const int32_t> tokens, std::span<const int32_t> pages, int32_t state = -1);

  /// Forgets the end that was used longest ago (one that no sequence shares, if there is one), its states with it.
  /// False when the tree is empty. Called until the pool has pages, it always succeeds in the end.
  bool evict_page();
  /// Forgets the state that was used longest ago of those that no sequence shares, and pages that were kept for it.
  /// False when there is none.
  bool evict_state();

  int32_t pages() const noexcept { return nodes_; }
  int32_t states() const noexcept { return static_cast<int32_t>(by_state_age_.size()); }

 private:
  struct Checkpoint {
    int32_t offset = 0;  // tokens of its node that it stands behind
    int32_t slot = -1;
    uint64_t used = 0;
  };
  struct Node {
    Node* parent = nullptr;
    std::vector<int32_t> tokens{};  // 1 to kPageTokens
    int32_t page = -1;
    uint64_t used = 0;
    std::vector<Checkpoint> checkpoints{};
    std::vector<std::unique_ptr<Node>> children{};
  };
  struct Found {
    Node* node = nullptr;
    int32_t offset = 0;  // tokens of the node that count
    int32_t tokens = 0;  // from the beginning
  };
  using Age = std::pair<uint64_t, Node*>;  // of a leaf, or of a checkpoint: times are unique

  Found find(std::span<const int32_t> tokens) const;
  Node* child_for(Node& node, std::span<const int32_t> tokens, int32_t page);
  void add_checkpoint(Node& node, int32_t offset, int32_t slot);
  void touch(Node* node);
  void touch_checkpoint(Node& node, Checkpoint& checkpoint);
  void remove(Node& leaf);
  void prune(Node* node);  // leaves of a stateful tree that lead to no checkpoint

  KvPool& kv_;
  StatePool& states_;
  const bool stateful_;
  Node root_;
  int32_t nodes_ = 0;
  uint64_t now_ = 0;
  std::set<Age> by_leaf_age_, by_state_age_;
};

}  // namespace tern
