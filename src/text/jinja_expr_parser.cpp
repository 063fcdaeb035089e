#include "text/jinja_expr_parser.h"

#include <array>

namespace tern::text::jinja {
namespace {

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

}  // namespace

std::string ExprParser::describe() const {
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

void ExprParser::unexpected(std::string_view wanted) const {
  fail(fmt::format("expected {}, got {}", wanted, describe()));
}

ExprParser::Nest::Nest(ExprParser* p) : parser(p) {
  if (++parser->nesting_ > kMaxNesting) {
    parser->fail(fmt::format("the template nests more than {} levels deep", kMaxNesting));
  }
}

ExprPtr ExprParser::make(EK kind, int line, std::vector<ExprPtr> kids, std::string name) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  e->name = std::move(name);
  e->kids = std::move(kids);
  for (const ExprPtr& kid : e->kids) deepen(*e, kid);
  return e;
}

void ExprParser::deepen(Expr& e, const ExprPtr& kid) const {
  if (!kid) return;
  e.depth = std::max(e.depth, kid->depth + 1);
  if (e.depth > max_depth_) fail(fmt::format("an expression has more than {} operators in a row", max_depth_));
}

void ExprParser::note_use(const std::string& name) {
  for (Stmt* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_varargs |= name == "varargs";
  }
}

ExprPtr ExprParser::parse_expression(bool with_condition) {
  const Nest nest(this);
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr ExprParser::parse_condition() {
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

ExprPtr ExprParser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    const int line = next().line;
    left = make_of(EK::kOr, line, std::move(left), parse_and());
  }
  return left;
}

ExprPtr ExprParser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    const int line = next().line;
    left = make_of(EK::kAnd, line, std::move(left), parse_not());
  }
  return left;
}

ExprPtr ExprParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nest nest(this);
  const int line = next().line;
  return make_of(EK::kNot, line, parse_not());
}

bool ExprParser::take_compare(CompareOp* op) {
  if (is(TK::kOperator)) {
    const auto* found =
        std::find_if(kCompares.begin(), kCompares.end(), [&](const NamedCompare& c) { return c.name == token().text; });
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

ExprPtr ExprParser::parse_compare() {
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

ExprPtr ExprParser::parse_binary(std::span<const NamedOp> ops, ExprPtr (ExprParser::*operand)()) {
  ExprPtr left = (this->*operand)();
  while (is(TK::kOperator)) {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const NamedOp& op) { return op.name == token().text; });
    if (found == ops.end()) break;
    const int line = next().line;
    left = make_of(EK::kBinary, line, std::move(left), (this->*operand)());
    left->op = found->op;
  }
  return left;
}

ExprPtr ExprParser::parse_sum() {
  return parse_binary(kSums, &ExprParser::parse_concat);
}

ExprPtr ExprParser::parse_product() {
  return parse_binary(kProducts, &ExprParser::parse_power);
}

ExprPtr ExprParser::parse_power() {
  return parse_binary(kPowers, &ExprParser::parse_filtered_unary);
}

ExprPtr ExprParser::parse_filtered_unary() {
  return parse_unary(true);
}

ExprPtr ExprParser::parse_concat() {
  const int line = token().line;
  std::vector<ExprPtr> kids;
  do {
    kids.push_back(parse_product());
  } while (take_op("~"));
  return kids.size() == 1 ? std::move(kids[0]) : make(EK::kConcat, line, std::move(kids));
}

ExprPtr ExprParser::parse_unary(bool with_filter) {
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

ExprPtr ExprParser::make_const(int line, Value value) {
  ExprPtr e = make(EK::kConst, line);
  e->value = std::move(value);
  return e;
}

ExprPtr ExprParser::parse_primary() {
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

ExprPtr ExprParser::parse_name() {
  const Token t = next();
  if (t.text == "true" || t.text == "True") return make_const(t.line, true);
  if (t.text == "false" || t.text == "False") return make_const(t.line, false);
  if (t.text == "none" || t.text == "None") return make_const(t.line, None{});
  note_use(t.text);
  return make(EK::kName, t.line, {}, t.text);
}

ExprPtr ExprParser::parse_tuple(TupleRules rules) {
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

ExprPtr ExprParser::parse_nested_primary() {
  const Nest nest(this);
  return parse_primary();
}

std::vector<ExprPtr> ExprParser::parse_items(std::string_view end) {
  std::vector<ExprPtr> kids;
  while (!take_op(end)) {
    if (!kids.empty()) expect_op(",");
    if (take_op(end)) break;
    kids.push_back(parse_expression());
  }
  return kids;
}

ExprPtr ExprParser::parse_dict(int line) {
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

ExprPtr ExprParser::parse_postfix(ExprPtr e) {
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

ExprPtr ExprParser::parse_filters_and_tests(ExprPtr e) {
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

ExprPtr ExprParser::parse_subscript(ExprPtr e) {
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

ExprPtr ExprParser::parse_subscript_key() {
  const int line = token().line;
  const auto part = [&]() -> ExprPtr { return is_op(":") || is_op("]") || is_op(",") ? nullptr : parse_expression(); };
  ExprPtr start = is_op(":") ? nullptr : parse_expression();
  if (!take_op(":")) return start;
  ExprPtr stop = part();
  ExprPtr step = take_op(":") ? part() : nullptr;
  return make_of(EK::kSlice, line, std::move(start), std::move(stop), std::move(step));
}

CallArgs ExprParser::parse_call_args() {
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

void ExprParser::set_args(Expr& e, CallArgs args) const {
  for (const ExprPtr& a : args.positional) deepen(e, a);
  for (const auto& [name, a] : args.named) deepen(e, a);
  deepen(e, args.rest);
  deepen(e, args.rest_named);
  e.args = std::move(args);
}

ExprPtr ExprParser::parse_call(ExprPtr callee) {
  const int line = token().line;
  ExprPtr e = make_of(EK::kCall, line, std::move(callee));
  set_args(*e, parse_call_args());
  return e;
}

std::string ExprParser::parse_dotted_name() {
  std::string name = expect_name();
  while (take_op(".")) name += "." + expect_name();
  return name;
}

ExprPtr ExprParser::parse_filters(ExprPtr e, bool first) {
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

ExprPtr ExprParser::parse_test(ExprPtr e) {
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

}  // namespace tern::text::jinja
