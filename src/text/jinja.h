// A Jinja template, parsed once and rendered many times: what Python's jinja2 does with it, configured as transformers
// configures it for chat templates (trim_blocks, lstrip_blocks, break and continue, the generation tag, tojson without
// HTML escapes, raise_exception, strftime_now; undefined values print as nothing and fail when used).
//
// Not done: other templates (extends, include, import, block), autoescape, the filters random, pprint, urlize,
// wordwrap, striptags and xmlattr, the addresses in the text of functions and generators, and case mappings that change
// the number of characters (other than the German sharp s).
#pragma once
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/jinja_limits.h"

namespace tern::text::jinja {

struct Program;

class Template {
 public:
  /// Throws tern::Error{kBadFile} with the line of what is no Jinja.
  static Template parse(std::string_view source, const Limits& limits = {});

  /// The same template under other limits.
  Template limited_to(const Limits& limits) const;

  /// `variables` (an object) are the template's global names; objects keep the order of their keys. Strings that are
  /// not UTF-8 get U+FFFD where they are not. Throws tern::Error with the line: kInvalidArgument when the template
  /// fails on these variables, kUnsupported for what this evaluator does not know or a limit that was hit,
  /// kOutOfMemory. Thread-safe.
  std::string render(const nlohmann::ordered_json& variables, std::chrono::system_clock::time_point now) const;

 private:
  std::shared_ptr<const Program> program_;
  Limits limits_;
};

/// json.dumps(value, ensure_ascii=False): how Python, and so every chat template, spells JSON.
std::string python_json(const nlohmann::ordered_json& value);

}  // namespace tern::text::jinja
