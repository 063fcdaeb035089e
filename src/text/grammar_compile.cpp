// Expressions to automata, and what is checked once: rules that match nothing, left recursion, size.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "text/grammar_rules.h"

namespace tern::text {
namespace {

using Rules = Grammar::Rules;
using Kind = Expression::Kind;

constexpr size_t kMaxStates = 1 << 17;  // some 100 bytes each
constexpr int32_t kMaxCallDepth = 1000;

class Compiler {
 public:
  explicit Compiler(const std::vector<NamedRule>& rules) {
    for (const NamedRule& rule : rules) {
      names_.push_back(rule.name);
      out_->starts.push_back(add_state());
    }
    for (size_t i = 0; i < rules.size(); ++i) {
      current_ = static_cast<int32_t>(i);
      emit_rule(rules[i].body, current_);
    }
  }

  std::unique_ptr<const Rules> finish(int32_t root) {
    out_->root = root;
    out_->nullable = starts_of(reach_end(false));
    remove_dead_ends();
    if (!productive_[static_cast<size_t>(root)])
      fail(ErrorCode::kInvalidArgument,
           "no text matches the rule '{}' of the grammar: every way through it calls itself",
           names_[static_cast<size_t>(root)]);
    refuse_left_recursion();
    for (Rules::State& state : out_->states) state.tail = is_tail(state);
    find_byte_classes();
    return std::move(out_);
  }

 private:
  Rules::State& state(int32_t index) { return out_->states[static_cast<size_t>(index)]; }

  int32_t add_state() {
    if (out_->states.size() >= kMaxStates)
      fail(
          ErrorCode::kUnsupported,
          "the grammar needs more than {} states, at rule '{}': use smaller repetitions ({{m,n}}, maxLength, maxItems)",
          kMaxStates, current_ >= 0 ? names_[static_cast<size_t>(current_)] : "");
    out_->states.emplace_back();
    return static_cast<int32_t>(out_->states.size() - 1);
  }

  void emit_rule(const Expression& body, int32_t rule) {
    const int32_t end = add_state();
    state(end).final = true;
    emit(body, out_->starts[static_cast<size_t>(rule)], end);
  }

  void emit(const Expression& e, int32_t from, int32_t to) {
    switch (e.kind) {
      case Kind::kChars:
        for (const CharRange& range : e.ranges) emit_chars(range, from, to);
        break;
      case Kind::kRule:
        state(from).calls.push_back({e.rule, to});
        break;
      case Kind::kChoice:
        for (const Expression& part : e.parts) emit(part, from, to);
        break;
      case Kind::kSequence: {
        int32_t at = from;
        for (size_t i = 0; i + 1 < e.parts.size(); ++i) {
          const int32_t next = add_state();
          emit(e.parts[i], at, next);
          at = next;
        }
        if (e.parts.empty()) {
          state(at).empty.push_back(to);
        } else {
          emit(e.parts.back(), at, to);
        }
        break;
      }
      case Kind::kRepeat:
        emit_repeat(e, from, to);
        break;
      case Kind::kToken:
        emit_token(e.token, from, to);
        break;
    }
  }

  void emit_repeat(const Expression& e, int32_t from, int32_t to) {
    // (x?){m,n} is x{0,n}: a chain of states that may all be skipped would make every step visit all of them.
    const Expression* body = e.parts.data();
    int32_t min = e.min;
    while (body->kind == Kind::kRepeat && body->min == 0 && body->max == 1) {
      body = body->parts.data();
      min = 0;
    }
    Expression call;
    if (std::max(min, e.max) > 8 && body->kind != Kind::kRule) {  // copies of a call are one state each
      call.kind = Kind::kRule;
      call.rule = static_cast<int32_t>(out_->starts.size());
      names_.push_back(names_[static_cast<size_t>(current_)]);
      out_->starts.push_back(add_state());
      emit_rule(*body, call.rule);
      body = &call;
    }
    int32_t at = from;
    const auto once_more = [&] {
      const int32_t next = add_state();
      emit(*body, at, next);
      at = next;
    };
    for (int32_t i = 0; i < min; ++i) once_more();
    if (e.max < 0) {
      const int32_t loop = add_state();
      state(at).empty.push_back(loop);
      emit(*body, loop, loop);
      at = loop;
    } else {
      for (int32_t i = min; i < e.max; ++i) {
        state(at).empty.push_back(to);
        once_more();
      }
    }
    state(at).empty.push_back(to);
  }

