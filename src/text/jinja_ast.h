// A parsed template. Expressions and statements are one struct each with a kind: the evaluator is a switch, and a
// reader sees every construct in one list.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace tern::text::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<Stmt>;

/// (a, b, name=c, *d, **e)
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Value, ExprPtr>> named;  // a string and its value
  ExprPtr rest;
  ExprPtr rest_named;
};

enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr {
  enum class Kind {
    kConst,    // value
    kName,     // name
    kGetattr,  // kids[0].name
    kGetitem,  // kids[0][kids[1]]
    kSlice,    // kids[0..2] = start, stop, step; each may be null. Only inside kGetitem
    kTuple,    // kids
    kList,     // kids
    kDict,     // kids: key, value, key, value...
    kCall,     // kids[0](args)
    kFilter,   // kids[0]|name(args); kids[0] is null in a filter block
    kTest,     // kids[0] is name(args)
    kNot,
    kNeg,
    kPos,
    kAnd,
    kOr,
    kBinary,   // kids[0] op kids[1]
    kCompare,  // kids[0] compares[0] kids[1] compares[1] kids[2]...
    kConcat,   // kids[0] ~ kids[1] ~ ...
    kCond,     // kids[1] if kids[0] else kids[2] (null: undefined)
  };
  Kind kind;
  int line = 0;
  int depth = 1;  // of the tree below, so that no template is deeper than the evaluator's stack
  Value value;
  std::string name;
  std::vector<ExprPtr> kids;
  CallArgs args;
  BinaryOp op{};
  std::vector<CompareOp> compares;
};

struct Stmt {
  enum class Kind {
    kText,        // name
    kPrint,       // exprs
    kFor,         // for target in exprs[0] if exprs[1] (null): body; orelse; recursive
    kIf,          // if exprs[0]: body else: orelse (an elif is an if in it)
    kSet,         // target = exprs[0]
    kSetBlock,    // target = body through filter exprs[0] (null)
    kMacro,       // name(params): body
    kCall,        // call(params) exprs[0]: body is its caller
    kFilter,      // body through filter exprs[0]
    kWith,        // targets = exprs: body
    kGeneration,  // body: what the assistant said. Rendered as it stands
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  std::string name;
  std::vector<ExprPtr> exprs;
  std::vector<ExprPtr> targets;                         // kName, kTuple, or kGetattr of a kName for a namespace
  std::vector<std::pair<std::string, ExprPtr>> params;  // with the default or null
  Block body;
  Block orelse;
  bool recursive = false;
  bool uses_caller = false;  // of a macro: what its body may be given beyond its parameters
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

}  // namespace tern::text::jinja
