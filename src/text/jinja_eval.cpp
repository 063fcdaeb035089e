#include <algorithm>

#include "text/jinja_interp.h"
#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

using EK = Expr::Kind;

Value binary(Heap& heap, BinaryOp op, const Value& a, const Value& b) {
  switch (op) {
    case BinaryOp::kAdd:
      return add(heap, a, b);
    case BinaryOp::kSub:
      return subtract(a, b);
    case BinaryOp::kMul:
      return multiply(heap, a, b);
    case BinaryOp::kDiv:
      return divide(a, b);
    case BinaryOp::kFloorDiv:
      return floor_divide(a, b);
    case BinaryOp::kMod:
      return modulo(heap, a, b);
    case BinaryOp::kPow:
      return power(a, b);
  }
  return {};
}

// Attributes of objects that only Jinja has: a loop, a group, a cycler, a macro. Nothing when there is none of that
// name.
std::optional<Value> loop_attr(const Loop& loop, std::string_view name) {
  const auto n = static_cast<std::int64_t>(loop.items->items.size());
  const auto i = static_cast<std::int64_t>(loop.index);
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "revindex") return Value::integer(n - i);
  if (name == "revindex0") return Value::integer(n - i - 1);
  if (name == "first") return Value(i == 0);
  if (name == "last") return Value(i + 1 >= n);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(static_cast<std::int64_t>(loop.depth) + 1);
  if (name == "depth0") return Value::integer(static_cast<std::int64_t>(loop.depth));
  if (name == "previtem") return i > 0 ? loop.items->items[loop.index - 1] : undefined("there is no previous item");
  if (name == "nextitem") return i + 1 < n ? loop.items->items[loop.index + 1] : undefined("there is no next item");
  return std::nullopt;
}

std::optional<Value> object_attr(Heap& heap, const Value& value, std::string_view name) {
  if (Loop* const* loop = value.get<Loop*>()) return loop_attr(**loop, name);
  if (const List* list = value.list(); list && list->kind == List::Kind::kGroup) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  if (Counter* const* counter = value.get<Counter*>(); counter && name == "current" && !(*counter)->is_joiner) {
    return (*counter)->items[(*counter)->next];
  }
  if (Macro* const* macro = value.get<Macro*>()) {
    if (name == "name") return heap.str((*macro)->stmt->name);
    if (name == "arguments") {
      List* names = heap.list(List::Kind::kTuple);
      for (const auto& [param, fallback] : (*macro)->stmt->params) heap.push(names, heap.str(param));
      return names;
    }
  }
  if (Dict* dict = value.dict(); dict && dict->is_namespace) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return std::nullopt;
}

// Python's slice.indices(): bounds of a slice of something `size` long, and how many items it has.
struct Range {
  std::int64_t start;
  std::int64_t step;
  std::int64_t count;
};
Range slice_range(std::int64_t size, const Value& start, const Value& stop, const Value& step) {
  const auto bound = [](const Value& v, std::int64_t fallback) {
    const auto n = v.integer();
    return n ? static_cast<std::int64_t>(std::clamp(*n, -(Int{1} << 40), Int{1} << 40)) : fallback;
  };
  const std::int64_t by = bound(step, 1);
  if (by == 0) raise("a slice cannot have a step of zero");
  const std::int64_t low = by < 0 ? -1 : 0;
  const std::int64_t high = by < 0 ? size - 1 : size;
  const auto position = [&](const Value& v, std::int64_t fallback) {
    const std::int64_t n = bound(v, fallback);
    return v.integer() ? std::clamp(n < 0 ? n + size : n, low, high) : fallback;
  };
  const std::int64_t from = position(start, by < 0 ? high : low);
  const std::int64_t to = position(stop, by < 0 ? low : high);
  const std::int64_t span = by < 0 ? from - to : to - from;
  const std::int64_t stride = by < 0 ? -by : by;
  return {from, by, span <= 0 ? 0 : (span + stride - 1) / stride};
}