  void emit_token(const std::string& name, int32_t from, int32_t to) {
    if (std::find(out_->tokens.begin(), out_->tokens.end(), name) == out_->tokens.end()) out_->tokens.push_back(name);
    int32_t at = from;
    const auto read = [&](uint8_t byte, int32_t next) {
      emit_byte(byte, byte, at, next);
      at = next;
    };
    read(kTokenMark, add_state());
    for (size_t i = 0; i < name.size(); ++i)
      read(static_cast<uint8_t>(name[i]), i + 1 < name.size() ? add_state() : to);
  }

  void emit_byte(uint8_t low, uint8_t high, int32_t from, int32_t to) { state(from).bytes.push_back({low, high, to}); }

  /// Cuts a range of code points where the length of UTF-8 changes, without surrogates.
  void emit_chars(const CharRange& range, int32_t from, int32_t to) {
    constexpr CharRange kCuts[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kLastCodePoint}};
    constexpr int32_t kTails[] = {0, 1, 2, 2, 3};
    for (size_t i = 0; i < std::size(kCuts); ++i) {
      const char32_t low = std::max(range.low, kCuts[i].low), high = std::min(range.high, kCuts[i].high);
      if (low <= high) emit_utf8(low, high, kTails[i], from, to);
    }
  }

  /// Code points of one length with `tail` continuation bytes.
  void emit_utf8(char32_t low, char32_t high, int32_t tail, int32_t from, int32_t to) {
    constexpr uint8_t kLeads[] = {0x00, 0xC0, 0xE0, 0xF0};
    emit_bits(low, high, tail, kLeads[tail], from, to);
  }

  /// Bits above the `tail` times six are this byte's, marked with `lead`.
  void emit_bits(char32_t low, char32_t high, int32_t tail, uint8_t lead, int32_t from, int32_t to) {
    const int32_t shift = 6 * tail;
    const auto byte = [&](char32_t c) { return static_cast<uint8_t>(lead | (c >> shift)); };
    if (tail == 0) return emit_byte(byte(low), byte(high), from, to);
    const char32_t all = (char32_t{1} << shift) - 1;
    const auto beyond = [&](uint8_t first, uint8_t last, char32_t rest_low, char32_t rest_high) {
      const int32_t next = add_state();
      emit_byte(first, last, from, next);
      emit_bits(rest_low, rest_high, tail - 1, 0x80, next, to);
    };
    if (byte(low) == byte(high)) return beyond(byte(low), byte(low), low & all, high & all);
    uint8_t first = byte(low), last = byte(high);
    if ((low & all) != 0) beyond(first, first, low & all, all), ++first;
    if ((high & all) != all) beyond(last, last, 0, high & all), --last;
    if (first <= last) beyond(first, last, 0, all);
  }

  static size_t index(int32_t i) { return static_cast<size_t>(i); }

  /// States from which the end of their rule is reached, and so the rules (by their starts) that have an end. Without
  /// `bytes`: reached without reading any.
  std::vector<bool> reach_end(bool bytes) const {
    struct Site {
      int32_t from, to, rule;
    };
    const size_t n = out_->states.size();
    std::vector<std::vector<int32_t>> before(n), returning(n);  // by state; the latter are indices of sites
    std::vector<std::vector<int32_t>> calling(n);               // by the start of a rule: indices of sites
    std::vector<Site> sites;
    std::vector<int32_t> open;
    std::vector<bool> reached(n, false);
    const auto reach = [&](int32_t s) {
      if (!reached[index(s)]) reached[index(s)] = true, open.push_back(s);
    };
    for (size_t i = 0; i < n; ++i) {
      const auto from = static_cast<int32_t>(i);
      const Rules::State& s = out_->states[i];
      if (s.final) reach(from);
      for (const int32_t to : s.empty) before[index(to)].push_back(from);
      for (const Rules::Call& call : s.calls) {
        returning[index(call.to)].push_back(static_cast<int32_t>(sites.size()));
        calling[index(out_->starts[index(call.rule)])].push_back(static_cast<int32_t>(sites.size()));
        sites.push_back({from, call.to, call.rule});
      }
      if (bytes)
        for (const Rules::ByteEdge& edge : s.bytes) before[index(edge.to)].push_back(from);
    }
    while (!open.empty()) {
      const int32_t s = open.back();
      open.pop_back();
      for (const int32_t from : before[index(s)]) reach(from);
      for (const int32_t i : returning[index(s)])
        if (reached[index(out_->starts[index(sites[index(i)].rule)])]) reach(sites[index(i)].from);
      for (const int32_t i : calling[index(s)])
        if (reached[index(sites[index(i)].to)]) reach(sites[index(i)].from);
    }
    return reached;
  }

