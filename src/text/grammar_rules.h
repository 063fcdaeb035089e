// Inside grammars: expressions as they are written, and the automaton they become. Characters are UTF-8 byte by byte
// from here on, so a token that holds half a character needs no care anywhere.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar.h"

namespace tern::text {

struct CharRange {
  char32_t low = 0, high = 0;  // both included
};

/// What a rule says. kChars: one character of the ranges. kRepeat: parts[0], min to max times (max < 0: any number).
/// kToken: one token of the vocabulary, whatever its text.
struct Expression {
  enum class Kind : uint8_t { kSequence, kChoice, kChars, kRepeat, kRule, kToken } kind = Kind::kSequence;
  std::vector<CharRange> ranges{};
  std::vector<Expression> parts{};
  int32_t min = 0, max = -1;
  int32_t rule = -1;
  std::string token{};  // as it is written, "<think>" or "<[3]>"
};

struct NamedRule {
  std::string name;
  Expression body;
};

/// In front of the name of a token where bytes are read: no text holds it, so no text is taken for the token.
inline constexpr uint8_t kTokenMark = 0xFF;

/// The largest code point; classes are complemented up to it.
inline constexpr char32_t kLastCodePoint = 0x10FFFF;

/// All characters that are in none of `ranges`, in order.
std::vector<CharRange> complement(std::vector<CharRange> ranges);

/// A recursive transition network: every rule is a small automaton over bytes whose edges may also call rules.
struct Grammar::Rules {
  struct ByteEdge {
    uint8_t low = 0, high = 0;  // classes of bytes, both included
    int32_t to = -1;
  };
  struct Call {
    int32_t rule = -1, to = -1;  // go on at `to` once the rule has matched
  };
  struct State {
    std::vector<ByteEdge> bytes{};
    std::vector<int32_t> empty{};  // reached without a byte
    std::vector<Call> calls{};
    bool final = false;  // the rule has matched
    bool tail = false;   // nothing follows but the end of the rule
  };
  static constexpr int32_t kDone = 0;  // state 0: behind the whole sentence

  std::vector<State> states{State{}};
  std::vector<int32_t> starts{};      // by rule
  std::vector<bool> nullable{};       // by rule: may match nothing
  std::vector<std::string> tokens{};  // that it names, each once
  int32_t root = -1;
  std::array<uint8_t, 256> byte_class{};  // bytes that no rule tells apart share a class
  int32_t n_classes = 1;
};

/// Rule `root` of `rules`. kInvalidArgument for left recursion or a root that matches no text, kUnsupported for one
/// that is too large.
std::unique_ptr<const Grammar::Rules> compile_rules(const std::vector<NamedRule>& rules, int32_t root);

}  // namespace tern::text
