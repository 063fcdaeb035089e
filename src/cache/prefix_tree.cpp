#include "cache/prefix_tree.h"

#include <algorithm>

#include "base/error.h"

namespace tern {
namespace {

constexpr auto kPage = static_cast<size_t>(kPageTokens);

/// Tokens that both begin with.
size_t shared_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

PrefixTree::PrefixTree(KvPool& kv, StatePool& states, bool stateful) : kv_(kv), states_(states), stateful_(stateful) {}

PrefixTree::~PrefixTree() {
  while (evict_page()) {
  }
}

PrefixTree::Found PrefixTree::find(std::span<const int32_t> tokens) const {
  Found best;
  const Node* node = &root_;
  for (size_t at = 0; node && at < tokens.size(); at += kPage) {
    const Node* next = nullptr;
    for (const auto& child : node->children) {
      const size_t shared = shared_tokens(child->tokens, tokens.subspan(at));
      if (shared == kPage) next = child.get();
      size_t usable = stateful_ ? 0 : shared;
      for (const Checkpoint& c : child->checkpoints)
        if (static_cast<size_t>(c.offset) <= shared) usable = std::max(usable, static_cast<size_t>(c.offset));
      if (usable > 0 && static_cast<int32_t>(at + usable) > best.tokens)
        best = {child.get(), static_cast<int32_t>(usable), static_cast<int32_t>(at + usable)};
    }
    node = next;
  }
  return best;
}

Prefix PrefixTree::match(std::span<const int32_t> tokens) {
  const Found found = find(tokens);
  Prefix prefix{.tokens = found.tokens};
  if (!found.node) return prefix;
  prefix.pages.reserve(static_cast<size_t>(KvPool::pages_for(found.tokens)));  // nothing is shared without an owner
  for (Node* node = found.node; node != &root_; node = node->parent) {
    kv_.share(node->page);
    if (node == found.node && found.offset < kPageTokens) {
      prefix.partial = node->page;
    } else {
      prefix.pages.push_back(node->page);
    }
  }
  std::reverse(prefix.pages.begin(), prefix.pages.end());
  for (Checkpoint& c : found.node->checkpoints) {
    if (c.offset != found.offset) continue;
    states_.share(c.slot);
    prefix.state = c.slot;
    touch_checkpoint(*found.node, c);
  }
  touch(found.node);
  return prefix;
}

void PrefixTree::insert(std::span<const int32_t> tokens, std::span<const int32_t> pages, int32_t state) {
  CHECK(stateful_ == (state >= 0), "state {}", state);
  CHECK(pages.size() >= static_cast<size_t>(KvPool::pages_for(static_cast<int64_t>(tokens.size()))));
  Node* node = &root_;
  for (size_t at = 0; at < tokens.size(); at += kPage)
    node = child_for(*node, tokens.subspan(at, std::min(kPage, tokens.size() - at)), pages[at / kPage]);
  if (node == &root_) {
    if (stateful_) states_.release(state);
    return;
  }
  if (stateful_) add_checkpoint(*node, static_cast<int32_t>((tokens.size() - 1) % kPage + 1), state);
  touch(node);
}

/// The child that holds `tokens`; one that holds their beginning goes on with `page`.
PrefixTree::Node* PrefixTree::child_for(Node& node, std::span<const int32_t> tokens, int32_t page) {
  Node* shorter = nullptr;
  for (const auto& child : node.children) {
    const size_t shared = shared_tokens(child->tokens, tokens);
    if (shared == tokens.size()) return child.get();
    if (shared == child->tokens.size()) shorter = child.get();
  }
  kv_.share(page);
  if (shorter) {
    kv_.release(shorter->page);
    shorter->page = page;
    shorter->tokens.assign(tokens.begin(), tokens.end());
    return shorter;
  }
  if (node.children.empty() && &node != &root_) by_leaf_age_.erase({node.used, &node});
  Node& made = *node.children.emplace_back(std::make_unique<Node>());
  made.parent = &node;
  made.tokens.assign(tokens.begin(), tokens.end());
  made.page = page;
  made.used = ++now_;
  by_leaf_age_.insert({made.used, &made});
  ++nodes_;
  return &made;
}

void PrefixTree::add_checkpoint(Node& node, int32_t offset, int32_t slot) {
  for (Checkpoint& c : node.checkpoints) {
    if (c.offset != offset) continue;
    states_.release(slot);
    return touch_checkpoint(node, c);
  }
  node.checkpoints.push_back({.offset = offset, .slot = slot, .used = ++now_});
  by_state_age_.insert({now_, &node});
}

/// A beginning is used whenever something behind it is.
void PrefixTree::touch(Node* node) {
  for (; node != &root_; node = node->parent) {
    const bool leaf = by_leaf_age_.erase({node->used, node}) > 0;
    node->used = ++now_;
    if (leaf) by_leaf_age_.insert({node->used, node});
  }
}

void PrefixTree::touch_checkpoint(Node& node, Checkpoint& checkpoint) {
  by_state_age_.erase({checkpoint.used, &node});
  checkpoint.used = ++now_;
  by_state_age_.insert({checkpoint.used, &node});
}

bool PrefixTree::evict_page() {
  if (by_leaf_age_.empty()) return false;
  const auto unshared = std::find_if(by_leaf_age_.begin(), by_leaf_age_.end(),
                                     [&](const Age& age) { return kv_.owners(age.second->page) == 1; });
  Node* leaf = (unshared != by_leaf_age_.end() ? unshared : by_leaf_age_.begin())->second;
  Node* parent = leaf->parent;
  remove(*leaf);
  prune(parent);
  return true;
}

bool PrefixTree::evict_state() {
  for (const auto& [used, node] : by_state_age_) {
    const auto c = std::find_if(node->checkpoints.begin(), node->checkpoints.end(),
                                [time = used](const Checkpoint& candidate) { return candidate.used == time; });
    if (states_.owners(c->slot) > 1) continue;
    Node* const holder = node;
    states_.release(c->slot);
    holder->checkpoints.erase(c);
    by_state_age_.erase({used, holder});
    prune(holder);
    return true;
  }
  return false;
}

void PrefixTree::remove(Node& leaf) {
  for (const Checkpoint& c : leaf.checkpoints) {
    states_.release(c.slot);
    by_state_age_.erase({c.used, &leaf});
  }
  kv_.release(leaf.page);
  by_leaf_age_.erase({leaf.used, &leaf});
  --nodes_;
  Node& parent = *leaf.parent;
  std::erase_if(parent.children, [&](const auto& child) { return child.get() == &leaf; });
  if (parent.children.empty() && &parent != &root_) by_leaf_age_.insert({parent.used, &parent});
}

void PrefixTree::prune(Node* node) {
  while (stateful_ && node != &root_ && node->children.empty() && node->checkpoints.empty()) {
    Node* parent = node->parent;
    remove(*node);
    node = parent;
  }
}

}  // namespace tern