Value slice_text(Heap& heap, const Text& text, const Range& r) {
  heap.touch(text.bytes.size());
  std::string out;
  if (text.ascii() || r.count == 0) {
    for (std::int64_t i = 0; i < r.count; ++i) out += text.bytes[static_cast<std::size_t>(r.start + i * r.step)];
    if (r.step == 1) return heap.str(std::move(out), text.markup);
  } else if (r.step == 1) {
    const std::size_t from = char_offset(text.bytes, static_cast<std::size_t>(r.start));
    const std::string_view rest = std::string_view(text.bytes).substr(from);
    out = rest.substr(0, char_offset(rest, static_cast<std::size_t>(r.count)));
  } else {
    std::vector<std::size_t> offsets;
    for (std::size_t pos = 0; pos < text.bytes.size(); next_char(text.bytes, pos)) offsets.push_back(pos);
    offsets.push_back(text.bytes.size());
    for (std::int64_t i = 0; i < r.count; ++i) {
      const auto at = static_cast<std::size_t>(r.start + i * r.step);
      out.append(text.bytes, offsets[at], offsets[at + 1] - offsets[at]);
    }
  }
  return heap.str(std::move(out), text.markup);
}

Value index_text(Heap& heap, const Text& text, Int index) {
  const auto size = static_cast<Int>(length(text));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return undefined("a string has no character at that index");
  heap.touch(text.ascii() ? 0 : text.bytes.size());
  std::size_t pos =
      text.ascii() ? static_cast<std::size_t>(index) : char_offset(text.bytes, static_cast<std::size_t>(index));
  const std::size_t start = pos;
  next_char(text.bytes, pos);
  return heap.str(text.bytes.substr(start, pos - start), text.markup);
}

}  // namespace

Interp::Nest::Nest(Interp* interp) : in(interp) {
  if (++in->depth_ > in->heap_.limits().depth) {
    --in->depth_;
    raise("the template calls itself more than {} levels deep", in->heap_.limits().depth);
  }
}

Value Interp::eval(const Expr& e) {
  const Nest nest(this);
  heap_.work(1);
  line_ = e.line;
  return eval_node(e);
}

Value Interp::eval_node(const Expr& e) {
  switch (e.kind) {
    case EK::kConst:
      return e.value;
    case EK::kName:
      return eval_name(e);
    case EK::kGetattr:
      return get_attr(eval(*e.kids[0]), e.name);
    case EK::kGetitem:
      return eval_getitem(e);
    case EK::kTuple:
      return heap_.list(eval_all(e.kids), List::Kind::kTuple);
    case EK::kList:
      return heap_.list(eval_all(e.kids));
    case EK::kDict:
      return eval_dict(e);
    case EK::kCall:
      return eval_call(e);
    case EK::kFilter:
      return eval_filter(e, eval(*e.kids[0]));
    case EK::kTest: {
      Args args;
      args.positional.push_back(eval(*e.kids[0]));
      return call_test(e.name, eval_args(e.args, std::move(args)));
    }
    case EK::kNot:
      return !truth(eval(*e.kids[0]));
    case EK::kNeg:
      return negate(eval(*e.kids[0]));
    case EK::kPos:
      return negate(negate(eval(*e.kids[0])));
    case EK::kAnd: {
      Value left = eval(*e.kids[0]);
      return truth(left) ? eval(*e.kids[1]) : left;
    }
    case EK::kOr: {
      Value left = eval(*e.kids[0]);
      return truth(left) ? left : eval(*e.kids[1]);
    }
    case EK::kBinary: {
      const Value left = eval(*e.kids[0]);
      const Value right = eval(*e.kids[1]);
      return binary(heap_, e.op, left, right);
    }
    case EK::kCompare:
      return eval_compare(e);
    case EK::kConcat:
      return eval_concat(e);
    case EK::kCond:
      if (truth(eval(*e.kids[0]))) return eval(*e.kids[1]);
      return e.kids[2] ? eval(*e.kids[2]) : undefined("the condition was false and there is no else");
    case EK::kSlice:
      raise("a slice belongs inside [ ]");
  }
  return {};
}

Value Interp::eval_name(const Expr& e) {
  if (const Value* found = scope_->find(e.name)) return *found;
  if (const Value* found = globals_->find(e.name)) return *found;
  if (const Builtin* builtin = find_builtin(globals(), e.name)) return heap_.make(Function{builtin, {}, false});
  return undefined(fmt::format("'{}' is undefined", e.name));
}

