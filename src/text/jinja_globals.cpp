// Functions that every template has: jinja2's own, and the two that transformers adds.
#include <algorithm>
#include <array>
#include <ctime>

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"

namespace tern::text::jinja {
namespace {

constexpr Int kMaxRange = 100'000;  // the limit of jinja2's sandbox

Value range(Bound& b) {
  const Int first = b.integer(0, 0);
  const Int from = b.has(1) ? first : 0;
  const Int to = b.has(1) ? b.integer(1, 0) : first;
  const Int step = b.integer(2, 1);
  if (step == 0) raise("range() cannot have a step of zero");
  for (const Int n : {from, to, step}) {
    if (n > (Int{1} << 100) || n < -(Int{1} << 100)) raise("range() is out of range");
  }
  const Int span = step > 0 ? to - from : from - to;
  const Int stride = step > 0 ? step : -step;
  const Int count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (count > kMaxRange) raise("range() makes {} items; at most {} are allowed", count, kMaxRange);
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) items.emplace_back(from + i * step);
  return b.heap.list(std::move(items), List::Kind::kRange);
}

Value make_dict(Bound& b) {
  Dict* out = b.heap.dict();
  if (b.args.positional.size() > 1) raise("dict() takes one mapping");
  if (!b.args.positional.empty()) update_dict(b.heap, out, b.args.positional[0]);
  for (const auto& [name, value] : b.args.named) b.heap.set(out, name, value);
  return out;
}

Value make_namespace(Bound& b) {
  Value out = make_dict(b);
  out.dict()->is_namespace = true;
  return out;
}

Value cycler(Bound& b) {
  if (b.args.positional.empty()) raise("cycler() needs values to go through");
  return b.heap.make(Counter{false, b.args.positional, 0});
}

Value joiner(Bound& b) {
  return b.heap.make(Counter{true, {b.has(0) ? b[0] : b.heap.str(", ")}, 0});
}

Value raise_exception(Bound& b) {
  raise("{}", b.str(0));
}

Value strftime_now(Bound& b) {
  const std::string format = b.text(0).c_str();  // Python's ends at a NUL, too
  const std::time_t now = Clock::to_time_t(b.interp.now());
  std::tm local{};
  localtime_r(&now, &local);
  // A trailing mark tells an empty result from one that does not fit.
  std::string out(4096, '\0');
  const std::size_t size = std::strftime(out.data(), out.size(), (format + "|").c_str(), &local);
  if (size == 0) raise("strftime_now() makes more than {} bytes", out.size());
  out.resize(size - 1);
  return b.heap.str(std::move(out));
}

constexpr auto kGlobals = std::to_array<Builtin>({
    {"cycler", "...", cycler},
    {"dict", "...", make_dict},
    {"joiner", "sep?", joiner},
    {"namespace", "...", make_namespace},
    {"raise_exception", "message", raise_exception},
    {"range", "start stop? step?", range},
    {"strftime_now", "format", strftime_now},
});

}  // namespace

BuiltinTable globals() {
  return kGlobals;
}

}  // namespace tern::text::jinja
