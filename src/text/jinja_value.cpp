#include "text/jinja_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

// What Python prints for the containers that are not literals.
constexpr std::string_view kListOpen[] = {
    "[", "(", "(", "range(", "<generator>", "dict_keys([", "dict_values([", "dict_items(["};
constexpr std::string_view kListClose[] = {"]", ")", ")", ")", "", "])", "])", "])"};
constexpr std::string_view kListType[] = {"list",      "tuple",     "tuple",       "range",
                                          "generator", "dict_keys", "dict_values", "dict_items"};

/// One walk through a value. Bounded: a template can build values that nest forever or print without end (x = [x, x]).
class Walk {
 public:
  explicit Walk(Heap& heap) : heap_(heap) {}

  void append(std::string& out, const Value& value, int depth);
  bool equal(const Value& a, const Value& b, int depth);
  int compare(const Value& a, const Value& b, int depth);

 private:
  void enter(int depth) {
    heap_.work(1);
    if (depth > kMaxNesting) raise("a value is nested more than {} levels deep", kMaxNesting);
  }
  void append_list(std::string& out, const List& list, int depth);
  void append_dict(std::string& out, const Dict& dict, int depth);
  bool equal_texts(const Text& a, const Text& b) {
    if (a.bytes.size() != b.bytes.size()) return false;
    heap_.touch(a.bytes.size());
    return a.bytes == b.bytes;
  }
  bool equal_lists(const List& a, const List& b, int depth);
  bool equal_dicts(const Dict& a, Dict& b, int depth);

  Heap& heap_;
};

void append_range(std::string& out, const List& list) {
  const auto at = [&](std::size_t i) { return *list.items[i].get<Int>(); };  // only range() makes these
  const std::size_t n = list.items.size();
  const Int step = n > 1 ? at(1) - at(0) : 1;
  const Int first = n > 0 ? at(0) : 0;
  out += fmt::format("{}, {}", first, n > 0 ? at(n - 1) + step : first);
  if (step != 1) out += fmt::format(", {}", step);
}

void Walk::append_list(std::string& out, const List& list, int depth) {
  const auto kind = static_cast<std::size_t>(list.kind);
  out += kListOpen[kind];
  if (list.kind == List::Kind::kRange) {
    append_range(out, list);
  } else if (list.kind != List::Kind::kGenerator) {
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += ", ";
      append(out, list.items[i], depth + 1);
    }
    if (list.is_tuple() && list.items.size() == 1) out += ',';
  }
  out += kListClose[kind];
}

void Walk::append_dict(std::string& out, const Dict& dict, int depth) {
  if (dict.is_namespace) out += "<Namespace ";
  out += '{';
  for (std::size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out += ", ";
    append(out, dict.items[i].first, depth + 1);
    out += ": ";
    append(out, dict.items[i].second, depth + 1);
  }
  out += dict.is_namespace ? "}>" : "}";
}

void Walk::append(std::string& out, const Value& value, int depth) {
  enter(depth);
  heap_.reserve(out.size());
  if (const Text* text = value.text()) {
    heap_.touch(text->bytes.size());
    out += text->markup ? "Markup(" + quote(text->bytes) + ")" : quote(text->bytes);
  } else if (const List* list = value.list()) {
    append_list(out, *list, depth);
  } else if (const Dict* dict = value.dict()) {
    append_dict(out, *dict, depth);
  } else if (value.is<Undefined>()) {
    out += "Undefined";
  } else if (value.is<None>()) {
    out += "None";
  } else if (const bool* b = value.get<bool>()) {
    out += *b ? "True" : "False";
  } else if (const Int* n = value.get<Int>()) {
    out += fmt::format("{}", *n);
  } else if (const double* d = value.get<double>()) {
    out += float_repr(*d);
  } else {
    out += fmt::format("<{}>", type_name(value));
  }
}

int sign(auto a, auto b) {
  return a < b ? -1 : b < a ? 1 : a == b ? 0 : 2;
}

bool equal_numbers(const Value& a, const Value& b, bool* equal) {
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) {
    *equal = *x == *y;
    return true;
  }
  const auto p = a.number();
  const auto q = b.number();
  if (!p || !q) return false;
  *equal = *p == *q;
  return true;
}

bool Walk::equal_lists(const List& a, const List& b, int depth) {
  if (&a == &b) return true;
  if (kListType[static_cast<std::size_t>(a.kind)] != kListType[static_cast<std::size_t>(b.kind)] ||
      a.kind == List::Kind::kGenerator || a.items.size() != b.items.size()) {
    return false;
  }
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return equal(x, y, depth + 1); });
}

