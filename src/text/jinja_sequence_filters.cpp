// Filters on sequences and mappings. What Python makes lazily (map, select, batch...) is made at once here, but still
// is a generator to the template: true even when empty, without length, read once. Facts: jinja2's filters.py.
#include <algorithm>
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"
#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

Value generator(Heap& heap, std::vector<Value> items) {
  return heap.list(std::move(items), List::Kind::kGenerator);
}

bool is_all_digits(std::string_view s) {
  return !s.empty() && s.size() < 10 && s.find_first_not_of("0123456789") == s.npos;
}

// "a.b.0": the value at that path, by items before attributes. None: the value itself.
Value at_path(Bound& b, Value value, const Value& path, const Value* fallback = nullptr) {
  if (path.is<None>()) return value;
  const Text* text = path.text();
  if (!text) return b.interp.get_item(value, path);
  for (const std::string_view part : split_at(text->bytes, ".", -1, false)) {
    const Value key =
        is_all_digits(part) ? Value::integer(std::stol(std::string(part))) : b.heap.str(std::string(part));
    value = b.interp.get_item(value, key);
    if (fallback && !fallback->is<None>() && value.is<Undefined>()) value = *fallback;
  }
  return value;
}

Value without_case(Heap& heap, const Value& value) {
  return value.text() ? heap.str(lower(value.text()->bytes)) : value;
}

// A sort key: the value at a path (parameter `path_at`), in lower case unless the flag at `case_at` says otherwise.
Value key_of(Bound& b, const Value& item, const Value& path, bool case_sensitive, const Value* fallback = nullptr) {
  Value value = at_path(b, item, path, fallback);
  return case_sensitive ? value : without_case(b.heap, value);
}

Value path_of(Bound& b, std::size_t i) {
  return b.has(i) ? b[i] : Value(None{});
}

// Items by their keys, stable in both directions like Python's sorted().
struct Keyed {
  Value key;
  Value item;
};
void sort_keyed(Heap& heap, std::vector<Keyed>& items, bool reverse) {
  if (items.size() == 1) return;
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& x, const Keyed& y) {
    return reverse ? compare(heap, y.key, x.key) == -1 : compare(heap, x.key, y.key) == -1;
  });
}

Value sort(Bound& b) {
  const Value path = path_of(b, 3);
  std::vector<Keyed> items;
  for (const Value& item : sequence(b.heap, b[0])->items) {
    List* key = b.heap.list();
    if (const Text* text = path.text()) {
      for (const std::string_view part : split_at(text->bytes, ",", -1, false)) {
        b.heap.push(key, key_of(b, item, b.heap.str(std::string(part)), b.flag(2)));
      }
    } else {
      b.heap.push(key, key_of(b, item, path, b.flag(2)));
    }
    items.push_back({key, item});
  }
  sort_keyed(b.heap, items, b.flag(1));
  List* out = b.heap.list();
  for (Keyed& k : items) b.heap.push(out, std::move(k.item));
  return out;
}

Value dict_sort(Bound& b) {
  const Dict* dict = b[0].dict();
  if (!dict || dict->is_namespace) raise("dictsort() needs a mapping, got a value of type '{}'", type_name(b[0]));
  const std::string by = b.has(2) ? b.text(2) : "key";
  if (by != "key" && by != "value") raise("dictsort() sorts by 'key' or 'value', not '{}'", by);
  std::vector<Keyed> items;
  for (const auto& [key, value] : dict->items) {
    const Value& used = by == "key" ? key : value;
    items.push_back({b.flag(1) ? used : without_case(b.heap, used), b.heap.list({key, value}, List::Kind::kTuple)});
  }
  sort_keyed(b.heap, items, b.flag(3));
  List* out = b.heap.list();
  for (Keyed& k : items) b.heap.push(out, std::move(k.item));
  return out;
}

Value unique(Bound& b) {
  std::vector<Value> out;
  std::vector<Value> seen;
  const Value path = path_of(b, 2);
  for (const Value& item : sequence(b.heap, b[0])->items) {
    Value key = key_of(b, item, path, b.flag(1));
    require_hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equals(b.heap, s, key); })) continue;
    seen.push_back(std::move(key));
    out.push_back(item);
  }
  return generator(b.heap, std::move(out));
}

Value extreme(Bound& b, int wanted) {
  const List* items = sequence(b.heap, b[0]);
  if (items->items.empty()) return undefined("an empty sequence has no smallest or largest item");
  const Value path = path_of(b, 2);
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items->items) {
    Value key = key_of(b, item, path, b.flag(1));
    if (best && compare(b.heap, key, best_key) != wanted) continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}
