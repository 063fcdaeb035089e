#include "text/jinja_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "text/jinja_lexer.h"

namespace tern::text::jinja {
namespace {

using TK = Token::Kind;
using EK = Expr::Kind;
using SK = Stmt::Kind;

struct NamedOp {
  std::string_view name;
  BinaryOp op;
};
constexpr std::array<NamedOp, 2> kSums = {{{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}}};
constexpr std::array<NamedOp, 4> kProducts = {
    {{"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}, {"//", BinaryOp::kFloorDiv}, {"%", BinaryOp::kMod}}};
constexpr std::array<NamedOp, 1> kPowers = {{{"**", BinaryOp::kPow}}};

struct NamedCompare {
  std::string_view name;
  CompareOp op;
};
constexpr std::array<NamedCompare, 6> kCompares = {{{"==", CompareOp::kEq},
                                                    {"!=", CompareOp::kNe},
                                                    {"<", CompareOp::kLt},
                                                    {"<=", CompareOp::kLe},
                                                    {">", CompareOp::kGt},
                                                    {">=", CompareOp::kGe}}};

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::vector<Token> tokens, int max_depth) : tokens_(std::move(tokens)), max_depth_(max_depth) {}

  Block run() {
    Block body = parse_block({});
    if (!is(TK::kEnd)) fail("the template goes on after its end");
    return body;
  }

 private:
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
  std::string describe() const {
    switch (token().kind) {
      case TK::kEnd:
        return "the end of the template";
      case TK::kText:
        return "text";
      case TK::kPrintBegin:
        return "'{{'";
      case TK::kPrintEnd:
        return "'}}'";
      case TK::kBlockBegin:
        return "'{%'";
      case TK::kBlockEnd:
        return "'%}'";
      case TK::kString:
        return "a string";
      case TK::kNumber:
        return "a number";
      default:
        return "'" + token().text + "'";
    }
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fail(fmt::format("expected {}, got {}", wanted, describe()));
  }
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
  struct Nest {
    explicit Nest(Parser* p) : parser(p) {
      if (++parser->nesting_ > kMaxNesting) {
        parser->fail(fmt::format("the template nests more than {} levels deep", kMaxNesting));
      }
    }
    ~Nest() { --parser->nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    Parser* parser;
  };

  ExprPtr make(EK kind, int line, std::vector<ExprPtr> kids = {}, std::string name = {}) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    e->name = std::move(name);
    e->kids = std::move(kids);
    for (const ExprPtr& kid : e->kids) deepen(*e, kid);
    return e;
  }
  template <typename... Kids>
  ExprPtr make_of(EK kind, int line, Kids... kids) const {
    std::vector<ExprPtr> all;
    (all.push_back(std::move(kids)), ...);
    return make(kind, line, std::move(all));
  }
  void deepen(Expr& e, const ExprPtr& kid) const {
    if (!kid) return;
    e.depth = std::max(e.depth, kid->depth + 1);
    if (e.depth > max_depth_) fail(fmt::format("an expression has more than {} operators in a row", max_depth_));
  }

  ExprPtr parse_expression(bool with_condition = true) {
    const Nest nest(this);
    return with_condition ? parse_condition() : parse_or();
  }

  ExprPtr parse_condition() {
    const int line = token().line;
    ExprPtr value = parse_or();
    while (take_name("if")) {
      ExprPtr test = parse_or();
      ExprPtr other;
      if (take_name("else")) {
        const Nest nest(this);
        other = parse_condition();
      }
      value = make_of(EK::kCond, line, std::move(test), std::move(value), std::move(other));
    }
    return value;
  }

  ExprPtr parse_or() {
    ExprPtr left = parse_and();
    while (is_name("or")) {
      const int line = next().line;
      left = make_of(EK::kOr, line, std::move(left), parse_and());
    }
    return left;
  }

  ExprPtr parse_and() {
    ExprPtr left = parse_not();
    while (is_name("and")) {
      const int line = next().line;
      left = make_of(EK::kAnd, line, std::move(left), parse_not());
    }
    return left;
  }

  ExprPtr parse_not() {
    if (!is_name("not")) return parse_compare();
    const Nest nest(this);
    const int line = next().line;
    return make_of(EK::kNot, line, parse_not());
  }

  bool take_compare(CompareOp* op) {
    if (is(TK::kOperator)) {
      const auto* found = std::find_if(kCompares.begin(), kCompares.end(),
                                       [&](const NamedCompare& c) { return c.name == token().text; });
      if (found == kCompares.end()) return false;
      *op = found->op;
      ++pos_;
      return true;
    }
    *op = is_name("in") ? CompareOp::kIn : CompareOp::kNotIn;
    if (take_name("in")) return true;
    if (!is_name("not") || !is_name("in", 1)) return false;
    pos_ += 2;
    return true;
  }

  ExprPtr parse_compare() {
    const int line = token().line;
    std::vector<ExprPtr> kids;
    std::vector<CompareOp> ops;
    kids.push_back(parse_sum());
    for (CompareOp op; take_compare(&op);) {
      ops.push_back(op);
      kids.push_back(parse_sum());
    }
    if (ops.empty()) return std::move(kids[0]);
    ExprPtr e = make(EK::kCompare, line, std::move(kids));
    e->compares = std::move(ops);
    return e;
  }

  template <std::size_t N>
  ExprPtr parse_binary(const std::array<NamedOp, N>& ops, ExprPtr (Parser::*operand)()) {
    ExprPtr left = (this->*operand)();
    while (is(TK::kOperator)) {
      const auto* found =
          std::find_if(ops.begin(), ops.end(), [&](const NamedOp& op) { return op.name == token().text; });
      if (found == ops.end()) break;
      const int line = next().line;
      left = make_of(EK::kBinary, line, std::move(left), (this->*operand)());
      left->op = found->op;
    }
    return left;
  }
  ExprPtr parse_sum() { return parse_binary(kSums, &Parser::parse_concat); }
  ExprPtr parse_product() { return parse_binary(kProducts, &Parser::parse_power); }
  ExprPtr parse_power() { return parse_binary(kPowers, &Parser::parse_filtered_unary); }
  ExprPtr parse_filtered_unary() { return parse_unary(true); }

  ExprPtr parse_concat() {
    const int line = token().line;
    std::vector<ExprPtr> kids;
    do {
      kids.push_back(parse_product());
    } while (take_op("~"));
    return kids.size() == 1 ? std::move(kids[0]) : make(EK::kConcat, line, std::move(kids));
  }

  // A sign binds tighter than a filter: -1|abs is (-1)|abs.
  ExprPtr parse_unary(bool with_filter) {
    const Nest nest(this);
    const int line = token().line;
    ExprPtr e;
    if (take_op("-")) {
      e = make_of(EK::kNeg, line, parse_unary(false));
    } else if (take_op("+")) {
      e = make_of(EK::kPos, line, parse_unary(false));
    } else {
      e = parse_primary();
    }
    e = parse_postfix(std::move(e));
    return with_filter ? parse_filters_and_tests(std::move(e)) : std::move(e);
  }

  ExprPtr make_const(int line, Value value) {
    ExprPtr e = make(EK::kConst, line);
    e->value = std::move(value);
    return e;
  }

  ExprPtr parse_primary() {
    const int line = token().line;
    if (is(TK::kName)) return parse_name();
    if (is(TK::kNumber)) return make_const(line, next().value);
    if (is(TK::kString)) {
      std::string text = next().text;
      while (is(TK::kString)) text += next().text;
      return make_const(line, constant(std::move(text)));
    }
    if (take_op("(")) {
      ExprPtr e = parse_tuple({.parentheses = true});
      expect_op(")");
      return e;
    }
    if (take_op("[")) return make(EK::kList, line, parse_items("]"));
    if (take_op("{")) return parse_dict(line);
    unexpected("an expression");
  }

  ExprPtr parse_name() {
    const Token t = next();
    if (t.text == "true" || t.text == "True") return make_const(t.line, true);
    if (t.text == "false" || t.text == "False") return make_const(t.line, false);
    if (t.text == "none" || t.text == "None") return make_const(t.line, None{});
    note_use(t.text);
    return make(EK::kName, t.line, {}, t.text);
  }

  struct TupleRules {
    bool simple = false;         // names and literals only: a target
    bool with_condition = true;  // a if b else c
    bool parentheses = false;    // () is a tuple
    std::string_view end = {};   // a name that ends it
  };
  ExprPtr parse_tuple(TupleRules rules) {
    const int line = token().line;
    std::vector<ExprPtr> kids;
    bool is_tuple = false;
    while (true) {
      if (is(TK::kPrintEnd) || is(TK::kBlockEnd) || is_op(")") || (!rules.end.empty() && is_name(rules.end))) break;
      kids.push_back(rules.simple ? parse_nested_primary() : parse_expression(rules.with_condition));
      if (!take_op(",")) break;
      is_tuple = true;
    }
    if (is_tuple || (kids.empty() && rules.parentheses)) return make(EK::kTuple, line, std::move(kids));
    if (kids.empty()) unexpected("an expression");
    return std::move(kids[0]);
  }
  ExprPtr parse_nested_primary() {
    const Nest nest(this);
    return parse_primary();
  }

  std::vector<ExprPtr> parse_items(std::string_view end) {
    std::vector<ExprPtr> kids;
    while (!take_op(end)) {
      if (!kids.empty()) expect_op(",");
      if (take_op(end)) break;
      kids.push_back(parse_expression());
    }
    return kids;
  }

  ExprPtr parse_dict(int line) {
    std::vector<ExprPtr> kids;
    while (!take_op("}")) {
      if (!kids.empty()) expect_op(",");
      if (take_op("}")) break;
      kids.push_back(parse_expression());
      expect_op(":");
      kids.push_back(parse_expression());
    }
    return make(EK::kDict, line, std::move(kids));
  }

  ExprPtr parse_postfix(ExprPtr e) {
    while (true) {
      if (is_op(".") || is_op("[")) {
        e = parse_subscript(std::move(e));
      } else if (is_op("(")) {
        e = parse_call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr parse_filters_and_tests(ExprPtr e) {
    while (true) {
      if (is_op("|")) {
        e = parse_filters(std::move(e));
      } else if (is_name("is")) {
        e = parse_test(std::move(e));
      } else if (is_op("(")) {
        e = parse_call(std::move(e));
      } else {
        return e;
      }
    }
  }

  ExprPtr parse_subscript(ExprPtr e) {
    const int line = token().line;
    if (take_op(".")) {
      if (is(TK::kName)) {
        std::vector<ExprPtr> kids;
        kids.push_back(std::move(e));
        return make(EK::kGetattr, line, std::move(kids), next().text);
      }
      if (!is(TK::kNumber) || !token().value.is<Int>()) unexpected("a name or a number after '.'");
      ExprPtr index = make_const(line, next().value);
      return make_of(EK::kGetitem, line, std::move(e), std::move(index));
    }
    expect_op("[");
    std::vector<ExprPtr> keys;
    while (!take_op("]")) {
      if (!keys.empty()) expect_op(",");
      keys.push_back(parse_subscript_key());
    }
    ExprPtr key = keys.size() == 1 ? std::move(keys[0]) : make(EK::kTuple, line, std::move(keys));
    return make_of(EK::kGetitem, line, std::move(e), std::move(key));
  }

  ExprPtr parse_subscript_key() {
    const int line = token().line;
    const auto part = [&]() -> ExprPtr {
      return is_op(":") || is_op("]") || is_op(",") ? nullptr : parse_expression();
    };
    ExprPtr start = is_op(":") ? nullptr : parse_expression();
    if (!take_op(":")) return start;
    ExprPtr stop = part();
    ExprPtr step = take_op(":") ? part() : nullptr;
    return make_of(EK::kSlice, line, std::move(start), std::move(stop), std::move(step));
  }

  CallArgs parse_call_args() {
    CallArgs args;
    expect_op("(");
    bool more = false;
    while (!take_op(")")) {
      if (more) expect_op(",");
      if (take_op(")")) break;
      more = true;
      if (take_op("*")) {
        if (args.rest || args.rest_named) fail("a call has its '*' arguments twice or after its '**'");
        args.rest = parse_expression();
      } else if (take_op("**")) {
        if (args.rest_named) fail("a call has '**' arguments twice");
        args.rest_named = parse_expression();
      } else if (is(TK::kName) && is_op("=", 1)) {
        if (args.rest_named) fail("a call has an argument after its '**'");
        std::string name = next().text;
        ++pos_;
        args.named.emplace_back(constant(std::move(name)), parse_expression());
      } else {
        if (args.rest || args.rest_named || !args.named.empty()) {
          fail("a call has a positional argument after a named one");
        }
        args.positional.push_back(parse_expression());
      }
    }
    return args;
  }

  void set_args(Expr& e, CallArgs args) const {
    for (const ExprPtr& a : args.positional) deepen(e, a);
    for (const auto& [name, a] : args.named) deepen(e, a);
    deepen(e, args.rest);
    deepen(e, args.rest_named);
    e.args = std::move(args);
  }

  ExprPtr parse_call(ExprPtr callee) {
    const int line = token().line;
    ExprPtr e = make_of(EK::kCall, line, std::move(callee));
    set_args(*e, parse_call_args());
    return e;
  }

  std::string parse_dotted_name() {
    std::string name = expect_name();
    while (take_op(".")) name += "." + expect_name();
    return name;
  }

  // One or more filters; `e` is null when they apply to a block, and `first` when the '|' before the first is not
  // written.
  ExprPtr parse_filters(ExprPtr e, bool first = false) {
    while (first || take_op("|")) {
      first = false;
      const int line = token().line;
      std::vector<ExprPtr> kids;
      kids.push_back(std::move(e));
      e = make(EK::kFilter, line, std::move(kids), parse_dotted_name());
      if (is_op("(")) set_args(*e, parse_call_args());
    }
    return e;
  }

  ExprPtr parse_test(ExprPtr e) {
    const int line = next().line;
    const bool negated = take_name("not");
    std::vector<ExprPtr> kids;
    kids.push_back(std::move(e));
    ExprPtr test = make(EK::kTest, line, std::move(kids), parse_dotted_name());
    const bool has_argument = (is(TK::kName) && !is_any_name({"else", "or", "and"})) || is(TK::kString) ||
                              is(TK::kNumber) || is_op("[") || is_op("{");
    if (is_op("(")) {
      set_args(*test, parse_call_args());
    } else if (has_argument) {
      if (is_name("is")) fail("two tests with 'is' in a row: use 'and'");
      CallArgs args;
      args.positional.push_back(parse_postfix(parse_nested_primary()));
      set_args(*test, std::move(args));
    }
    return negated ? make_of(EK::kNot, line, std::move(test)) : std::move(test);
  }

  // ---- statements ----
  // A macro may be given more than its parameters when its body mentions these names.
  void note_use(const std::string& name) {
    for (Stmt* macro : macros_) {
      macro->uses_caller |= name == "caller";
      macro->uses_kwargs |= name == "kwargs";
      macro->uses_varargs |= name == "varargs";
    }
  }

  void check_target(const Expr& e) const {
    if (e.kind == EK::kTuple) {
      for (const ExprPtr& kid : e.kids) check_target(*kid);
    } else if (e.kind != EK::kName) {
      fail("cannot assign to this expression");
    }
  }

  ExprPtr parse_target(TupleRules rules) {
    // What a target names is stored, not read.
    std::vector<Stmt*> macros;
    macros.swap(macros_);
    rules.simple = true;
    ExprPtr target = parse_tuple(rules);
    macros.swap(macros_);
    check_target(*target);
    return target;
  }

  std::string parse_target_name() {
    const ExprPtr target = parse_target({});
    if (target->kind != EK::kName) fail("expected one name");
    return target->name;
  }

  static Stmt statement(SK kind, int line) {
    Stmt s;
    s.kind = kind;
    s.line = line;
    return s;
  }

  // Statements up to a tag named in `ends`, whose name is then the current token; to the end of the template when
  // empty.
  Block parse_block(Names ends) {
    const Nest nest(this);
    Block body;
    while (!is(TK::kEnd)) {
      const int line = token().line;
      if (is(TK::kText)) {
        body.push_back(statement(SK::kText, line));
        body.back().name = next().text;
      } else if (is(TK::kPrintBegin)) {
        ++pos_;
        body.push_back(statement(SK::kPrint, line));
        body.back().exprs.push_back(parse_tuple({}));
        expect(TK::kPrintEnd, "'}}'");
      } else {
        expect(TK::kBlockBegin, "'{%'");
        if (is_any_name(ends)) return body;
        body.push_back(parse_statement());
        expect(TK::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0) fail(fmt::format("the template ends where '{}' is missing", *(ends.end() - 1)));
    return body;
  }

  // `: %}` body `{% end`, up to and including the name that ends it, which is returned.
  std::string parse_body(Names ends, Block* body) {
    take_op(":");
    expect(TK::kBlockEnd, "'%}'");
    *body = parse_block(ends);
    return next().text;
  }

  Stmt parse_statement() {
    const Token tag = token();
    if (!is(TK::kName)) unexpected("a tag name");
    ++pos_;
    struct Tag {
      std::string_view name;
      Stmt (Parser::*parse)(int line);
    };
    constexpr std::array<Tag, 12> kTags = {{{"if", &Parser::parse_if},
                                            {"for", &Parser::parse_for},
                                            {"set", &Parser::parse_set},
                                            {"macro", &Parser::parse_macro},
                                            {"call", &Parser::parse_call_block},
                                            {"filter", &Parser::parse_filter_block},
                                            {"with", &Parser::parse_with},
                                            {"print", &Parser::parse_print},
                                            {"generation", &Parser::parse_generation},
                                            {"autoescape", &Parser::parse_autoescape},
                                            {"break", &Parser::parse_break},
                                            {"continue", &Parser::parse_continue}}};
    for (const Tag& t : kTags) {
      if (t.name == tag.text) return (this->*t.parse)(tag.line);
    }
    for (const std::string_view other : {"extends", "include", "import", "from", "block"}) {
      if (tag.text == other) {
        throw SyntaxFailure(tag.line, fmt::format("'{}' is not supported: a chat template is one file", tag.text));
      }
    }
    throw SyntaxFailure(tag.line, fmt::format("unknown tag '{}'", tag.text));
  }

  Stmt parse_if(int line) {
    Stmt s = statement(SK::kIf, line);
    s.exprs.push_back(parse_tuple({.with_condition = false}));
    const std::string end = parse_body({"elif", "else", "endif"}, &s.body);
    if (end == "elif") {
      const Nest nest(this);
      s.orelse.push_back(parse_if(token().line));
    } else if (end == "else") {
      parse_body({"endif"}, &s.orelse);
    }
    return s;
  }

  Stmt parse_for(int line) {
    Stmt s = statement(SK::kFor, line);
    s.targets.push_back(parse_target({.end = "in"}));
    if (!take_name("in")) unexpected("'in'");
    s.exprs.push_back(parse_tuple({.with_condition = false, .end = "recursive"}));
    s.exprs.push_back(take_name("if") ? parse_expression() : nullptr);
    s.recursive = take_name("recursive");
    ++loops_;
    const std::string end = parse_body({"else", "endfor"}, &s.body);
    --loops_;
    if (end == "else") parse_body({"endfor"}, &s.orelse);
    return s;
  }

  Stmt parse_set(int line) {
    Stmt s = statement(SK::kSet, line);
    if (is(TK::kName) && is_op(".", 1)) {
      ExprPtr object = make(EK::kName, line, {}, next().text);
      ++pos_;
      std::vector<ExprPtr> kids;
      kids.push_back(std::move(object));
      s.targets.push_back(make(EK::kGetattr, line, std::move(kids), expect_name()));
    } else {
      s.targets.push_back(parse_target({}));
    }
    if (take_op("=")) {
      s.exprs.push_back(parse_tuple({}));
      return s;
    }
    s.kind = SK::kSetBlock;
    s.exprs.push_back(parse_filters(nullptr));
    parse_body({"endset"}, &s.body);
    return s;
  }

  void parse_params(Stmt& s) {
    expect_op("(");
    while (!take_op(")")) {
      if (!s.params.empty()) expect_op(",");
      std::string name = expect_name();
      ExprPtr fallback = take_op("=") ? parse_expression() : nullptr;
      if (!fallback && !s.params.empty() && s.params.back().second) {
        fail(fmt::format("parameter '{}' has no default but follows one that has", name));
      }
      s.params.emplace_back(std::move(name), std::move(fallback));
    }
  }

  // The body of a macro or of a call: its own function to Python, which no break can leave.
  void parse_function_body(Stmt& s, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&s);
    parse_body({end}, &s.body);
    macros_.pop_back();
    loops_ = loops;
  }

  Stmt parse_macro(int line) {
    Stmt s = statement(SK::kMacro, line);
    s.name = expect_name();
    parse_params(s);
    parse_function_body(s, "endmacro");
    return s;
  }

  Stmt parse_call_block(int line) {
    Stmt s = statement(SK::kCall, line);
    if (is_op("(")) parse_params(s);
    s.exprs.push_back(parse_expression());
    if (s.exprs[0]->kind != EK::kCall) fail("'call' needs a call, as in {% call macro() %}");
    parse_function_body(s, "endcall");
    return s;
  }

  Stmt parse_generation(int line) {
    Stmt s = statement(SK::kGeneration, line);
    parse_function_body(s, "endgeneration");
    return s;
  }

  Stmt parse_filter_block(int line) {
    Stmt s = statement(SK::kFilter, line);
    s.exprs.push_back(parse_filters(nullptr, true));
    parse_body({"endfilter"}, &s.body);
    return s;
  }

  Stmt parse_with(int line) {
    Stmt s = statement(SK::kWith, line);
    while (!is(TK::kBlockEnd)) {
      if (!s.targets.empty()) expect_op(",");
      s.targets.push_back(parse_nested_primary());
      check_target(*s.targets.back());
      expect_op("=");
      s.exprs.push_back(parse_expression());
    }
    parse_body({"endwith"}, &s.body);
    return s;
  }

  Stmt parse_autoescape(int line) {
    const ExprPtr value = parse_expression();
    if (value->kind != EK::kConst || truth(value->value)) fail("autoescape is not supported: prompts are no HTML");
    Stmt s = statement(SK::kWith, line);
    parse_body({"endautoescape"}, &s.body);
    return s;
  }

  Stmt parse_print(int line) {
    Stmt s = statement(SK::kPrint, line);
    while (!is(TK::kBlockEnd)) {
      if (!s.exprs.empty()) expect_op(",");
      s.exprs.push_back(parse_expression());
    }
    return s;
  }

  Stmt parse_break(int line) { return parse_jump(SK::kBreak, line); }
  Stmt parse_continue(int line) { return parse_jump(SK::kContinue, line); }
  Stmt parse_jump(SK kind, int line) {
    if (loops_ == 0) fail("break and continue belong inside a loop");
    return statement(kind, line);
  }

  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
  int max_depth_;
  int nesting_ = 0;
  int loops_ = 0;
  std::vector<Stmt*> macros_;  // the macros whose body is being read, outermost first
};

}  // namespace

Block parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source) {
    throw SyntaxFailure(1, fmt::format("the template has {} bytes; at most {} are read", source.size(), limits.source));
  }
  return Parser(tokenize(source), limits.depth / 2).run();
}

}  // namespace tern::text::jinja
