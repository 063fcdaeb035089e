// What templates can call: tables of filters, tests, methods and functions, and how arguments reach them.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace tern::text::jinja {

class Interp;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> named;  // a string and its value
};

/// The arguments of one call, bound to the parameters of a Builtin. The first one is the value before '|', 'is' or '.'.
class Bound {
 public:
  Bound(Interp& interp, const Builtin& builtin, Args& args);

  Interp& interp;
  Heap& heap;
  Args& args;

  bool has(std::size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](std::size_t i) const;  // undefined when not given
  bool flag(std::size_t i, bool fallback = false) const { return has(i) ? truth(*values_[i]) : fallback; }
  /// An int (or a bool); raises on anything else. None counts as not given.
  Int integer(std::size_t i, Int fallback) const;
  /// An int that is a size: clamped to [min, 2^31], so that it can be computed with.
  std::int64_t size(std::size_t i, std::int64_t fallback, std::int64_t min = 0) const;
  /// A string; raises on anything else.
  const std::string& text(std::size_t i) const;
  /// str(value); "" when not given.
  std::string str(std::size_t i) const;

 private:
  std::string_view name_;
  std::array<const Value*, 8> values_{};
};

struct Builtin {
  std::string_view name;
  /// Names in order, a '?' after the optional ones; "..." at the end: the rest stays in Bound::args.
  std::string_view params;
  Value (*call)(Bound&);
};

using BuiltinTable = std::span<const Builtin>;
/// Null when there is none of that name.
const Builtin* find_builtin(BuiltinTable table, std::string_view name);
Value call_builtin(Interp& interp, const Builtin& builtin, Args& args);

BuiltinTable text_filters();
BuiltinTable sequence_filters();
BuiltinTable tests();
BuiltinTable globals();
BuiltinTable text_methods();
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
/// The method of that name that Python gives a value of this type.
const Builtin* find_method(const Value& self, std::string_view name);

/// dict.update(source): a mapping, or pairs.
void update_dict(Heap& heap, Dict* dict, const Value& source);

// Operators.
Value add(Heap& heap, const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value multiply(Heap& heap, const Value& a, const Value& b);
Value divide(const Value& a, const Value& b);
Value floor_divide(const Value& a, const Value& b);
Value modulo(Heap& heap, const Value& a, const Value& b);
Value power(const Value& a, const Value& b);
Value negate(const Value& a);
/// Int from a double that is whole after truncation; raises when it has none (inf, nan, too large).
Int truncated(double value);

// Text.
/// The text of `value` as an operand of the string `self`: escaped when `self` is markup and `value` is not.
std::string operand(Heap& heap, const Text& self, const Value& value);
/// text.replace(from, to, count); count -1: all.
std::string replace_all(Heap& heap, const std::string& text, const std::string& from, const std::string& to,
                        std::int64_t count);
/// "..." % value.
Value format_percent(Heap& heap, const Text& format, const Value& value);
Value format_percent(Heap& heap, const Text& format, const Dict& named);
/// "...".format(...).
Value format_braces(Interp& interp, const Text& format, const Args& args);

/// json.dumps. indent < 0: on one line. `indent_text` is one level of it.
struct JsonStyle {
  bool ascii = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace tern::text::jinja
