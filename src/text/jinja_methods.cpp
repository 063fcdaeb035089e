// Methods of lists and mappings, and which type has which. The sandbox of transformers refuses those that change a list
// or a mapping; they are here all the same, because templates written for other engines use them and they mean one
// thing.
#include <algorithm>
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"

namespace tern::text::jinja {
namespace {

List& self_list(Bound& b) {
  return *b[0].list();
}
Dict& self_dict(Bound& b) {
  return *b[0].dict();
}

Value pair(Heap& heap, const Value& key, const Value& value) {
  return heap.list({key, value}, List::Kind::kTuple);
}

// ---- mapping ----

Value view(Bound& b, List::Kind kind) {
  std::vector<Value> out;
  for (const auto& [key, value] : self_dict(b).items) {
    out.push_back(kind == List::Kind::kKeys ? key : kind == List::Kind::kValues ? value : pair(b.heap, key, value));
  }
  return b.heap.list(std::move(out), kind);
}
Value keys(Bound& b) {
  return view(b, List::Kind::kKeys);
}
Value values(Bound& b) {
  return view(b, List::Kind::kValues);
}
Value items(Bound& b) {
  return view(b, List::Kind::kItems);
}

Value* find_key(Bound& b, std::size_t i) {
  require_hashable(b[i]);
  b.heap.work(self_dict(b).items.size() / 8);
  return self_dict(b).find(b.heap, b[i]);
}

Value get(Bound& b) {
  const Value* found = find_key(b, 1);
  return found ? *found : b.has(2) ? b[2] : Value(None{});
}

Value set_default(Bound& b) {
  if (const Value* found = find_key(b, 1)) return *found;
  Value value = b.has(2) ? b[2] : Value(None{});
  b.heap.set(&self_dict(b), b[1], value);
  return value;
}

Value pop_key(Bound& b) {
  const Value* found = find_key(b, 1);
  if (!found) {
    if (!b.has(2)) raise("pop() finds no key {}", to_repr(b.heap, b[1]));
    return b[2];
  }
  Value value = *found;
  std::erase_if(self_dict(b).items, [&](const auto& item) { return &item.second == found; });
  return value;
}

Value pop_item(Bound& b) {
  auto& all = self_dict(b).items;
  if (all.empty()) raise("popitem() finds an empty mapping");
  Value out = pair(b.heap, all.back().first, all.back().second);
  all.pop_back();
  return out;
}

Value update(Bound& b) {
  if (b.args.positional.size() > 2) raise("update() takes one mapping");
  if (b.args.positional.size() == 2) update_dict(b.heap, &self_dict(b), b.args.positional[1]);
  for (const auto& [name, value] : b.args.named) b.heap.set(&self_dict(b), name, value);
  return None{};
}

Value copy_dict(Bound& b) {
  Dict* out = b.heap.dict();
  for (const auto& [key, value] : self_dict(b).items) b.heap.set(out, key, value);
  return out;
}

Value clear_dict(Bound& b) {
  self_dict(b).items.clear();
  return None{};
}

// ---- list ----

Value append(Bound& b) {
  b.heap.push(&self_list(b), b[1]);
  return None{};
}

Value extend(Bound& b) {
  const std::vector<Value> more = sequence(b.heap, b[1])->items;  // a copy: the list may extend itself
  for (const Value& value : more) b.heap.push(&self_list(b), value);
  return None{};
}

// Python's insert and pop positions: negative ones count from the end.
std::size_t position(Bound& b, std::size_t i, Int fallback) {
  const auto size = static_cast<Int>(self_list(b).items.size());
  const Int at = b.integer(i, fallback);
  return static_cast<std::size_t>(std::clamp(at < 0 ? at + size : at, Int{0}, size));
}

Value insert(Bound& b) {
  List& list = self_list(b);
  const auto at = static_cast<std::ptrdiff_t>(position(b, 1, 0));
  b.heap.work(list.items.size() / 8);
  b.heap.push(&list, b[2]);
  std::rotate(list.items.begin() + at, list.items.end() - 1, list.items.end());
  return None{};
}

Value pop_index(Bound& b) {
  List& list = self_list(b);
  const Int given = b.integer(1, -1);
  const auto size = static_cast<Int>(list.items.size());
  if (given < -size || given >= size) raise("pop() finds no item {} in a list of {}", given, size);
  const auto at = list.items.begin() + static_cast<std::ptrdiff_t>(position(b, 1, -1));
  Value value = *at;
  b.heap.work(list.items.size() / 8);
  list.items.erase(at);
  return value;
}

Value remove(Bound& b) {
  List& list = self_list(b);
  const auto at =
      std::find_if(list.items.begin(), list.items.end(), [&](const Value& v) { return equals(b.heap, v, b[1]); });
  if (at == list.items.end()) raise("remove() does not find {}", to_repr(b.heap, b[1]));
  list.items.erase(at);
  return None{};
}

Value clear_list(Bound& b) {
  self_list(b).items.clear();
  return None{};
}

Value copy_list(Bound& b) {
  return b.heap.list(std::vector<Value>(self_list(b).items));
}

Value reverse(Bound& b) {
  b.heap.work(self_list(b).items.size() / 8);
  std::reverse(self_list(b).items.begin(), self_list(b).items.end());
  return None{};
}

Value sort(Bound& b) {
  const bool descending = b.flag(1);
  std::vector<Value> sorted = self_list(b).items;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& x, const Value& y) {
    return descending ? compare(b.heap, y, x) == -1 : compare(b.heap, x, y) == -1;
  });
  self_list(b).items = std::move(sorted);
  return None{};
}

