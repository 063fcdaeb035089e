// Arithmetic on values: Python's rules, within 128-bit integers.
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_text.h"

namespace tern::text::jinja {
namespace {

[[noreturn]] void refuse(std::string_view op, const Value& a, const Value& b) {
  if (const Undefined* u = a.get<Undefined>()) raise("{}", *u->what);
  if (const Undefined* u = b.get<Undefined>()) raise("{}", *u->what);
  raise("'{}' does not work on '{}' and '{}'", op, type_name(a), type_name(b));
}

[[noreturn]] void too_large() {
  raise("an integer grows past 128 bits");
}

// Floor division and its remainder, which has the sign of `b`.
double floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r == 0 ? std::copysign(0.0, b) : r;
}

Value add_texts(Heap& heap, const Text& a, const Text& b) {
  heap.reserve(a.bytes.size() + b.bytes.size());
  if (a.markup == b.markup) return heap.str(a.bytes + b.bytes, a.markup);
  return heap.str(a.markup ? a.bytes + escape_html(b.bytes) : escape_html(a.bytes) + b.bytes, true);
}

std::size_t repeats(Heap& heap, Int count, std::size_t size) {
  if (count <= 0 || size == 0) return 0;
  if (count > (Int{1} << 40)) heap.reserve(std::size_t{1} << 60);
  heap.reserve(static_cast<std::size_t>(count) * size);
  return static_cast<std::size_t>(count);
}

bool is_plain_list(const Value& v) {
  return v.list() && (v.list()->kind == List::Kind::kList || v.list()->is_tuple());
}

}  // namespace

Int truncated(double value) {
  if (!(std::fabs(value) < 1e38)) raise("{} is no integer", float_repr(value));
  return static_cast<Int>(value);
}

std::string operand(Heap& heap, const Text& self, const Value& value) {
  const Text* text = value.text();
  if (text && text->markup) return text->bytes;
  return self.markup ? escape_html(to_str(heap, value)) : to_str(heap, value);
}

Value add(Heap& heap, const Value& a, const Value& b) {
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) {
    Int out;
    if (__builtin_add_overflow(*x, *y, &out)) too_large();
    return out;
  }
  const auto p = a.number();
  const auto q = b.number();
  if (p && q) return *p + *q;
  if (a.text() && b.text()) return add_texts(heap, *a.text(), *b.text());
  if (is_plain_list(a) && is_plain_list(b) && a.list()->is_tuple() == b.list()->is_tuple()) {
    const List& left = *a.list();
    const List& right = *b.list();
    heap.reserve((left.items.size() + right.items.size()) * sizeof(Value));
    std::vector<Value> items = left.items;
    items.insert(items.end(), right.items.begin(), right.items.end());
    return heap.list(std::move(items), left.is_tuple() ? List::Kind::kTuple : List::Kind::kList);
  }
  refuse("+", a, b);
}

Value subtract(const Value& a, const Value& b) {
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) {
    Int out;
    if (__builtin_sub_overflow(*x, *y, &out)) too_large();
    return out;
  }
  const auto p = a.number();
  const auto q = b.number();
  if (!p || !q) refuse("-", a, b);
  return *p - *q;
}

Value multiply(Heap& heap, const Value& a, const Value& b) {
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) {
    Int out;
    if (__builtin_mul_overflow(*x, *y, &out)) too_large();
    return out;
  }
  const auto p = a.number();
  const auto q = b.number();
  if (p && q) return *p * *q;
  const auto count = x ? x : y;
  const Value& repeated = x ? b : a;
  if (count && repeated.text()) {
    const Text& text = *repeated.text();
    std::string out;
    for (std::size_t n = repeats(heap, *count, text.bytes.size()); n > 0; --n) out += text.bytes;
    return heap.str(std::move(out), text.markup);
  }
  if (count && is_plain_list(repeated)) {
    const List& list = *repeated.list();
    std::vector<Value> items;
    for (std::size_t n = repeats(heap, *count, list.items.size() * sizeof(Value)); n > 0; --n) {
      items.insert(items.end(), list.items.begin(), list.items.end());
    }
    return heap.list(std::move(items), list.is_tuple() ? List::Kind::kTuple : List::Kind::kList);
  }
  refuse("*", a, b);
}

Value divide(const Value& a, const Value& b) {
  const auto p = a.number();
  const auto q = b.number();
  if (!p || !q) refuse("/", a, b);
  if (*q == 0) raise("division by zero");
  return *p / *q;
}

Value floor_divide(const Value& a, const Value& b) {
  const auto p = a.number();
  const auto q = b.number();
  if (!p || !q) refuse("//", a, b);
  if (*q == 0) raise("division by zero");
  const auto x = a.integer();
  const auto y = b.integer();
  if (!x || !y) return std::floor((*p - floor_mod(*p, *q)) / *q + 0.5);
  if (*y == -1) return negate(a);
  const Int quotient = *x / *y;
  return *x % *y != 0 && (*x < 0) != (*y < 0) ? quotient - 1 : quotient;
}

Value modulo(Heap& heap, const Value& a, const Value& b) {
  if (const Text* format = a.text()) return format_percent(heap, *format, b);
  const auto p = a.number();
  const auto q = b.number();
  if (!p || !q) refuse("%", a, b);
  if (*q == 0) raise("division by zero");
  const auto x = a.integer();
  const auto y = b.integer();
  if (!x || !y) return floor_mod(*p, *q);
  if (*y == -1) return Int{0};
  const Int rest = *x % *y;
  return rest != 0 && (rest < 0) != (*y < 0) ? rest + *y : rest;
}

Value power(const Value& a, const Value& b) {
  const auto p = a.number();
  const auto q = b.number();
  if (!p || !q) refuse("**", a, b);
  const auto x = a.integer();
  auto y = b.integer();
  if (x && y && *y >= 0) {
    Int out = 1;
    Int base = *x;
    for (Int left = *y; left > 0; left >>= 1) {
      if ((left & 1) && __builtin_mul_overflow(out, base, &out)) too_large();
      if (left > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
    }
    return out;
  }
  if (*p == 0 && *q < 0) raise("zero cannot have a negative power");
  const double out = std::pow(*p, *q);
  if (std::isnan(out) && !std::isnan(*p) && !std::isnan(*q)) raise("a negative number cannot have a fractional power");
  if (std::isinf(out) && std::isfinite(*p) && std::isfinite(*q)) raise("a power is too large");
  return out;
}

Value negate(const Value& a) {
  if (const auto n = a.integer()) {
    Int out;
    if (__builtin_sub_overflow(Int{0}, *n, &out)) too_large();
    return out;
  }
  if (const double* d = a.get<double>()) return -*d;
  if (const Undefined* u = a.get<Undefined>()) raise("{}", *u->what);
  raise("a value of type '{}' has no sign", type_name(a));
}

}  // namespace tern::text::jinja
