#include "text/grammar.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "text/grammar_rules.h"

namespace tern::text {
namespace {

using Rules = Grammar::Rules;

constexpr size_t kMostBytes = 16 << 20;    // of an automaton; JSON needs a small part of it
constexpr size_t kKeptBytes = 4 << 20;     // over masks, beyond what the place in the text itself needs
constexpr size_t kMostOpen = 1 << 17;      // positions that one byte may lead to
constexpr size_t kKeptMasks = 256;         // 19 KB each for 150k tokens
constexpr int64_t kMaxSteps = 20'000'000;  // of one call; a JSON mask takes thousands

/// A position: in a rule, and where to go on when the rule has matched. Sorted lists of them are both kinds of node:
/// a set of positions is a state of the text, a set of returns is a shared stack.
struct Item {
  int32_t state = 0, stack = 0;
  auto operator<=>(const Item&) const = default;
};
using Items = std::vector<Item>;

struct ItemsHash {
  size_t operator()(const Items& items) const noexcept {
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (const Item& i : items) {
      h ^= (static_cast<uint64_t>(static_cast<uint32_t>(i.state)) << 32) | static_cast<uint32_t>(i.stack);
      h *= 0xFF51AFD7ED558CCDu;
      h ^= h >> 32;
    }
    return static_cast<size_t>(h);
  }
};

/// Equal lists get equal numbers, from 0.
class Interner {
 public:
  int32_t operator()(const Items& items) {  // copied, so that nothing kept has room to spare
    const auto [it, added] = ids_.try_emplace(items, static_cast<int32_t>(lists_.size()));
    if (added) lists_.push_back(&it->first), bytes_ += it->first.size() * sizeof(Item) + kListBytes;
    return it->second;
  }
  const Items& operator[](int32_t id) const { return *lists_[static_cast<size_t>(id)]; }
  /// What it holds, about.
  size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr size_t kListBytes = 80;  // a node of the map

