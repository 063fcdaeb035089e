// Grammars that an answer must obey: GBNF as llama.cpp writes it, or made from a JSON Schema, enforced by telling
// before every draw which tokens may follow.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace tern::text {

/// Rules over code points. Immutable, shared by any number of answers and threads.
class Grammar {
 public:
  /// kInvalidArgument with line and column when `text` is no grammar; left-recursive rules are refused by name.
  static std::shared_ptr<const Grammar> from_gbnf(std::string_view text, const std::string& root = "root");
  /// The JSON documents that `schema` describes. kUnsupported naming the keyword (with its path) that cannot be
  /// enforced; kInvalidArgument when it is no schema. An empty object is any JSON value.
  static std::shared_ptr<const Grammar> from_json_schema(const nlohmann::ordered_json& schema);

  struct Rules;
  const Rules& rules() const noexcept { return *rules_; }
  explicit Grammar(std::unique_ptr<const Rules> rules);
  ~Grammar();

 private:
  std::unique_ptr<const Rules> rules_;
};

/// The bytes of all tokens of a vocabulary, sorted so that a mask visits a shared beginning once. One a model, shared.
class TokenTable {
 public:
  /// `tokenizer` outlives the table.
  explicit TokenTable(const Tokenizer& tokenizer);
  ~TokenTable();
  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

/// Where one answer stands in its grammar. One thread.
class GrammarState {
 public:
  /// kInvalidArgument when the grammar names a token that the vocabulary does not have.
  GrammarState(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTable> tokens);
  ~GrammarState();
  GrammarState(GrammarState&&) noexcept;
  GrammarState& operator=(GrammarState&&) noexcept;

  /// Sets the logits [n_vocab] of tokens that cannot follow to -infinity. Tokens that end a generation may follow where
  /// the grammar is complete, other control tokens where it names them.
  void mask(std::span<float> logits) const;
  /// The same for tokens that end a generation alone: nothing ends before the grammar has begun.
  void mask_ends(std::span<float> logits) const;
  bool allows(int32_t token) const;
  /// Takes a token that allows() permits; kInvalidArgument otherwise.
  void accept(int32_t token);
  /// The text so far is a whole sentence of the grammar / and nothing more can follow.
  bool complete() const;
  bool finished() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::text