bool Walk::equal_dicts(const Dict& a, Dict& b, int depth) {
  if (&a == &b) return true;
  if (a.is_namespace || b.is_namespace || a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* found = b.find(heap_, item.first);
    return found && equal(item.second, *found, depth + 1);
  });
}

bool Walk::equal(const Value& a, const Value& b, int depth) {
  enter(depth);
  bool same = false;
  if (equal_numbers(a, b, &same)) return same;
  if (a.storage().index() != b.storage().index()) return false;
  if (const Text* text = a.text()) return equal_texts(*text, *b.text());
  if (const List* list = a.list()) return equal_lists(*list, *b.list(), depth);
  if (const Dict* dict = a.dict()) return equal_dicts(*dict, *b.dict(), depth);
  return a.is<Undefined>() || same_object(a, b);
}

int Walk::compare(const Value& a, const Value& b, int depth) {
  enter(depth);
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) return sign(*x, *y);
  const auto p = a.number();
  const auto q = b.number();
  if (p && q) return sign(*p, *q);
  if (const Undefined* u = a.get<Undefined>()) raise("{}", *u->what);
  if (const Undefined* u = b.get<Undefined>()) raise("{}", *u->what);
  if (a.text() && b.text()) {
    heap_.touch(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return sign(a.text()->bytes.compare(b.text()->bytes), 0);
  }
  const List* v = a.list();
  const List* w = b.list();
  if (v && w && ((v->is_tuple() && w->is_tuple()) || (v->kind == List::Kind::kList && w->kind == v->kind))) {
    for (std::size_t i = 0; i < std::min(v->items.size(), w->items.size()); ++i) {
      if (!equal(v->items[i], w->items[i], depth + 1)) return compare(v->items[i], w->items[i], depth + 1);
    }
    return sign(v->items.size(), w->items.size());
  }
  raise("'{}' and '{}' have no order", type_name(a), type_name(b));
}

}  // namespace

Text::~Text() {
  if (meter) *meter -= bytes.size() + sizeof(Text);
}

std::optional<Int> Value::integer() const noexcept {
  if (const Int* n = get<Int>()) return *n;
  if (const bool* b = get<bool>()) return Int{*b};
  return std::nullopt;
}

std::optional<double> Value::number() const noexcept {
  if (const double* d = get<double>()) return *d;
  if (const auto n = integer()) return static_cast<double>(*n);
  return std::nullopt;
}

Value* Dict::find(Heap& heap, const Value& key) {
  if (const Text* text = key.text()) return find(text->bytes);
  for (auto& [k, v] : items) {
    if (equals(heap, k, key)) return &v;
  }
  return nullptr;
}

Value* Dict::find(std::string_view key) {
  for (auto& [k, v] : items) {
    const Text* text = k.text();
    if (text && text->bytes == key) return &v;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [n, v] : vars) {
    if (n == name) {
      v = std::move(value);
      return;
    }
  }
  vars.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent) {
    for (const auto& [n, v] : scope->vars) {
      if (n == name) return &v;
    }
  }
  return nullptr;
}

Value Heap::str(std::string bytes, bool markup) {
  touch(bytes.size());
  reserve(bytes.size());
  const std::size_t chars = char_count(bytes);
  text_bytes_ += bytes.size() + sizeof(Text);
  return Value(Str(new Text{std::move(bytes), chars, markup, &text_bytes_}));
}

List* Heap::list(std::vector<Value> items, List::Kind kind) {
  charge(items.size() * sizeof(Value));
  work(items.size() / 8);
  return make(List{kind, std::move(items), 0});
}

Dict* Heap::dict() {
  return make(Dict{});
}

Scope* Heap::scope(Scope* parent) {
  if (free_scopes_.empty()) {
    charge(4 * sizeof(Value));  // its variables
    return make(Scope{parent, false, {}});
  }
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  return scope;
}

void Heap::release(Scope* scope) {
  if (scope->captured) return;
  scope->vars.clear();
  free_scopes_.push_back(scope);
}

void Heap::push(List* list, Value value) {
  charge(sizeof(Value));
  list->items.push_back(std::move(value));
}

void Heap::set(Dict* dict, const Value& key, Value value) {
  require_hashable(key);
  work(1 + dict->items.size() / 8);
  if (Value* found = dict->find(*this, key)) {
    *found = std::move(value);
    return;
  }
  charge(2 * sizeof(Value));
  dict->items.emplace_back(key, std::move(value));
}

void Heap::reserve(std::size_t bytes) const {
  if (bytes > limits_.memory - std::min(limits_.memory, text_bytes_ + pool_bytes_)) {
    throw Failure(ErrorCode::kOutOfMemory,
                  fmt::format("the template needs more than the {} MiB it may use", limits_.memory >> 20));
  }
}