  std::unordered_map<Items, int32_t, ItemsHash> ids_;
  size_t bytes_ = 0;
  std::vector<const Items*> lists_;  // keys of a map stay where they are
};

void sort_unique(Items& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

/// A pushdown automaton made deterministic as far as texts lead: sets of positions and their successors by class of
/// byte, each found once. Positions that wait for the same rule at the same byte share one stack, so ambiguous grammars
/// grow with the text, not exponentially.
class Automaton {
 public:
  static constexpr int32_t kDead = -1;

  explicit Automaton(const Rules& rules) : rules_(&rules), stack_of_rule_(rules.starts.size(), 0) {
    const int32_t bottom = stacks_({{Rules::kDone, 0}});
    close({{rules.starts[static_cast<size_t>(rules.root)], bottom}});
    start_ = add_set();
  }

  int32_t start() const noexcept { return start_; }
  size_t bytes() const noexcept {
    return stacks_.bytes() + sets_.bytes() + next_.size() * (static_cast<size_t>(rules_->n_classes) * sizeof(int32_t));
  }
  bool complete(int32_t set) const { return sets_[set].front().state == Rules::kDone; }
  bool finished(int32_t set) const { return complete(set) && sets_[set].size() == 1; }
  void reset_budget() noexcept { steps_ = 0; }

  int32_t step(int32_t set, uint8_t byte) {
    const uint8_t c = rules_->byte_class[byte];
    const int32_t known = next_[static_cast<size_t>(set)][c];
    return known != kUnknown ? known : find_step(set, c);
  }

  /// The same set in an automaton that knows nothing else.
  int32_t copy_set(const Automaton& from, int32_t set) {
    std::unordered_map<int32_t, int32_t> ids{{0, 0}};
    std::vector<int32_t> needed, open;
    const auto need = [&](const Items& items) {
      for (const Item& i : items)
        if (ids.try_emplace(i.stack, -1).second) needed.push_back(i.stack), open.push_back(i.stack);
    };
    need(from.sets_[set]);
    while (!open.empty()) {
      const int32_t stack = open.back();
      open.pop_back();
      need(from.stacks_[stack]);
    }
    const auto translated = [&](Items items) {
      for (Item& i : items) i.stack = ids[i.stack];
      sort_unique(items);
      return items;
    };
    std::sort(needed.begin(), needed.end());  // a stack refers to earlier ones
    for (const int32_t stack : needed) ids[stack] = stacks_(translated(from.stacks_[stack]));
    closed_ = translated(from.sets_[set]);
    return add_set();
  }

 private:
  static constexpr int32_t kUnknown = -2;

  int32_t add_set() {
    if (closed_.empty()) return kDead;
    if (bytes() > kMostBytes) too_intricate();
    const int32_t id = sets_(closed_);
    if (static_cast<size_t>(id) == next_.size()) next_.emplace_back(static_cast<size_t>(rules_->n_classes), kUnknown);
    return id;
  }

  int32_t find_step(int32_t set, uint8_t c) {
    Items moved;
    for (const Item& item : sets_[set])
      for (const Rules::ByteEdge& edge : rules_->states[static_cast<size_t>(item.state)].bytes)
        if (edge.low <= c && c <= edge.high) moved.push_back({edge.to, item.stack});
    close(std::move(moved));
    const int32_t to = add_set();
    next_[static_cast<size_t>(set)][c] = to;
    return to;
  }

  [[noreturn]] static void too_intricate() {
    fail(ErrorCode::kUnsupported,
         "the grammar is too ambiguous to be enforced here: its positions take more than {} MB or {} steps a token",
         kMostBytes >> 20, kMaxSteps);
  }

  /// Into closed_: all positions reached from `open` without a byte that can read one, and kDone.
  void close(Items open) {
    closed_.clear();
    seen_.clear();
    const auto push = [&](int32_t state, int32_t stack) {
      const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32) | static_cast<uint32_t>(stack);
      if (seen_.insert(key).second) open.push_back({state, stack});
    };
    while (!open.empty()) {
      const auto [index, stack] = open.back();
      open.pop_back();
      if (++steps_ > kMaxSteps || seen_.size() > kMostOpen) too_intricate();
      const Rules::State& state = rules_->states[static_cast<size_t>(index)];
      if (index == Rules::kDone || !state.bytes.empty()) closed_.push_back({index, stack});
      for (const int32_t to : state.empty) push(to, stack);
      for (const Rules::Call& call : state.calls) {
        const int32_t called = new_stack(call.rule);
        new_stacks_[static_cast<size_t>(-1 - called)].push_back({call.to, stack});
        push(rules_->starts[static_cast<size_t>(call.rule)], called);
        if (rules_->nullable[static_cast<size_t>(call.rule)]) push(call.to, stack);
      }
      // A rule that began at this very byte and has already ended matched nothing: its callers went on by themselves.
      if (state.final && stack >= 0)
        for (const Item& back : stacks_[stack]) push(back.state, back.stack);
    }
    for (Item& item : closed_) item.stack = settled(item.stack);
    sort_unique(closed_);
    for (const int32_t rule : called_rules_) stack_of_rule_[static_cast<size_t>(rule)] = 0;
    called_rules_.clear();
    new_stacks_.clear();
  }

  /// The stack, below zero, of rules that begin at this byte: its returns are still being collected.
  int32_t new_stack(int32_t rule) {
    int32_t& stack = stack_of_rule_[static_cast<size_t>(rule)];
    if (stack == 0) {
      new_stacks_.emplace_back();
      called_rules_.push_back(rule);
      stack = -static_cast<int32_t>(new_stacks_.size());
    }
    return stack;
  }

  /// A collected stack under its final number. A return to where nothing follows is a return to the caller's callers:
  /// lists written by right recursion do not grow the stack. Ends because no rule calls itself at its beginning.
  int32_t settled(int32_t stack) {
    if (stack >= 0) return stack;
    Items returns = std::move(new_stacks_[static_cast<size_t>(-1 - stack)]);
    if (returns.size() == 1 && returns[0].state == kSettled) {
      const int32_t id = returns[0].stack;
      new_stacks_[static_cast<size_t>(-1 - stack)] = std::move(returns);
      return id;
    }
    Items out;
    for (const Item& back : returns) {
      const int32_t below = settled(back.stack);
      if (rules_->states[static_cast<size_t>(back.state)].tail) {
        out.insert(out.end(), stacks_[below].begin(), stacks_[below].end());
      } else {
        out.push_back({back.state, below});
      }
    }
    steps_ += static_cast<int64_t>(out.size());
    sort_unique(out);
    const int32_t id = stacks_(out);
    new_stacks_[static_cast<size_t>(-1 - stack)] = {{kSettled, id}};
    return id;
  }

  static constexpr int32_t kSettled = -1;

  const Rules* rules_;
  Interner stacks_, sets_;
  std::vector<std::vector<int32_t>> next_;  // [set][class]
  int32_t start_ = kDead;
  int64_t steps_ = 0;
  // Of close(), kept to allocate little.
  Items closed_;
  std::unordered_set<uint64_t> seen_;
  std::vector<Items> new_stacks_;
  std::vector<int32_t> stack_of_rule_, called_rules_;
};

}  // namespace

Grammar::Grammar(std::unique_ptr<const Rules> rules) : rules_(std::move(rules)) {}
Grammar::~Grammar() = default;

/// A trie in preorder: one pass over an array visits it, and the bytes below a dead one are skipped at once.
struct TokenTable::Impl {
  struct Node {
    uint32_t depth = 0;   // of the root: 0
    uint32_t behind = 0;  // the first node that is not below this one
    uint32_t tokens = 0;  // those that end here: ids[tokens] up to those of the next node
    uint8_t byte = 0;
  };
  const Tokenizer* tokenizer = nullptr;
  std::vector<Node> nodes;  // and one behind the last
  std::vector<int32_t> ids;
  std::vector<int32_t> ends;  // tokens that end a generation
  uint32_t depth = 0;
};

namespace {

/// What a grammar may allow for its bytes. The mark of tokens is no part of any text.
bool is_text(std::string_view piece) {
  return !piece.empty() && piece.find(static_cast<char>(kTokenMark)) == piece.npos;
}

}  // namespace

TokenTable::TokenTable(const Tokenizer& tokenizer) {
  auto impl = std::make_unique<Impl>();
  impl->tokenizer = &tokenizer;
  std::vector<std::pair<std::string, int32_t>> sorted;
  for (int32_t id = 0; id < tokenizer.n_vocab(); ++id) {
    if (tokenizer.is_end_of_generation(id)) {
      impl->ends.push_back(id);
    } else if (std::string piece = tokenizer.piece(id); is_text(piece)) {
      sorted.emplace_back(std::move(piece), id);
    }
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<uint32_t> path;  // nodes above the next, by depth
  const auto close_below = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      impl->nodes[path.back()].behind = static_cast<uint32_t>(impl->nodes.size());
  };
  impl->nodes.push_back({});
  path.push_back(0);
  std::string_view before;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string_view text = sorted[i].first;
    impl->ids.push_back(sorted[i].second);
    const auto split = std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first;
    const auto shared = static_cast<size_t>(split - text.begin());
    close_below(shared + 1);
    for (size_t d = shared; d < text.size(); ++d) {
      path.push_back(static_cast<uint32_t>(impl->nodes.size()));
      impl->nodes.push_back({.depth = static_cast<uint32_t>(d + 1),
                             .tokens = static_cast<uint32_t>(i),
                             .byte = static_cast<uint8_t>(text[d])});
    }
    impl->depth = std::max(impl->depth, static_cast<uint32_t>(text.size()));
    before = text;
  }
  close_below(0);
  impl->nodes.push_back({.tokens = static_cast<uint32_t>(impl->ids.size())});
  impl_ = std::move(impl);
}
TokenTable::~TokenTable() = default;

