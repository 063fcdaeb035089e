// Tokens into a tree. The grammar and its precedences are those of jinja2's parser.py, with the tags that transformers
// adds (break, continue, generation). Tags that need other templates (extends, include, import, block) are refused by
// name.
#pragma once
#include <string_view>

#include "text/jinja_ast.h"
#include "text/jinja_limits.h"

namespace tern::text::jinja {

/// Throws SyntaxFailure.
Block parse(std::string_view source, const Limits& limits);

}  // namespace tern::text::jinja