Value smallest(Bound& b) {
  return extreme(b, -1);
}
Value largest(Bound& b) {
  return extreme(b, 1);
}

Value sum(Bound& b) {
  Value total = b.has(2) ? b[2] : Value::integer(0);
  if (total.text()) raise("sum() cannot add strings: use join()");
  for (const Value& item : sequence(b.heap, b[0])->items) total = add(b.heap, total, at_path(b, item, path_of(b, 1)));
  return total;
}

Value join(Bound& b) {
  const std::string separator = b.has(1) ? to_str(b.heap, b[1]) : std::string();
  std::string out;
  bool first = true;
  for (const Value& item : sequence(b.heap, b[0])->items) {
    if (!first) out += separator;
    first = false;
    out += to_str(b.heap, at_path(b, item, path_of(b, 2)));
    b.heap.reserve(out.size());
  }
  return b.heap.str(std::move(out));
}

Value first(Bound& b) {
  if (List* list = b[0].list(); list && list->kind == List::Kind::kGenerator) {
    if (list->next < list->items.size()) return list->items[list->next++];
  } else if (const List* items = sequence(b.heap, b[0]); !items->items.empty()) {
    return items->items[0];
  }
  return undefined("an empty sequence has no first item");
}

void require_reversible(const Value& value) {
  const List* list = value.list();
  if (list && !list->has_length()) raise("a generator cannot be read from its end: make it a list");
}

Value last(Bound& b) {
  require_reversible(b[0]);
  const List* items = sequence(b.heap, b[0]);
  return items->items.empty() ? undefined("an empty sequence has no last item") : items->items.back();
}

Value reverse(Bound& b) {
  if (const Text* text = b[0].text()) {
    std::string out;
    for (std::size_t end = text->bytes.size(); end > 0;) {
      std::size_t start = end - 1;
      while (start > 0 && (static_cast<unsigned char>(text->bytes[start]) & 0xC0) == 0x80) --start;
      out.append(text->bytes, start, end - start);
      end = start;
    }
    return b.heap.str(std::move(out), text->markup);
  }
  const List* source = b[0].list();
  std::vector<Value> items = sequence(b.heap, b[0])->items;
  std::reverse(items.begin(), items.end());
  const bool was_generator = source && !source->has_length();
  return b.heap.list(std::move(items), was_generator ? List::Kind::kList : List::Kind::kGenerator);
}

Value list(Bound& b) {
  return b.heap.list(std::vector<Value>(sequence(b.heap, b[0])->items));
}

Value items(Bound& b) {
  std::vector<Value> out;
  if (b[0].is<Undefined>()) return generator(b.heap, {});
  const Dict* dict = b[0].dict();
  if (!dict || dict->is_namespace) raise("items() needs a mapping, got a value of type '{}'", type_name(b[0]));
  for (const auto& [key, value] : dict->items) out.push_back(b.heap.list({key, value}, List::Kind::kTuple));
  return generator(b.heap, std::move(out));
}

Value attr(Bound& b) {
  // Attributes only: a mapping's items are none.
  const Dict* dict = b[0].dict();
  if (find_method(b[0], b.text(1)) || (!b[0].is<Undefined>() && (!dict || dict->is_namespace))) {
    return b.interp.get_attr(b[0], b.text(1));
  }
  return undefined(fmt::format("a value of type '{}' has no attribute '{}'", type_name(b[0]), b.text(1)));
}

// The arguments after the first `skip`, with a new first one.
Args rest_of(const Args& args, std::size_t skip, const Value& value) {
  Args out;
  out.positional.push_back(value);
  out.positional.insert(out.positional.end(), args.positional.begin() + static_cast<std::ptrdiff_t>(skip),
                        args.positional.end());
  out.named = args.named;
  return out;
}

Value map(Bound& b) {
  const Args& args = b.args;
  if (!truth(b[0])) return generator(b.heap, {});
  std::vector<Value> out;
  if (args.positional.size() > 1) {
    const Text* name = args.positional[1].text();
    if (!name) raise("map() needs the name of a filter");
    for (const Value& item : sequence(b.heap, b[0])->items) {
      out.push_back(b.interp.call_filter(name->bytes, rest_of(args, 2, item)));
    }
    return generator(b.heap, std::move(out));
  }
  const Value* path = nullptr;
  const Value* fallback = nullptr;
  for (const auto& [name, value] : args.named) {
    const std::string& key = name.text()->bytes;
    if (key == "attribute") {
      path = &value;
    } else if (key == "default") {
      fallback = &value;
    } else {
      raise("map() has no argument '{}'", key);
    }
  }
  if (!path) raise("map() needs the name of a filter or attribute=...");
  for (const Value& item : sequence(b.heap, b[0])->items) out.push_back(at_path(b, item, *path, fallback));
  return generator(b.heap, std::move(out));
}