struct GrammarState::Impl {
  using Bits = std::vector<uint64_t>;

  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const TokenTable> table;
  Automaton automaton;
  int32_t set = 0;
  bool ended = false;
  size_t needed_bytes = 0;                                    // of an automaton that knows no other place
  std::unordered_map<int32_t, Bits> masks;                    // by set
  std::vector<int32_t> path;                                  // sets above a node of the trie, by depth
  std::vector<std::pair<int32_t, const std::string*>> named;  // tokens that the grammar names

  Impl(std::shared_ptr<const Grammar> g, std::shared_ptr<const TokenTable> t)
      : grammar(std::move(g)),
        table(std::move(t)),
        automaton(grammar->rules()),
        set(automaton.start()),
        path(tokens().depth + 1) {
    for (const std::string& name : grammar->rules().tokens) named.emplace_back(id_of(name), &name);
  }

  /// Of "<name>", or "<[id]>".
  int32_t id_of(const std::string& name) const {
    const Tokenizer& tokenizer = *tokens().tokenizer;
    if (const auto found = tokenizer.find(name)) return *found;
    int32_t id = -1;
    if (name.starts_with("<[") && name.ends_with("]>")) {
      const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size() - 2, id);
      if (error != std::errc() || end != name.data() + name.size() - 2) id = -1;
    }
    if (id < 0 || id >= tokenizer.n_vocab())
      fail(ErrorCode::kInvalidArgument, "the grammar names the token {}, which the vocabulary does not have", name);
    return id;
  }

  int32_t after_text(int32_t from, std::string_view text) {
    for (size_t i = 0; i < text.size() && from != Automaton::kDead; ++i)
      from = automaton.step(from, static_cast<uint8_t>(text[i]));
    return from;
  }
  int32_t after_name(const std::string& name) { return after_text(automaton.step(set, kTokenMark), name); }

  const TokenTable::Impl& tokens() const { return table->impl(); }

  void tidy() {
    automaton.reset_budget();
    if (automaton.bytes() <= 2 * needed_bytes + kKeptBytes) return;
    Automaton fresh(grammar->rules());
    set = fresh.copy_set(automaton, set);
    automaton = std::move(fresh);
    needed_bytes = automaton.bytes();
    masks.clear();
  }

  const Bits& mask_of_set() {
    tidy();
    if (const auto it = masks.find(set); it != masks.end()) return it->second;
    if (masks.size() >= kKeptMasks) masks.clear();
    Bits bits((static_cast<size_t>(tokens().tokenizer->n_vocab()) + 63) / 64, 0);
    const auto allow = [&](int32_t id) { bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); };
    const std::vector<TokenTable::Impl::Node>& nodes = tokens().nodes;
    path[0] = set;
    for (size_t i = 1; i + 1 < nodes.size();) {
      const TokenTable::Impl::Node& node = nodes[i];
      const int32_t to = automaton.step(path[node.depth - 1], node.byte);
      if (to == Automaton::kDead) {
        i = node.behind;
        continue;
      }
      path[node.depth] = to;
      ++i;
      for (uint32_t t = node.tokens; t < nodes[i].tokens; ++t) allow(tokens().ids[t]);
    }
    if (automaton.complete(set))
      for (const int32_t id : tokens().ends) allow(id);
    for (const auto& [id, name] : named)
      if (after_name(*name) != Automaton::kDead) allow(id);
    return masks.emplace(set, std::move(bits)).first->second;
  }

  /// Where a token leads; kDead when it may not follow.
  int32_t after(int32_t token) {
    const Tokenizer& tokenizer = *tokens().tokenizer;
    if (ended || token < 0 || token >= tokenizer.n_vocab()) return Automaton::kDead;
    for (const auto& [id, name] : named) {
      const int32_t to = id == token ? after_name(*name) : Automaton::kDead;
      if (to != Automaton::kDead) return to;  // though its text may follow as well
    }
    if (tokenizer.is_end_of_generation(token)) return automaton.complete(set) ? set : Automaton::kDead;
    const std::string& text = tokenizer.piece(token);
    return is_text(text) ? after_text(set, text) : Automaton::kDead;
  }
};

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTable> tokens)
    : impl_(std::make_unique<Impl>(std::move(grammar), std::move(tokens))) {}
