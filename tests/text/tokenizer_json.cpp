#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "text/spm.h"
#include "text/tokenizer_vocab.h"

namespace tern::text {
namespace {

using nlohmann::json;

json read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(ErrorCode::kNotFound, "{} is missing: run make deps", path);
  return json::parse(in);
}

/// User-defined tokens are looked for in raw text, where SentencePiece's blank is still a blank.
std::string with_plain_blanks(std::string text) {
  for (size_t at = 0; (at = text.find(kSpmBlank, at)) != std::string::npos;) text.replace(at, kSpmBlank.size(), " ");
  return text;
}

/// The name of a special token in tokenizer_config.json, which is a string or an object.
std::string name_in(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return {};
  return it->is_object() ? it->at("content").get<std::string>() : it->get<std::string>();
}

/// Both spellings of a merge, "a b" and ["a", "b"].
std::pair<std::string, std::string> halves(const json& merge) {
  if (merge.is_array()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const std::string text = merge.get<std::string>();
  const size_t blank = text.find(' ', 1);
  return {text.substr(0, blank), text.substr(blank + 1)};
}

}  // namespace

gguf::Metadata convert_tokenizer_json(const VocabularySource& source) {
  const json tokenizer = read_json(source.folder + "/tokenizer.json");
  const json config = read_json(source.folder + "/tokenizer_config.json");
  const bool spm = source.model == "llama";

  std::map<int64_t, std::pair<std::string, TokenType>> by_id;
  const json& model = tokenizer.at("model");
  for (const auto& [text, id] : model.at("vocab").items()) by_id[id.get<int64_t>()] = {text, TokenType::kNormal};
  for (const json& added : tokenizer.at("added_tokens")) {
    by_id[added.at("id").get<int64_t>()] = {added.at("content").get<std::string>(), added.at("special").get<bool>()
                                                                                        ? TokenType::kControl
                                                                                        : TokenType::kUserDefined};
  }
  const auto n = static_cast<size_t>(by_id.rbegin()->first + 1);
  std::vector<std::string> tokens(n);
  std::vector<int64_t> types(n, static_cast<int64_t>(TokenType::kUnused));
  std::map<std::string, size_t> ids;
  for (size_t i = 0; i < n; ++i) tokens[i] = fmt::format("[PAD{}]", i);
  for (auto& [id, token] : by_id) {
    auto& [text, type] = token;
    const auto i = static_cast<size_t>(id);
    if (spm && text.size() == 6 && text.starts_with("<0x")) type = TokenType::kByte;
    if (text == "<unk>") type = TokenType::kUnknown;
    ids[text] = i;
    types[i] = static_cast<int64_t>(type);
    tokens[i] = spm && type == TokenType::kUserDefined ? with_plain_blanks(text) : text;
  }

  gguf::Metadata out;
  out.set_string("general.architecture", "llama");
  out.set_string("tokenizer.ggml.model", source.model);
  if (spm) {
    // SentencePiece scores are not in the JSON, but the order of merges is: the earlier, the higher.
    std::vector<double> scores(n, -static_cast<double>(n) * 100);
    double rank = 0;
    for (const json& merge : model.at("merges")) {
      const auto [left, right] = halves(merge);
      double& score = scores[ids.at(left + right)];
      score = std::max(score, -rank++);
    }
    out.set_f32s("tokenizer.ggml.scores", std::move(scores));
    const json normalizer = tokenizer.at("normalizer");
    out.set_bool("tokenizer.ggml.add_space_prefix", normalizer.dump().find("Prepend") != std::string::npos);
  } else {
    out.set_string("tokenizer.ggml.pre", source.pre);
    std::vector<std::string> merges;
    for (const json& merge : model.at("merges")) {
      const auto [left, right] = halves(merge);
      merges.push_back(left + " " + right);
    }
    out.set_strings("tokenizer.ggml.merges", std::move(merges));
  }
  const std::pair<const char*, const char*> specials[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                                          {"eos_token", "tokenizer.ggml.eos_token_id"},
                                                          {"unk_token", "tokenizer.ggml.unknown_token_id"}};
  for (const auto& [name, key] : specials) {
    if (const auto it = ids.find(name_in(config, name)); it != ids.end())
      out.set_u32(key, static_cast<uint32_t>(it->second));
  }
  out.set_strings("tokenizer.ggml.tokens", std::move(tokens));
  out.set_i32s("tokenizer.ggml.token_type", std::move(types));
  return out;
}

}  // namespace tern::text