  std::vector<bool> starts_of(const std::vector<bool>& reached) const {
    std::vector<bool> out;
    for (const int32_t start : out_->starts) out.push_back(reached[index(start)]);
    return out;
  }

  /// Drops what can never become a sentence, so that whatever is still open can be completed.
  void remove_dead_ends() {
    const std::vector<bool> reaches = reach_end(true);
    productive_ = starts_of(reaches);
    for (Rules::State& s : out_->states) {
      std::erase_if(s.bytes, [&](const Rules::ByteEdge& e) { return !reaches[index(e.to)]; });
      std::erase_if(s.empty, [&](int32_t to) { return !reaches[index(to)]; });
      std::erase_if(s.calls,
                    [&](const Rules::Call& c) { return !reaches[index(c.to)] || !productive_[index(c.rule)]; });
    }
  }

  /// Rules that `rule` calls before it has read a byte.
  std::vector<int32_t> first_calls(int32_t rule) {
    std::vector<int32_t> out, open{out_->starts[index(rule)]};
    std::unordered_set<int32_t> seen{open[0]};
    while (!open.empty()) {
      const Rules::State& s = state(open.back());
      open.pop_back();
      const auto visit = [&](int32_t to) {
        if (seen.insert(to).second) open.push_back(to);
      };
      for (const int32_t to : s.empty) visit(to);
      for (const Rules::Call& call : s.calls) {
        out.push_back(call.rule);
        if (out_->nullable[index(call.rule)]) visit(call.to);
      }
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  void refuse_left_recursion() {
    std::vector<uint8_t> mark(out_->starts.size(), 0);  // 1: being visited, 2: done
    for (size_t i = 0; i < mark.size(); ++i) visit_first_calls(static_cast<int32_t>(i), mark, 0);
  }

  void visit_first_calls(int32_t rule, std::vector<uint8_t>& mark, int32_t depth) {
    if (mark[index(rule)] == 2) return;
    if (mark[index(rule)] == 1)
      fail(ErrorCode::kInvalidArgument,
           "the rule '{}' of the grammar is left-recursive: it calls itself before it has matched a character. Write a "
           "repetition instead (x ::= y y*)",
           names_[index(rule)]);
    if (depth > kMaxCallDepth)
      fail(ErrorCode::kUnsupported, "rules of the grammar call each other more than {} deep at their beginning",
           kMaxCallDepth);
    mark[index(rule)] = 1;
    for (const int32_t next : first_calls(rule)) visit_first_calls(next, mark, depth + 1);
    mark[index(rule)] = 2;
  }

  bool is_tail(const Rules::State& s) {
    const Rules::State* at = &s;
    for (int hops = 0; hops < 64; ++hops) {
      if (!at->bytes.empty() || !at->calls.empty()) return false;
      if (at->final) return at->empty.empty();
      if (at->empty.size() != 1) return false;
      at = &state(at->empty[0]);
    }
    return false;
  }

  void find_byte_classes() {
    std::array<bool, 257> cut{};
    for (const Rules::State& s : out_->states)
      for (const Rules::ByteEdge& edge : s.bytes) cut[edge.low] = cut[edge.high + 1u] = true;
    int32_t current = 0;
    for (size_t b = 0; b < 256; ++b) {
      if (b > 0 && cut[b]) ++current;
      out_->byte_class[b] = static_cast<uint8_t>(current);
    }
    out_->n_classes = current + 1;
    for (Rules::State& s : out_->states)
      for (Rules::ByteEdge& edge : s.bytes)
        edge.low = out_->byte_class[edge.low], edge.high = out_->byte_class[edge.high];
  }

  std::unique_ptr<Rules> out_ = std::make_unique<Rules>();
  std::vector<std::string> names_;
  std::vector<bool> productive_;
  int32_t current_ = -1;
};

}  // namespace

std::unique_ptr<const Grammar::Rules> compile_rules(const std::vector<NamedRule>& rules, int32_t root) {
  return Compiler(rules).finish(root);
}

}  // namespace tern::text
