#include "text/jinja_parser.h"

#include <array>

#include "text/jinja_expr_parser.h"

namespace tern::text::jinja {
namespace {

using SK = Stmt::Kind;

class Parser : ExprParser {
 public:
  Parser(std::vector<Token> tokens, int max_depth) : ExprParser(std::move(tokens), max_depth) {}

  Block run() {
    Block body = parse_block({});
    if (!is(TK::kEnd)) fail("the template goes on after its end");
    return body;
  }

 private:
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

  int loops_ = 0;  // around what is being read
};

}  // namespace

Block parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source) {
    throw SyntaxFailure(1, fmt::format("the template has {} bytes; at most {} are read", source.size(), limits.source));
  }
  return Parser(tokenize(source), limits.depth / 2).run();
}

}  // namespace tern::text::jinja
