// One rendering: walks the tree with Python's semantics. jinja_eval.cpp has the expressions, jinja_exec.cpp the
// statements.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"
#include "text/jinja_value.h"

namespace tern::text::jinja {

using Clock = std::chrono::system_clock;

class Interp {
 public:
  /// `globals`: the variables the caller gives the template. `now`: what strftime_now shows, in local time.
  Interp(Heap& heap, Dict* globals, Clock::time_point now) : heap_(heap), globals_(globals), now_(now) {}

  std::string render(const Block& body);

  Heap& heap() { return heap_; }
  Clock::time_point now() const { return now_; }
  int line() const { return line_; }  // of what was evaluated last: where a failure happened

  Value call(const Value& callee, Args args);
  Value call_filter(std::string_view name, Args args);
  bool call_test(std::string_view name, Args args);
  /// value.name and value[key]: undefined where Python finds neither an attribute nor an item.
  Value get_attr(const Value& value, std::string_view name);
  Value get_item(const Value& value, const Value& key);
  /// item in container
  bool contains(const Value& container, const Value& item);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Counts how deep the evaluator is in itself, so that no template overflows the stack.
  struct Nest {
    explicit Nest(Interp* interp);
    ~Nest() { --in->depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    Interp* in;
  };

  Value eval(const Expr& e);
  Value eval_node(const Expr& e);
  Value eval_name(const Expr& e);
  Value eval_getitem(const Expr& e);
  Value eval_slice(const Value& value, const Expr& slice);
  Value eval_dict(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_call(const Expr& e);
  Value eval_filter(const Expr& e, Value input);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs);
  Args eval_args(const CallArgs& args, Args out = {});
  bool compare_values(CompareOp op, const Value& a, const Value& b);

  Flow exec(const Block& body, std::string& out);
  Flow exec(const Stmt& s, std::string& out);
  Flow exec_for(const Stmt& s, std::string& out);
  Flow loop_over(const Stmt& s, const Value& iterable, std::size_t depth, std::string& out);
  List* filtered(const Stmt& s, List* items);
  Flow exec_with(const Stmt& s, std::string& out);
  Flow exec_buffered(const Stmt& s, std::string& out);
  void exec_call(const Stmt& s, std::string& out);
  void print(const Value& value, std::string& out);
  void write(std::string_view text, std::string& out);
  void assign(const Expr& target, const Value& value);
  Value call_macro(const Macro& macro, Args args);
  Value call_loop(const Loop& loop, const Args& args);

  Heap& heap_;
  Dict* globals_;
  Clock::time_point now_;
  Scope* scope_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace tern::text::jinja
