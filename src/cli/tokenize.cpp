// tern tokenize: text to token ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "gguf/file.h"
#include "text/tokenizer.h"

namespace tern::cli {
namespace {

struct Flags {
  FileFlags file;
  std::string text, text_file;
  bool no_special = false, plain = false, ids = false, json = false;
};

int tokenize(const Flags& flags) {
  const gguf::File file = gguf::File::open(flags.file.resolve());
  const auto tokenizer = text::Tokenizer::from_metadata(file.metadata());
  std::string text = flags.text;
  if (!flags.text_file.empty()) text = read_text_file(flags.text_file);
  if (text.empty() && flags.text_file.empty() && stdin_has_text()) text = read_stdin();
  const auto ids = tokenizer.encode(text, {.add_special = !flags.no_special, .parse_special = !flags.plain});
  if (flags.json) {
    nlohmann::ordered_json pieces = nlohmann::json::array();
    for (const int32_t id : ids) pieces.push_back(tokenizer.token_text(id));
    const nlohmann::ordered_json out{{"tokens", ids}, {"pieces", pieces}};
    print_json(out);
  } else if (flags.ids) {
    fmt::print("{}\n", fmt::join(ids, ","));
  } else {
    Table table({">ID", "TOKEN"});
    for (const int32_t id : ids) table.add({fmt::format("{}", id), tokenizer.token_text(id)});
    fmt::print("{}{} tokens\n", table.text(), ids.size());
  }
  return 0;
}

}  // namespace

Action setup_tokenize(FlagSet& set) {
  const auto flags = std::make_shared<Flags>();
  flags->file.declare(set, false);
  set.option("-p,--prompt,--text,TEXT", flags->text, "the text (default: stdin)");
  set.option("-f,--file", flags->text_file, "take the text from a file").excludes("--text");
  set.flag("--no-special", flags->no_special, "do not add the tokens that begin and end a text");
  set.flag("--plain", flags->plain, "read control tokens spelled out in the text as text");
  set.flag("--ids", flags->ids, "print the ids only, separated by commas");
  set.flag("--json", flags->json, "as one JSON object");
  return [flags] { return tokenize(*flags); };
}

}  // namespace tern::cli