std::vector<Value> Interp::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> out;
  out.reserve(exprs.size());
  for (const ExprPtr& e : exprs) out.push_back(eval(*e));
  return out;
}

Value Interp::eval_dict(const Expr& e) {
  Dict* dict = heap_.dict();
  for (std::size_t i = 0; i < e.kids.size(); i += 2) {
    const Value key = eval(*e.kids[i]);
    heap_.set(dict, key, eval(*e.kids[i + 1]));
  }
  return dict;
}

Value Interp::eval_getitem(const Expr& e) {
  const Value value = eval(*e.kids[0]);
  if (e.kids[1]->kind == EK::kSlice) return eval_slice(value, *e.kids[1]);
  return get_item(value, eval(*e.kids[1]));
}

Value Interp::eval_slice(const Value& value, const Expr& slice) {
  const auto part = [&](std::size_t i) { return slice.kids[i] ? eval(*slice.kids[i]) : Value(None{}); };
  const Value start = part(0);
  const Value stop = part(1);
  const Value step = part(2);
  if (const Undefined* u = value.get<Undefined>()) raise("{}", *u->what);
  for (const Value* v : {&start, &stop, &step}) {
    if (!v->is<None>() && !v->integer()) raise("a slice needs integers, got a value of type '{}'", type_name(*v));
  }
  const Text* text = value.text();
  const List* list = value.list();
  if (!text && !(list && list->has_index())) {
    raise("a value of type '{}' has no slices", type_name(value));
  }
  const Range r = slice_range(static_cast<std::int64_t>(length(value)), start, stop, step);
  if (text) return slice_text(heap_, *text, r);
  std::vector<Value> items;
  heap_.reserve(static_cast<std::size_t>(r.count) * sizeof(Value));
  items.reserve(static_cast<std::size_t>(r.count));
  for (std::int64_t i = 0; i < r.count; ++i)
    items.push_back(list->items[static_cast<std::size_t>(r.start + i * r.step)]);
  return heap_.list(std::move(items), list->kind == List::Kind::kGroup ? List::Kind::kTuple : list->kind);
}

bool Interp::contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (!item.text()) raise("'in' a string needs a string, got a value of type '{}'", type_name(item));
    heap_.touch(text->bytes.size());
    return find_text(text->bytes, item.text()->bytes) != std::string::npos;
  }
  if (Dict* dict = container.dict(); dict && !dict->is_namespace) {
    require_hashable(item);
    heap_.work(dict->items.size() / 8);
    return dict->find(heap_, item) != nullptr;
  }
  const List* items = sequence(heap_, container);
  return std::any_of(items->items.begin(), items->items.end(), [&](const Value& v) { return equals(heap_, v, item); });
}

bool Interp::compare_values(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return equals(heap_, a, b);
    case CompareOp::kNe:
      return !equals(heap_, a, b);
    case CompareOp::kLt:
      return compare(heap_, a, b) == -1;
    case CompareOp::kLe:
      return compare(heap_, a, b) <= 0;
    case CompareOp::kGt:
      return compare(heap_, a, b) == 1;
    case CompareOp::kGe:
      return compare(heap_, a, b) == 0 || compare(heap_, a, b) == 1;
    case CompareOp::kIn:
      return contains(b, a);
    case CompareOp::kNotIn:
      return !contains(b, a);
  }
  return false;
}

