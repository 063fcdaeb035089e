#include "text/jinja_builtins.h"

#include <algorithm>

#include "text/jinja_interp.h"

namespace tern::text::jinja {
namespace {

// The next word of `params`, which it is cut from.
std::string_view next_word(std::string_view& params) {
  const std::size_t end = std::min(params.find(' '), params.size());
  const std::string_view word = params.substr(0, end);
  params.remove_prefix(std::min(end + 1, params.size()));
  return word;
}

const Value kMissing = undefined("an argument was not given");

}  // namespace

Bound::Bound(Interp& in, const Builtin& builtin, Args& given)
    : interp(in), heap(in.heap()), args(given), name_(builtin.name) {
  std::string_view params = builtin.params;
  std::vector<bool> used(args.named.size());
  std::size_t count = 0;
  bool variadic = false;
  while (!params.empty()) {
    std::string_view word = next_word(params);
    variadic = word == "...";
    if (variadic) break;
    const bool optional = word.ends_with('?');
    if (optional) word.remove_suffix(1);
    const Value*& slot = values_[count];
    if (count < args.positional.size()) slot = &args.positional[count];
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first.text()->bytes != word) continue;
      if (slot) raise("{}() got its argument '{}' twice", name_, word);
      slot = &args.named[i].second;
      used[i] = true;
    }
    if (!slot && !optional) raise("{}() is missing its argument '{}'", name_, word);
    ++count;
  }
  if (variadic) return;
  if (args.positional.size() > count) {
    raise("{}() takes at most {} arguments, {} were given", name_, count, args.positional.size());
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) raise("{}() has no argument '{}'", name_, args.named[i].first.text()->bytes);
  }
}

const Value& Bound::operator[](std::size_t i) const {
  return values_[i] ? *values_[i] : kMissing;
}

Int Bound::integer(std::size_t i, Int fallback) const {
  if (!has(i) || values_[i]->is<None>()) return fallback;
  const auto n = values_[i]->integer();
  if (!n) raise("{}() needs an integer, got a value of type '{}'", name_, type_name(*values_[i]));
  return *n;
}

std::int64_t Bound::size(std::size_t i, std::int64_t fallback, std::int64_t min) const {
  return static_cast<std::int64_t>(std::clamp(integer(i, fallback), Int{min}, Int{1} << 31));
}

const std::string& Bound::text(std::size_t i) const {
  const Text* text = (*this)[i].text();
  if (!text) raise("{}() needs a string, got a value of type '{}'", name_, type_name((*this)[i]));
  return text->bytes;
}

std::string Bound::str(std::size_t i) const {
  return has(i) ? to_str(heap, *values_[i]) : std::string();
}

const Builtin* find_builtin(BuiltinTable table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Builtin* find_filter(std::string_view name) {
  const Builtin* found = find_builtin(text_filters(), name);
  return found ? found : find_builtin(sequence_filters(), name);
}

const Builtin* find_test(std::string_view name) {
  return find_builtin(tests(), name);
}

Value call_builtin(Interp& interp, const Builtin& builtin, Args& args) {
  // Every built-in is linear in its text arguments; what it makes is paid for where it is made.
  const auto pay = [&](const Value& value) {
    if (const Text* text = value.text()) interp.heap().touch(text->bytes.size());
  };
  for (const Value& value : args.positional) pay(value);
  for (const auto& [name, value] : args.named) pay(value);
  Bound bound(interp, builtin, args);
  return builtin.call(bound);
}

}  // namespace tern::text::jinja