// select, reject, selectattr, rejectattr.
Value filtered(Bound& b, bool keep, bool by_attribute) {
  const Args& args = b.args;
  if (!truth(b[0])) return generator(b.heap, {});
  const std::size_t skip = by_attribute ? 2 : 1;
  if (args.positional.size() < skip) raise("the name of an attribute is missing");
  const Text* test = nullptr;
  if (args.positional.size() > skip) {
    test = args.positional[skip].text();
    if (!test) raise("the name of a test is missing");
  }
  std::vector<Value> out;
  for (const Value& item : sequence(b.heap, b[0])->items) {
    const Value value = by_attribute ? at_path(b, item, args.positional[1]) : item;
    const bool passed = test ? b.interp.call_test(test->bytes, rest_of(args, skip + 1, value)) : truth(value);
    if (passed == keep) out.push_back(item);
  }
  return generator(b.heap, std::move(out));
}
Value select(Bound& b) {
  return filtered(b, true, false);
}
Value reject(Bound& b) {
  return filtered(b, false, false);
}
Value select_attr(Bound& b) {
  return filtered(b, true, true);
}
Value reject_attr(Bound& b) {
  return filtered(b, false, true);
}

Value batch(Bound& b) {
  const auto size = static_cast<std::size_t>(b.size(1, 1));
  const List* source = sequence(b.heap, b[0]);
  std::vector<Value> out;
  List* group = nullptr;
  for (const Value& item : source->items) {
    if (!group || group->items.size() == size) out.push_back(group = b.heap.list());
    b.heap.push(group, item);
  }
  if (group && b.has(2) && !b[2].is<None>()) {
    while (group->items.size() < size) b.heap.push(group, b[2]);
  }
  return generator(b.heap, std::move(out));
}

Value slice(Bound& b) {
  const std::vector<Value>& all = sequence(b.heap, b[0])->items;
  const auto slices = static_cast<std::size_t>(b.size(1, 1));
  if (slices == 0) raise("slice() cannot make 0 slices");
  const std::size_t each = all.size() / slices;
  const std::size_t longer = all.size() % slices;
  std::vector<Value> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t end = at + each + (i < longer ? 1 : 0);
    List* group = b.heap.list(std::vector<Value>(all.begin() + static_cast<std::ptrdiff_t>(at),
                                                 all.begin() + static_cast<std::ptrdiff_t>(end)));
    if (b.has(2) && !b[2].is<None>() && i >= longer) b.heap.push(group, b[2]);
    out.push_back(group);
    at = end;
  }
  return generator(b.heap, std::move(out));
}

Value group_by(Bound& b) {
  const Value path = b[1];
  const Value* fallback = b.has(2) ? &b[2] : nullptr;
  std::vector<Keyed> items;
  for (const Value& item : sequence(b.heap, b[0])->items) {
    items.push_back({key_of(b, item, path, b.flag(3), fallback), item});
  }
  sort_keyed(b.heap, items, false);
  List* out = b.heap.list();
  List* group = nullptr;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i == 0 || !equals(b.heap, items[i - 1].key, items[i].key)) {
      group = b.heap.list();
      b.heap.push(out, b.heap.list({at_path(b, items[i].item, path, fallback), group}, List::Kind::kGroup));
    }
    b.heap.push(group, items[i].item);
  }
  return out;
}

constexpr auto kFilters = std::to_array<Builtin>({
    {"attr", "obj name", attr},
    {"batch", "value linecount fill_with?", batch},
    {"dictsort", "value case_sensitive? by? reverse?", dict_sort},
    {"first", "seq", first},
    {"groupby", "value attribute default? case_sensitive?", group_by},
    {"items", "value", items},
    {"join", "value d? attribute?", join},
    {"last", "seq", last},
    {"list", "value", list},
    {"map", "value ...", map},
    {"max", "value case_sensitive? attribute?", largest},
    {"min", "value case_sensitive? attribute?", smallest},
    {"reject", "value ...", reject},
    {"rejectattr", "value ...", reject_attr},
    {"reverse", "value", reverse},
    {"select", "value ...", select},
    {"selectattr", "value ...", select_attr},
    {"slice", "value slices fill_with?", slice},
    {"sort", "value reverse? case_sensitive? attribute?", sort},
    {"sum", "iterable attribute? start?", sum},
    {"unique", "value case_sensitive? attribute?", unique},
});

}  // namespace

BuiltinTable sequence_filters() {
  return kFilters;
}

}  // namespace tern::text::jinja
