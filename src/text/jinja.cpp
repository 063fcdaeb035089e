#include "text/jinja.h"

#include "text/jinja_builtins.h"
#include "text/jinja_interp.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"
#include "text/unicode.h"

namespace tern::text::jinja {

struct Program {
  Block body;
};

namespace {

using Json = nlohmann::ordered_json;

Value text_value(Heap& heap, const std::string& s) {
  std::string storage;
  return heap.str(std::string(valid_utf8(s, storage)));
}

Value from_json(Heap& heap, const Json& json, int depth = 0) {
  heap.work(1);
  if (depth > kMaxNesting) raise("the conversation is nested more than {} levels deep", kMaxNesting);
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return Value(Int{json.get<std::int64_t>()});
    case Json::value_t::number_unsigned:
      return Value(Int{json.get<std::uint64_t>()});
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return text_value(heap, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      List* list = heap.list();
      for (const Json& item : json) heap.push(list, from_json(heap, item, depth + 1));
      return list;
    }
    case Json::value_t::object: {
      Dict* dict = heap.dict();
      for (const auto& [key, value] : json.items())
        heap.set(dict, text_value(heap, key), from_json(heap, value, depth + 1));
      return dict;
    }
    default:
      return None{};
  }
}

}  // namespace

Template Template::parse(std::string_view source, const Limits& limits) {
  try {
    Template out;
    out.program_ = std::make_shared<const Program>(Program{jinja::parse(source, limits)});
    out.limits_ = limits;
    return out;
  } catch (const SyntaxFailure& e) {
    fail(e.code(), "chat template, line {}: {}", e.line(), e.what());
  }
}

Template Template::limited_to(const Limits& limits) const {
  Template out = *this;
  out.limits_ = limits;
  return out;
}

std::string Template::render(const Json& variables, std::chrono::system_clock::time_point now) const {
  Heap heap(limits_);
  Dict* globals = heap.dict();
  Interp interp(heap, globals, now);
  try {
    for (const auto& [key, value] : variables.items()) {
      heap.set(globals, text_value(heap, key), from_json(heap, value));
    }
    return interp.render(program_->body);
  } catch (const Failure& e) {
    fail(e.code(), "chat template, line {}: {}", interp.line(), e.what());
  }
}

std::string python_json(const Json& value) {
  Heap heap{Limits{}};
  try {
    return to_json(heap, from_json(heap, value), JsonStyle{});
  } catch (const Failure& e) {
    fail(e.code(), "{}", e.what());
  }
}

}  // namespace tern::text::jinja