Value Interp::eval_compare(const Expr& e) {
  Value left = eval(*e.kids[0]);
  for (std::size_t i = 0; i < e.compares.size(); ++i) {
    Value right = eval(*e.kids[i + 1]);
    if (!compare_values(e.compares[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interp::eval_concat(const Expr& e) {
  std::string out;
  for (const ExprPtr& kid : e.kids) {
    out += to_str(heap_, eval(*kid));
    heap_.reserve(out.size());
  }
  return heap_.str(std::move(out));
}

Args Interp::eval_args(const CallArgs& args, Args out) {
  for (const ExprPtr& e : args.positional) out.positional.push_back(eval(*e));
  for (const auto& [name, e] : args.named) out.named.emplace_back(name, eval(*e));
  if (args.rest) {
    const List* rest = sequence(heap_, eval(*args.rest));
    out.positional.insert(out.positional.end(), rest->items.begin(), rest->items.end());
  }
  if (args.rest_named) {
    const Value rest = eval(*args.rest_named);
    const Dict* dict = rest.dict();
    if (!dict || dict->is_namespace) raise("'**' needs a mapping, got a value of type '{}'", type_name(rest));
    for (const auto& [key, value] : dict->items) {
      if (!key.text()) raise("'**' needs names as keys, got a value of type '{}'", type_name(key));
      out.named.emplace_back(key, value);
    }
  }
  return out;
}

Value Interp::eval_call(const Expr& e) {
  const Value callee = eval(*e.kids[0]);
  Args args = eval_args(e.args);
  line_ = e.line;
  return call(callee, std::move(args));
}

Value Interp::eval_filter(const Expr& e, Value input) {
  Args args;
  args.positional.push_back(std::move(input));
  args = eval_args(e.args, std::move(args));
  line_ = e.line;
  return call_filter(e.name, std::move(args));
}

Value Interp::call_filter(std::string_view name, Args args) {
  const Builtin* builtin = find_filter(name);
  if (!builtin) throw Failure(ErrorCode::kUnsupported, fmt::format("there is no filter '{}'", name));
  return call_builtin(*this, *builtin, args);
}

bool Interp::call_test(std::string_view name, Args args) {
  const Builtin* builtin = find_test(name);
  if (!builtin) throw Failure(ErrorCode::kUnsupported, fmt::format("there is no test '{}'", name));
  return truth(call_builtin(*this, *builtin, args));
}

Value Interp::call(const Value& callee, Args args) {
  const Nest nest(this);
  if (Function* const* function = callee.get<Function*>()) {
    if ((*function)->bound) args.positional.insert(args.positional.begin(), (*function)->self);
    return call_builtin(*this, *(*function)->builtin, args);
  }
  if (Macro* const* macro = callee.get<Macro*>()) return call_macro(**macro, std::move(args));
  if (Loop* const* loop = callee.get<Loop*>()) return call_loop(**loop, args);
  if (Counter* const* counter = callee.get<Counter*>(); counter && (*counter)->is_joiner) {
    return (*counter)->next++ == 0 ? heap_.str("") : (*counter)->items[0];
  }
  if (const Undefined* u = callee.get<Undefined>()) raise("{}", *u->what);
  raise("a value of type '{}' cannot be called", type_name(callee));
}

Value Interp::get_attr(const Value& value, std::string_view name) {
  if (const Undefined* u = value.get<Undefined>()) raise("{}", *u->what);
  if (const Builtin* method = find_method(value, name)) return heap_.make(Function{method, value, true});
  if (auto attr = object_attr(heap_, value, name)) return *attr;
  if (Dict* dict = value.dict()) {
    heap_.work(dict->items.size() / 8);
    if (const Value* found = dict->find(name)) return *found;
  }
  return undefined(fmt::format("a value of type '{}' has no attribute '{}'", type_name(value), name));
}

Value Interp::get_item(const Value& value, const Value& key) {
  if (const Undefined* u = value.get<Undefined>()) raise("{}", *u->what);
  const auto index = key.integer();
  if (Dict* dict = value.dict(); dict && !dict->is_namespace) {
    heap_.work(dict->items.size() / 8);
    if (const Value* found = dict->find(heap_, key)) return *found;
  } else if (const Text* text = value.text(); text && index) {
    return index_text(heap_, *text, *index);
  } else if (const List* list = value.list(); list && index && list->has_index()) {
    const auto size = static_cast<Int>(list->items.size());
    const Int at = *index < 0 ? *index + size : *index;
    if (at >= 0 && at < size) return list->items[static_cast<std::size_t>(at)];
    return undefined(fmt::format("a list of {} items has no item {}", size, *index));
  }
  if (const Text* name = key.text()) {
    if (const Builtin* method = find_method(value, name->bytes)) return heap_.make(Function{method, value, true});
    if (auto attr = object_attr(heap_, value, name->bytes)) return *attr;
  }
  return undefined(fmt::format("a value of type '{}' has no item {}", type_name(value), to_repr(heap_, key)));
}

}  // namespace tern::text::jinja
