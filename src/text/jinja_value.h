// The values of a chat template: Python's, as far as templates can tell. Strings are immutable and counted; lists,
// dicts and the rest belong to the Heap of one rendering and die with it, so a template may build cycles and nothing
// leaks.
//
// A sequence remembers what it is in Python (list, tuple, generator, view...), because templates can see the
// difference: an empty generator is true, has no length, and can be read only once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "text/jinja_limits.h"

namespace tern::text::jinja {

/// 128 bits: holds every number of a JSON document and more. Arithmetic past it is an error, never a wrapped number.
using Int = __int128_t;

/// A template that failed. Internal: Template turns it into tern::Error with the line number.
class Failure : public std::runtime_error {
 public:
  Failure(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Fails the rendering (kInvalidArgument: this conversation does not go through this template).
template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

struct Text {
  std::string bytes;   // UTF-8
  std::size_t chars;   // counted once: a template may ask for it in a loop
  bool markup;         // the result of |safe or |escape: joining it to a plain string escapes that string
  std::size_t* meter;  // live bytes of the Heap that paid for it; null for a constant of the template
  bool ascii() const { return chars == bytes.size(); }
  ~Text();
};
using Str = std::shared_ptr<const Text>;

struct Undefined {
  std::shared_ptr<const std::string> what;  // what to say when it is used, e.g. "'x' is undefined"
};
struct None {};
class Heap;
struct List;
struct Dict;
struct Function;
struct Macro;
struct Loop;
struct Counter;

class Value {
 public:
  using Storage =
      std::variant<Undefined, None, bool, Int, double, Str, List*, Dict*, Function*, Macro*, Loop*, Counter*>;

  Value() = default;
  template <typename T>
  requires(std::is_same_v<T, Undefined> || std::is_same_v<T, None> || std::is_same_v<T, bool> ||
           std::is_same_v<T, Int> || std::is_same_v<T, double> || std::is_same_v<T, Str> || std::is_pointer_v<T>)
      Value(T value)
      : storage_(std::move(value)) {}  // NOLINT(google-explicit-constructor): a Value is any of these
  static Value integer(std::int64_t n) { return Value(static_cast<Int>(n)); }

  template <typename T>
  bool is() const noexcept {
    return std::holds_alternative<T>(storage_);
  }
  template <typename T>
  const T* get() const noexcept {
    return std::get_if<T>(&storage_);
  }
  const Storage& storage() const noexcept { return storage_; }

  /// The text of a string, null for anything else.
  const Text* text() const noexcept {
    const Str* s = get<Str>();
    return s ? s->get() : nullptr;
  }
  List* list() const noexcept { return pointer<List>(); }
  Dict* dict() const noexcept { return pointer<Dict>(); }
  /// Python's isinstance(x, int): True and False are 1 and 0.
  std::optional<Int> integer() const noexcept;
  /// An int, bool or float as double.
  std::optional<double> number() const noexcept;

 private:
  template <typename T>
  T* pointer() const noexcept {
    T* const* p = get<T*>();
    return p ? *p : nullptr;
  }
  Storage storage_;
};

struct List {
  enum class Kind { kList, kTuple, kGroup, kRange, kGenerator, kKeys, kValues, kItems };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  std::size_t next = 0;  // kGenerator: items read so far

  bool has_length() const noexcept { return kind != Kind::kGenerator; }
  bool has_index() const noexcept { return kind <= Kind::kRange; }
  bool is_tuple() const noexcept { return kind == Kind::kTuple || kind == Kind::kGroup; }
};

/// Insertion order; also a namespace(), whose attributes are its items. Look-up is a scan: keys are few.
struct Dict {
  bool is_namespace = false;
  std::vector<std::pair<Value, Value>> items;

  Value* find(Heap& heap, const Value& key);
  Value* find(std::string_view key);
};

struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro or a recursive loop may look at it later
  std::vector<std::pair<std::string_view, Value>> vars;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;  // this scope, then outwards; null when nowhere
};

struct Builtin;
struct Stmt;

/// A built-in function, or a method bound to its object (`self`).
struct Function {
  const Builtin* builtin = nullptr;
  Value self;
  bool bound = false;
};
struct Macro {
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;
};
/// The `loop` of one for statement; also callable, when the statement is recursive.
struct Loop {
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;
  List* items = nullptr;
  std::size_t index = 0;
  std::size_t depth = 0;
  Value changed;
  bool has_changed = false;
};
/// cycler(...) and joiner(...).
struct Counter {
  bool is_joiner = false;
  std::vector<Value> items;
  std::size_t next = 0;
};

/// Owner and accountant of everything one rendering makes.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Value str(std::string bytes, bool markup = false);
  List* list(List::Kind kind = List::Kind::kList) { return list({}, kind); }
  List* list(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  Dict* dict();
  /// Scopes are the one thing that is given back while rendering: loops and calls would pile them up.
  Scope* scope(Scope* parent);
  void release(Scope* scope);  // keeps a captured one
  template <typename T>
  T* make(T object) {
    charge(sizeof(T));
    auto& pool = std::get<std::deque<T>>(pools_);
    pool.push_back(std::move(object));
    return &pool.back();
  }
  void push(List* list, Value value);
  void set(Dict* dict, const Value& key, Value value);  // raises on a key that Python cannot hash

  /// Pays for work; fails when the budget is spent.
  void work(std::uint64_t units) {
    work_ += units;
    if (work_ > limits_.work) out_of_work();
  }
  void touch(std::size_t bytes) { work(1 + bytes / kTextUnit); }
  /// Fails when `bytes` more would not fit: call it before building something large.
  void reserve(std::size_t bytes) const;
  const Limits& limits() const noexcept { return limits_; }

 private:
  void charge(std::size_t bytes);
  [[noreturn]] void out_of_work() const;

  Limits limits_;
  std::size_t text_bytes_ = 0;  // live; declared before the pools, whose strings give bytes back when they die
  std::size_t pool_bytes_ = 0;
  std::uint64_t work_ = 0;
  std::tuple<std::deque<List>, std::deque<Dict>, std::deque<Scope>, std::deque<Function>, std::deque<Macro>,
             std::deque<Loop>, std::deque<Counter>>
      pools_;
  std::vector<Scope*> free_scopes_;
};

/// A string that belongs to no Heap: a constant of a template.
Value constant(std::string bytes);
Value undefined(std::string what);

// Python's view of a value. All raise where Python would; those that walk a value or a long text pay for it.
std::string_view type_name(const Value& value);
bool truth(const Value& value);
bool equals(Heap& heap, const Value& a, const Value& b);
/// -1, 0, 1; raises on types without an order. NaN compares as 2: neither less, equal nor greater.
int compare(Heap& heap, const Value& a, const Value& b);
bool same_object(const Value& a, const Value& b);
/// Raises on a key Python's dict would refuse (list, dict).
void require_hashable(const Value& value);
std::string to_str(Heap& heap, const Value& value);
std::string to_repr(Heap& heap, const Value& value);
std::string float_repr(double value);
/// len(); raises on a value without one.
std::size_t length(const Value& value);
std::size_t length(const Text& text);
bool iterable(const Value& value);
/// The items a for loop would visit: the list itself when there is one, a new list otherwise. Reading a generator uses
/// it up. Raises on a value that cannot be iterated. Pays for one pass over the items.
List* sequence(Heap& heap, const Value& value);

}  // namespace tern::text::jinja