GrammarState::~GrammarState() = default;
GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState& GrammarState::operator=(GrammarState&&) noexcept = default;

void GrammarState::mask(std::span<float> logits) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  if (impl_->ended) return std::fill(logits.begin(), logits.end(), kNever);
  const Impl::Bits& bits = impl_->mask_of_set();
  for (size_t word = 0; word * 64 < logits.size(); ++word) {
    const uint64_t allowed = word < bits.size() ? bits[word] : 0;
    if (allowed == ~uint64_t{0}) continue;
    const size_t end = std::min(logits.size(), word * 64 + 64);
    for (size_t i = word * 64; i < end; ++i)
      if ((allowed >> (i % 64) & 1) == 0) logits[i] = kNever;
  }
}

void GrammarState::mask_ends(std::span<float> logits) const {
  for (const int32_t id : impl_->tokens().ends)
    logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
}

bool GrammarState::allows(int32_t token) const {
  impl_->tidy();
  return impl_->after(token) != Automaton::kDead;
}

void GrammarState::accept(int32_t token) {
  impl_->tidy();
  const int32_t to = impl_->after(token);
  if (to == Automaton::kDead)
    fail(ErrorCode::kInvalidArgument, "token {} cannot follow in the grammar of this answer", token);
  impl_->set = to;
  impl_->ended = impl_->tokens().tokenizer->is_end_of_generation(token);
}

bool GrammarState::complete() const {
  return impl_->automaton.complete(impl_->set);
}
bool GrammarState::finished() const {
  return impl_->ended || impl_->automaton.finished(impl_->set);
}

}  // namespace tern::text
