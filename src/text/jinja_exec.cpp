#include <utility>

#include "text/jinja_interp.h"

namespace tern::text::jinja {
namespace {

using SK = Stmt::Kind;

// A new innermost scope, for as long as this lives.
class InnerScope {
 public:
  InnerScope(Heap& heap, Scope** current, Scope* parent)
      : heap_(heap), current_(current), outer_(std::exchange(*current, heap.scope(parent))), inner_(*current) {}
  ~InnerScope() {
    *current_ = outer_;
    heap_.release(inner_);
  }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;

 private:
  Heap& heap_;
  Scope** current_;
  Scope* outer_;
  Scope* inner_;
};

// A macro reads the variables around it when it is called: none of these scopes may be reused until then.
void capture(Scope* scope) {
  for (; scope && !scope->captured; scope = scope->parent) scope->captured = true;
}

}  // namespace

std::string Interp::render(const Block& body) {
  std::string out;
  scope_ = heap_.scope(nullptr);
  exec(body, out);
  return out;
}

void Interp::write(std::string_view text, std::string& out) {
  heap_.touch(text.size());
  if (out.size() + text.size() > heap_.limits().output) {
    throw Failure(ErrorCode::kUnsupported,
                  fmt::format("the template writes more than {} MiB", heap_.limits().output >> 20));
  }
  out += text;
}

void Interp::print(const Value& value, std::string& out) {
  if (const Text* text = value.text()) {
    write(text->bytes, out);
  } else {
    write(to_str(heap_, value), out);
  }
}

Interp::Flow Interp::exec(const Block& body, std::string& out) {
  const Nest nest(this);
  for (const Stmt& s : body) {
    const Flow flow = exec(s, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interp::Flow Interp::exec(const Stmt& s, std::string& out) {
  heap_.work(1);
  line_ = s.line;
  switch (s.kind) {
    case SK::kText:
      write(s.name, out);
      break;
    case SK::kPrint:
      for (const ExprPtr& e : s.exprs) print(eval(*e), out);
      break;
    case SK::kFor:
      return exec_for(s, out);
    case SK::kIf:
      return exec(truth(eval(*s.exprs[0])) ? s.body : s.orelse, out);
    case SK::kSet:
      assign(*s.targets[0], eval(*s.exprs[0]));
      break;
    case SK::kMacro:
      capture(scope_);
      scope_->set(s.name, heap_.make(Macro{&s, scope_}));
      break;
    case SK::kCall:
      exec_call(s, out);
      break;
    case SK::kSetBlock:
    case SK::kFilter:
      return exec_buffered(s, out);
    case SK::kWith:
      return exec_with(s, out);
    case SK::kGeneration: {
      const InnerScope inner(heap_, &scope_, scope_);
      return exec(s.body, out);
    }
    case SK::kBreak:
      return Flow::kBreak;
    case SK::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interp::assign(const Expr& target, const Value& value) {
  if (target.kind == Expr::Kind::kName) {
    scope_->set(target.name, value);
  } else if (target.kind == Expr::Kind::kGetattr) {
    const Value object = eval(*target.kids[0]);
    Dict* dict = object.dict();
    if (!dict || !dict->is_namespace)
      raise("only a namespace has attributes that can be set, not '{}'", target.kids[0]->name);
    heap_.set(dict, heap_.str(target.name), value);
  } else {
    const List* items = sequence(heap_, value);
    if (items->items.size() != target.kids.size()) {
      raise("cannot unpack {} values into {} names", items->items.size(), target.kids.size());
    }
    for (std::size_t i = 0; i < target.kids.size(); ++i) assign(*target.kids[i], items->items[i]);
  }
}

Interp::Flow Interp::exec_for(const Stmt& s, std::string& out) {
  const Value items = eval(*s.exprs[0]);
  if (s.recursive) capture(scope_);
  return loop_over(s, items, 0, out);
}

List* Interp::filtered(const Stmt& s, List* items) {
  if (!s.exprs[1]) return items;
  List* kept = heap_.list();
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    const InnerScope inner(heap_, &scope_, scope_);
    const Value item = items->items[i];
    assign(*s.targets[0], item);
    if (truth(eval(*s.exprs[1]))) heap_.push(kept, item);
  }
  return kept;
}

Interp::Flow Interp::loop_over(const Stmt& s, const Value& iterable, std::size_t depth, std::string& out) {
  List* items = filtered(s, sequence(heap_, iterable));
  Loop* loop = heap_.make(Loop{&s, scope_, items, 0, depth, {}, false});
  bool completed_one = false;
  // By index: a list that the body appends to is visited to its new end.
  for (; loop->index < items->items.size(); ++loop->index) {
    heap_.work(2);  // also where the body is empty
    const InnerScope inner(heap_, &scope_, scope_);
    scope_->set("loop", loop);
    assign(*s.targets[0], Value(items->items[loop->index]));
    const Flow flow = exec(s.body, out);
    if (flow == Flow::kBreak) break;
    completed_one |= flow == Flow::kNext;
  }
  // Python's rule for "was there an item" in jinja2's compiled loop: the flag is cleared at the end of a pass.
  if (completed_one || s.orelse.empty()) return Flow::kNext;
  const InnerScope inner(heap_, &scope_, scope_);
  return exec(s.orelse, out);
}

Interp::Flow Interp::exec_with(const Stmt& s, std::string& out) {
  std::vector<Value> values;
  for (const ExprPtr& e : s.exprs) values.push_back(eval(*e));
  const InnerScope inner(heap_, &scope_, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*s.targets[i], values[i]);
  return exec(s.body, out);
}

// A filter block and a set block: what the body writes goes through the filters.
Interp::Flow Interp::exec_buffered(const Stmt& s, std::string& out) {
  std::string text;
  {
    const InnerScope inner(heap_, &scope_, scope_);
    const Flow flow = exec(s.body, text);
    if (flow != Flow::kNext) return flow;
  }
  Value value = heap_.str(std::move(text));
  // The filters are nested with the first one innermost.
  std::vector<const Expr*> filters;
  for (const Expr* e = s.exprs[0].get(); e; e = e->kids[0].get()) filters.push_back(e);
  for (; !filters.empty(); filters.pop_back()) value = eval_filter(*filters.back(), std::move(value));
  if (s.kind == SK::kFilter) {
    print(value, out);
  } else {
    assign(*s.targets[0], value);
  }
  return Flow::kNext;
}

void Interp::exec_call(const Stmt& s, std::string& out) {
  const Expr& e = *s.exprs[0];
  const Value callee = eval(*e.kids[0]);
  Args args = eval_args(e.args);
  capture(scope_);
  args.named.emplace_back(constant("caller"), heap_.make(Macro{&s, scope_}));
  print(call(callee, std::move(args)), out);
}

Value Interp::call_macro(const Macro& macro, Args args) {
  const Stmt& s = *macro.stmt;
  const InnerScope inner(heap_, &scope_, macro.scope);
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    for (auto it = args.named.begin(); it != args.named.end(); ++it) {
      if (it->first.text()->bytes != name) continue;
      Value value = it->second;
      args.named.erase(it);
      return value;
    }
    return std::nullopt;
  };
  bool has_caller_param = false;
  for (std::size_t i = 0; i < s.params.size(); ++i) {
    const auto& [name, fallback] = s.params[i];
    has_caller_param |= name == "caller";
    if (i < args.positional.size()) {
      scope_->set(name, args.positional[i]);
    } else if (auto value = take_named(name)) {
      scope_->set(name, std::move(*value));
    } else if (fallback) {
      scope_->set(name, eval(*fallback));
    } else {
      scope_->set(name, undefined(fmt::format("parameter '{}' was not given", name)));
    }
  }
  if (s.uses_caller && !has_caller_param) {
    auto caller = take_named("caller");
    scope_->set("caller", caller ? std::move(*caller) : undefined("there is no caller: use {% call %}"));
  }
  if (s.uses_kwargs) {
    Dict* kwargs = heap_.dict();
    for (const auto& [name, value] : args.named) heap_.set(kwargs, name, value);
    scope_->set("kwargs", kwargs);
  } else if (!args.named.empty()) {
    raise("macro '{}' has no parameter '{}'", s.name, args.named[0].first.text()->bytes);
  }
  const auto extra = std::min(args.positional.size(), s.params.size());
  if (s.uses_varargs) {
    std::vector<Value> rest(args.positional.begin() + static_cast<std::ptrdiff_t>(extra), args.positional.end());
    scope_->set("varargs", heap_.list(std::move(rest), List::Kind::kTuple));
  } else if (args.positional.size() > s.params.size()) {
    raise("macro '{}' takes at most {} arguments, {} were given", s.name, s.params.size(), args.positional.size());
  }
  std::string out;
  exec(s.body, out);
  return heap_.str(std::move(out));
}

Value Interp::call_loop(const Loop& loop, const Args& args) {
  if (!loop.stmt->recursive) raise("a loop that is called needs the word 'recursive'");
  if (args.positional.size() != 1 || !args.named.empty()) raise("loop() takes the items to loop over");
  std::string out;
  const InnerScope inner(heap_, &scope_, loop.scope);
  loop_over(*loop.stmt, args.positional[0], loop.depth + 1, out);
  return heap_.str(std::move(out));
}

}  // namespace tern::text::jinja
