// The half of the parser that reads expressions, and what both halves do with tokens.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace tern::text::jinja {

struct NamedOp {
  std::string_view name;
  BinaryOp op;
};

class ExprParser {
 protected:
  using TK = Token::Kind;
  using EK = Expr::Kind;
  using Names = std::initializer_list<std::string_view>;

  ExprParser(std::vector<Token> tokens, int max_depth) : tokens_(std::move(tokens)), max_depth_(max_depth) {}

  // ---- tokens ----
  const Token& token(std::size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  bool is(TK kind) const { return token().kind == kind; }
  bool is_op(std::string_view op, std::size_t ahead = 0) const {
    return token(ahead).kind == TK::kOperator && token(ahead).text == op;
  }
  bool is_name(std::string_view name, std::size_t ahead = 0) const {
    return token(ahead).kind == TK::kName && token(ahead).text == name;
  }
  bool is_any_name(Names names) const {
    return is(TK::kName) && std::find(names.begin(), names.end(), token().text) != names.end();
  }
  Token next() { return tokens_[std::min(pos_++, tokens_.size() - 1)]; }
  bool take_op(std::string_view op) {
    if (!is_op(op)) return false;
    ++pos_;
    return true;
  }
  bool take_name(std::string_view name) {
    if (!is_name(name)) return false;
    ++pos_;
    return true;
  }
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure(token().line, message); }
  std::string describe() const;
  [[noreturn]] void unexpected(std::string_view wanted) const;
  void expect_op(std::string_view op) {
    if (!take_op(op)) unexpected(fmt::format("'{}'", op));
  }
  std::string expect_name() {
    if (!is(TK::kName)) unexpected("a name");
    return next().text;
  }
  void expect(TK kind, std::string_view wanted) {
    if (!is(kind)) unexpected(wanted);
    ++pos_;
  }

  // ---- expressions ----
  // Bounds how deep the parser is in itself.
  struct Nest {
    explicit Nest(ExprParser* p);
    ~Nest() { --parser->nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    ExprParser* parser;
  };

  ExprPtr make(EK kind, int line, std::vector<ExprPtr> kids = {}, std::string name = {}) const;
  template <typename... Kids>
  ExprPtr make_of(EK kind, int line, Kids... kids) const {
    std::vector<ExprPtr> all;
    (all.push_back(std::move(kids)), ...);
    return make(kind, line, std::move(all));
  }
  void deepen(Expr& e, const ExprPtr& kid) const;

  ExprPtr parse_expression(bool with_condition = true);
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  bool take_compare(CompareOp* op);
  ExprPtr parse_compare();
  ExprPtr parse_binary(std::span<const NamedOp> ops, ExprPtr (ExprParser::*operand)());
  ExprPtr parse_sum();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_filtered_unary();
  ExprPtr parse_concat();
  // A sign binds tighter than a filter: -1|abs is (-1)|abs.
  ExprPtr parse_unary(bool with_filter);
  ExprPtr make_const(int line, Value value);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  struct TupleRules {
    bool simple = false;         // names and literals only: a target
    bool with_condition = true;  // a if b else c
    bool parentheses = false;    // () is a tuple
    std::string_view end = {};   // a name that ends it
  };
  ExprPtr parse_tuple(TupleRules rules);
  ExprPtr parse_nested_primary();
  std::vector<ExprPtr> parse_items(std::string_view end);
  ExprPtr parse_dict(int line);
  ExprPtr parse_postfix(ExprPtr e);
  ExprPtr parse_filters_and_tests(ExprPtr e);
  ExprPtr parse_subscript(ExprPtr e);
  ExprPtr parse_subscript_key();
  CallArgs parse_call_args();
  void set_args(Expr& e, CallArgs args) const;
  ExprPtr parse_call(ExprPtr callee);
  std::string parse_dotted_name();
  // One or more filters; `e` is null when they apply to a block, and `first` when the '|' before the first is not
  // written.
  ExprPtr parse_filters(ExprPtr e, bool first = false);
  ExprPtr parse_test(ExprPtr e);

  // A macro may be given more than its parameters when its body mentions these names.
  void note_use(const std::string& name);

  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
  int max_depth_;
  int nesting_ = 0;
  std::vector<Stmt*> macros_;  // the macros whose body is being read, outermost first
};

}  // namespace tern::text::jinja
