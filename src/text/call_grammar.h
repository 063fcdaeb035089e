// Grammars that make an answer call a tool, or take a format, in the syntax that the model was trained to write.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "text/reply_parser.h"
#include "text/tokenizer.h"

namespace tern::text {

/// A model whose template shows no calls writes one that it must make as plain JSON.
ToolSyntax syntax_of_forced_calls(ToolSyntax syntax);

/// Rules, the first named "calls", for one call of one of `tools` (as in OpenAI's API, at least one), or for several
/// when `many` and the syntax has a way to write them. They need gbnf_common_rules(). Markup that is a token of the
/// vocabulary must come as that token. Arguments follow the tool's schema; where that says what no grammar can, they
/// are any JSON object, unless the tool is `strict`: then kUnsupported. kInvalidArgument for a wrong schema.
///
/// Parameters in the syntax of kQwenXml are bare text: of a string only its enum is enforced.
std::string gbnf_of_calls(ToolSyntax syntax, const nlohmann::ordered_json& tools, bool many,
                          const Tokenizer& tokenizer);

/// An expression for an answer whose visible text is `content`: with the header that the syntax wants in front of it.
std::string gbnf_of_content(ToolSyntax syntax, const std::string& content, const Tokenizer& tokenizer);

}  // namespace tern::text