void Heap::charge(std::size_t bytes) {
  reserve(bytes);
  pool_bytes_ += bytes;
}

void Heap::out_of_work() const {
  throw Failure(ErrorCode::kUnsupported,
                fmt::format("the template did not finish within {} steps: it loops too long", limits_.work));
}

Value constant(std::string bytes) {
  const std::size_t chars = char_count(bytes);
  return Value(Str(new Text{std::move(bytes), chars, false, nullptr}));
}

Value undefined(std::string what) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(what))});
}

std::string_view type_name(const Value& value) {
  constexpr std::array<std::string_view, std::variant_size_v<Value::Storage>> kNames = {
      "Undefined", "NoneType", "bool",     "int",   "float",       "str",
      "list",      "dict",     "function", "Macro", "LoopContext", "Cycler"};
  if (const List* list = value.list()) return kListType[static_cast<std::size_t>(list->kind)];
  if (const Dict* dict = value.dict(); dict && dict->is_namespace) return "Namespace";
  return kNames[value.storage().index()];
}

bool truth(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (const auto n = value.number()) return *n != 0;
  if (const Text* text = value.text()) return !text->bytes.empty();
  if (const List* list = value.list()) return !list->has_length() || !list->items.empty();
  if (const Dict* dict = value.dict()) return dict->is_namespace || !dict->items.empty();
  return true;
}

bool equals(Heap& heap, const Value& a, const Value& b) {
  return Walk(heap).equal(a, b, 0);
}

int compare(Heap& heap, const Value& a, const Value& b) {
  return Walk(heap).compare(a, b, 0);
}

bool same_object(const Value& a, const Value& b) {
  if (a.storage().index() != b.storage().index()) return false;
  if (const Str* s = a.get<Str>()) return s->get() == b.get<Str>()->get();
  if (const auto n = a.number()) return *n == b.number();
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_pointer_v<T>) return x == *b.get<T>();
        return true;
      },
      a.storage());
}

void require_hashable(const Value& value) {
  const List* list = value.list();
  const Dict* dict = value.dict();
  if ((dict && !dict->is_namespace) || (list && list->kind == List::Kind::kList)) {
    raise("a {} cannot be a key", type_name(value));
  }
  if (list && list->is_tuple()) {
    for (const Value& item : list->items) require_hashable(item);  // no deeper than the tuple that was built
  }
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  // Shortest digits that read back; Python writes an exponent below 1e-4 and from 1e16.
  const double size = std::fabs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(buffer, end.ptr);
  if (!scientific && out.find('.') == out.npos) out += ".0";
  return out;
}

std::string to_repr(Heap& heap, const Value& value) {
  std::string out;
  Walk(heap).append(out, value, 0);
  return out;
}

std::string to_str(Heap& heap, const Value& value) {
  if (const Text* text = value.text()) return text->bytes;
  return value.is<Undefined>() ? std::string() : to_repr(heap, value);
}

std::size_t length(const Text& text) {
  return text.chars;
}

std::size_t length(const Value& value) {
  if (const Text* text = value.text()) return length(*text);
  if (const List* list = value.list(); list && list->has_length()) return list->items.size();
  if (const Dict* dict = value.dict(); dict && !dict->is_namespace) return dict->items.size();
  if (value.is<Undefined>()) return 0;
  if (Loop* const* loop = value.get<Loop*>()) return (*loop)->items->items.size();
  raise("a value of type '{}' has no length", type_name(value));
}

bool iterable(const Value& value) {
  const Dict* dict = value.dict();
  return value.text() || value.list() || (dict && !dict->is_namespace) || value.is<Undefined>() || value.is<Loop*>();
}

List* sequence(Heap& heap, const Value& value) {
  if (List* list = value.list()) {
    heap.work(list->items.size());  // for the pass over them that follows
    if (list->kind != List::Kind::kGenerator) return list;
    List* rest = heap.list({list->items.begin() + static_cast<std::ptrdiff_t>(list->next), list->items.end()});
    list->next = list->items.size();
    return rest;
  }
  List* out = heap.list();
  if (const Text* text = value.text()) {
    for (std::size_t pos = 0; pos < text->bytes.size();) {
      const std::size_t start = pos;
      next_char(text->bytes, pos);
      heap.push(out, heap.str(text->bytes.substr(start, pos - start), text->markup));
    }
  } else if (const Dict* dict = value.dict(); dict && !dict->is_namespace) {
    for (const auto& item : dict->items) heap.push(out, item.first);
  } else if (!value.is<Undefined>()) {
    raise("a value of type '{}' cannot be looped over", type_name(value));
  }
  return out;
}

}  // namespace tern::text::jinja
