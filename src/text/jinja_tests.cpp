// What can follow `is`. Facts: jinja2's tests.py.
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"
#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

template <typename T>
Value is_a(Bound& b) {
  return b[0].is<T>();
}

Value defined(Bound& b) {
  return !b[0].is<Undefined>();
}

template <bool kWanted>
Value is_bool(Bound& b) {
  const bool* value = b[0].get<bool>();
  return value && *value == kWanted;
}

Value number(Bound& b) {
  return b[0].number().has_value();
}

Value mapping(Bound& b) {
  return b[0].dict() && !b[0].dict()->is_namespace;
}

Value sequence_test(Bound& b) {
  const List* list = b[0].list();
  return b[0].text() || (list && list->has_index()) || truth(mapping(b)) || b[0].is<Undefined>();
}

Value iterable_test(Bound& b) {
  return iterable(b[0]);
}

Value callable(Bound& b) {
  Counter* const* counter = b[0].get<Counter*>();
  return b[0].is<Function*>() || b[0].is<Macro*>() || b[0].is<Loop*>() || b[0].is<Undefined>() ||
         (counter && (*counter)->is_joiner);
}

// Python's islower() and isupper(): some character has that case, and none the other.
Value has_case(Bound& b, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  const std::string text = b.str(0);
  bool found = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_char(text, pos);
    if (other(c)) return false;
    found |= wanted(c);
  }
  return found;
}
Value lower_test(Bound& b) {
  return has_case(b, is_lower, is_upper);
}
Value upper_test(Bound& b) {
  return has_case(b, is_upper, is_lower);
}

Value remainder_is(Bound& b, const Value& divisor, std::int64_t wanted) {
  return equals(b.heap, modulo(b.heap, b[0], divisor), Value::integer(wanted));
}
Value odd(Bound& b) {
  return remainder_is(b, Value::integer(2), 1);
}
Value even(Bound& b) {
  return remainder_is(b, Value::integer(2), 0);
}
Value divisible_by(Bound& b) {
  return remainder_is(b, b[1], 0);
}

Value same_as(Bound& b) {
  return same_object(b[0], b[1]);
}
Value escaped(Bound& b) {
  return b[0].text() && b[0].text()->markup;
}
Value filter_exists(Bound& b) {
  return find_filter(b.text(0)) != nullptr;
}
Value test_exists(Bound& b) {
  return find_test(b.text(0)) != nullptr;
}

Value in(Bound& b) {
  return b.interp.contains(b[1], b[0]);
}
Value eq(Bound& b) {
  return equals(b.heap, b[0], b[1]);
}
Value ne(Bound& b) {
  return !equals(b.heap, b[0], b[1]);
}
Value lt(Bound& b) {
  return compare(b.heap, b[0], b[1]) == -1;
}
Value le(Bound& b) {
  return compare(b.heap, b[0], b[1]) <= 0;
}
Value gt(Bound& b) {
  return compare(b.heap, b[0], b[1]) == 1;
}
Value ge(Bound& b) {
  return compare(b.heap, b[1], b[0]) <= 0;
}

constexpr auto kTests = std::to_array<Builtin>({
    {"!=", "value other", ne},
    {"<", "value other", lt},
    {"<=", "value other", le},
    {"==", "value other", eq},
    {">", "value other", gt},
    {">=", "value other", ge},
    {"boolean", "value", is_a<bool>},
    {"callable", "value", callable},
    {"defined", "value", defined},
    {"divisibleby", "value num", divisible_by},
    {"eq", "value other", eq},
    {"equalto", "value other", eq},
    {"escaped", "value", escaped},
    {"even", "value", even},
    {"false", "value", is_bool<false>},
    {"filter", "value", filter_exists},
    {"float", "value", is_a<double>},
    {"ge", "value other", ge},
    {"greaterthan", "value other", gt},
    {"gt", "value other", gt},
    {"in", "value seq", in},
    {"integer", "value", is_a<Int>},
    {"iterable", "value", iterable_test},
    {"le", "value other", le},
    {"lessthan", "value other", lt},
    {"lower", "value", lower_test},
    {"lt", "value other", lt},
    {"mapping", "value", mapping},
    {"ne", "value other", ne},
    {"none", "value", is_a<None>},
    {"number", "value", number},
    {"odd", "value", odd},
    {"sameas", "value other", same_as},
    {"sequence", "value", sequence_test},
    {"string", "value", is_a<Str>},
    {"test", "value", test_exists},
    {"true", "value", is_bool<true>},
    {"undefined", "value", is_a<Undefined>},
    {"upper", "value", upper_test},
});

}  // namespace

BuiltinTable tests() {
  return kTests;
}

}  // namespace tern::text::jinja