Value count(Bound& b) {
  const auto& all = self_list(b).items;
  return Value::integer(std::count_if(all.begin(), all.end(), [&](const Value& v) { return equals(b.heap, v, b[1]); }));
}

Value index(Bound& b) {
  const auto& all = self_list(b).items;
  const std::size_t end = b.has(3) ? position(b, 3, 0) : all.size();
  for (std::size_t i = b.has(2) ? position(b, 2, 0) : 0; i < end; ++i) {
    if (equals(b.heap, all[i], b[1])) return Value::integer(static_cast<std::int64_t>(i));
  }
  raise("index() does not find {}", to_repr(b.heap, b[1]));
}

// ---- cycler ----

Value next(Bound& b) {
  Counter& counter = **b[0].get<Counter*>();
  Value out = counter.items[counter.next];
  counter.next = (counter.next + 1) % counter.items.size();
  return out;
}
Value reset(Bound& b) {
  (*b[0].get<Counter*>())->next = 0;
  return None{};
}

// ---- loop ----

Value cycle(Bound& b) {
  const std::size_t choices = b.args.positional.size() - 1;
  if (choices == 0) raise("cycle() needs values to go through");
  return b.args.positional[1 + (*b.args.positional[0].get<Loop*>())->index % choices];
}

Value changed(Bound& b) {
  Loop& loop = **b.args.positional[0].get<Loop*>();
  const Value now = b.heap.list({b.args.positional.begin() + 1, b.args.positional.end()}, List::Kind::kTuple);
  if (loop.has_changed && equals(b.heap, loop.changed, now)) return false;
  loop.changed = now;
  loop.has_changed = true;
  return true;
}

constexpr auto kDictMethods = std::to_array<Builtin>({
    {"clear", "self", clear_dict},
    {"copy", "self", copy_dict},
    {"get", "self key default?", get},
    {"items", "self", items},
    {"keys", "self", keys},
    {"pop", "self key default?", pop_key},
    {"popitem", "self", pop_item},
    {"setdefault", "self key default?", set_default},
    {"update", "self ...", update},
    {"values", "self", values},
});
// The first two are also a tuple's.
constexpr auto kListMethods = std::to_array<Builtin>({
    {"count", "self value", count},
    {"index", "self value start? stop?", index},
    {"append", "self object", append},
    {"clear", "self", clear_list},
    {"copy", "self", copy_list},
    {"extend", "self iterable", extend},
    {"insert", "self index object", insert},
    {"pop", "self index?", pop_index},
    {"remove", "self value", remove},
    {"reverse", "self", reverse},
    {"sort", "self reverse?", sort},
});
constexpr auto kCyclerMethods = std::to_array<Builtin>({{"next", "self", next}, {"reset", "self", reset}});
constexpr auto kLoopMethods = std::to_array<Builtin>({{"changed", "self ...", changed}, {"cycle", "self ...", cycle}});

}  // namespace

void update_dict(Heap& heap, Dict* dict, const Value& source) {
  if (const Dict* other = source.dict(); other && !other->is_namespace) {
    const auto all = other->items;  // a copy: a mapping may be updated with itself
    for (const auto& [key, value] : all) heap.set(dict, key, value);
    return;
  }
  for (const Value& item : sequence(heap, source)->items) {
    const List* both = sequence(heap, item);
    if (both->items.size() != 2) raise("a mapping is made of pairs, not of {} values", both->items.size());
    heap.set(dict, both->items[0], both->items[1]);
  }
}

const Builtin* find_method(const Value& self, std::string_view name) {
  BuiltinTable table;
  if (self.text()) {
    table = text_methods();
  } else if (const Dict* dict = self.dict()) {
    if (!dict->is_namespace) table = kDictMethods;
  } else if (const List* list = self.list()) {
    if (list->kind == List::Kind::kList) table = kListMethods;
    if (list->is_tuple() || list->kind == List::Kind::kRange) table = BuiltinTable(kListMethods).first(2);
  } else if (self.is<Loop*>()) {
    table = kLoopMethods;
  } else if (Counter* const* counter = self.get<Counter*>(); counter && !(*counter)->is_joiner) {
    table = kCyclerMethods;
  }
  return find_builtin(table, name);
}

}  // namespace tern::text::jinja
