// Reading how an answer is drawn (chat_core.h: read_options).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/sampler_settings.h"
#include "server/chat_core.h"
#include "text/json_schema.h"

namespace tern::server {
namespace {

constexpr int64_t kMostChoices = 16, kMostStops = 64;
constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr double kMostBias = 1e6;  // far beyond any logit, and far from overflowing one

/// "--repeat-penalty,--x" -> the names a client may use: "repeat_penalty", "x".
std::vector<std::string> field_names(const SamplerSetting& setting) {
  std::vector<std::string> names;
  for (std::string_view rest = setting.flags; !rest.empty();) {
    const std::string_view flag = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), flag.size() + 1));
    if (!flag.starts_with("--")) continue;
    std::string name(flag.substr(2));
    std::replace(name.begin(), name.end(), '-', '_');
    names.push_back(std::move(name));
  }
  if (setting.name() == "repeat-penalty") names.emplace_back("repetition_penalty");
  return names;
}

void read_sampling(Body& body, SamplerOptions& sampling) {
  for (const SamplerSetting& setting : sampler_settings())
    for (const std::string& name : field_names(setting))
      if (const auto value = body.number(name)) {
        if (!(*value >= setting.low && *value <= setting.high))
          throw bad_request(
              name, fmt::format("'{}' is {}, and must be within {}..{}", name, *value, setting.low, setting.high));
        if (setting.whole()) body.integer(name, INT32_MIN, INT32_MAX);  // refuses fractions by the name that was used
        setting.set(sampling, *value);
      }
  // Samplers that tern may lack; where sampler_settings() has them they are known by now.
  for (const char* name : {"xtc_probability", "dynatemp_range", "mirostat", "dry_multiplier"}) body.neutral(name, 0);
  for (const char* name : {"typical_p", "typ_p"}) body.neutral(name, 1);
  body.neutral("top_n_sigma", -1);
  // Of samplers that are off.
  body.ignore({"xtc_threshold", "dynatemp_exponent", "mirostat_tau", "mirostat_eta", "dry_base", "dry_allowed_length",
               "dry_penalty_last_n", "dry_sequence_breakers"});
}

int32_t token_of(const std::string& text, const text::Tokenizer& tokenizer, const char* param) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0 || id >= tokenizer.n_vocab())
    throw bad_request(param,
                      fmt::format("'{}' of {} is no token: ids are 0..{}", text, param, tokenizer.n_vocab() - 1));
  return id;
}

float bias_of(const Json& value) {
  if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
  const double bias = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(std::abs(bias) <= kMostBias))
    throw bad_request("logit_bias", fmt::format("a bias must be a number within -{0}..{0}, or false to ban the token: "
                                                "it is {1}",
                                                kMostBias, value.dump()));
  return static_cast<float>(bias);
}

/// OpenAI's {"id": bias}, or llama.cpp's [[id or text, bias or false], ...].
void read_bias(Body& body, const text::Tokenizer& tokenizer, Request& request) {
  const Json* bias = body.any("logit_bias");
  if (!bias) return;
  if (bias->is_object()) {
    for (const auto& [key, value] : bias->items())
      request.logit_bias.emplace_back(token_of(key, tokenizer, "logit_bias"), bias_of(value));
    return;
  }
  if (!bias->is_array()) throw bad_request("logit_bias", "'logit_bias' must be an object from token ids to numbers");
  for (const Json& pair : *bias) {
    if (!pair.is_array() || pair.size() != 2)
      throw bad_request("logit_bias", "an entry of 'logit_bias' must be a pair");
    if (pair[0].is_string()) {
      for (const int32_t id : tokenizer.encode(pair[0].get<std::string>(), {.add_special = false}))
        request.logit_bias.emplace_back(id, bias_of(pair[1]));
    } else {
      request.logit_bias.emplace_back(token_of(pair[0].dump(), tokenizer, "logit_bias"), bias_of(pair[1]));
    }
  }
}

/// response_format, json_schema and grammar: at most one of them.
void read_grammar(Body& body, GenerationOptions& options) {
  const auto set = [&](const char* param, const auto& text) {
    if (options.request.grammar)
      throw bad_request(param, "only one of 'response_format', 'json_schema' and 'grammar' can hold");
    try {
      options.grammar_text = text();
      options.request.grammar = text::Grammar::from_gbnf(options.grammar_text);
    } catch (const Error& error) {
      throw bad_request(param, error.what());
    }
  };
  if (const auto text = body.string("grammar"); text && !text->empty()) {
    set("grammar", [&] { return *text; });
    options.own_grammar = true;
  }
  if (const Json* schema = body.object("json_schema"); schema && !schema->empty())
    set("json_schema", [&] { return text::gbnf_of_schema(*schema); });
  const Json* format = body.object("response_format");
  if (!format) return;
  const Json type = format->value("type", Json(""));
  if (type == "text") return;
  // llama.cpp takes the schema beside the type, OpenAI within json_schema.
  const Json* schema = format->contains("schema") ? &(*format)["schema"] : nullptr;
  if (format->contains("json_schema") && (*format)["json_schema"].is_object() &&
      (*format)["json_schema"].contains("schema"))
    schema = &(*format)["json_schema"]["schema"];
  if (type == "json_object" || type == "json_schema") {
    if (type == "json_schema" && (!schema || schema->is_null()))
      throw bad_request("response_format", "'response_format' has no schema");
    set("response_format", [&] { return text::gbnf_of_schema(schema ? *schema : Json{{"type", "object"}}); });
    return;
  }
  throw bad_request(
      "response_format",
      fmt::format("the type of 'response_format' must be text, json_object or json_schema, not {}", type.dump()));
}

void read_limits(Body& body, Request& request) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"})  // clients of llama.cpp say -1 in each
    if (const auto n = body.integer(name, -1, kMostTokens)) {
      if (*n == 0) throw bad_request(name, fmt::format("'{}' must be at least 1, or -1 for what fits", name));
      request.max_tokens = *n;
    }
  request.stop = body.strings("stop");
  if (static_cast<int64_t>(request.stop.size()) > kMostStops)
    throw bad_request("stop", fmt::format("{} stop strings; at most {} are taken", request.stop.size(), kMostStops));
  std::erase(request.stop, "");
  request.ignore_end = body.boolean("ignore_eos").value_or(false);
  request.cache_prompt = body.boolean("cache_prompt").value_or(true);
}

}  // namespace

GenerationOptions read_options(Body& body, const ServedModel& model) {
  GenerationOptions options;
  options.request.sampling = model.sampling;
  read_sampling(body, options.request.sampling);
  read_limits(body, options.request);
  if (const Json* tokens = body.array("stop_token_ids"))
    for (const Json& id : *tokens)
      options.request.stop_tokens.push_back(token_of(id.dump(), model.tokenizer(), "stop_token_ids"));
  read_bias(body, model.tokenizer(), options.request);
  read_grammar(body, options);
  options.choices = static_cast<int32_t>(body.integer("n", 1, kMostChoices).value_or(1));
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX); seed && *seed != -1)
    options.seed = static_cast<uint64_t>(*seed);
  options.stream = body.boolean("stream").value_or(false);
  if (const Json* stream = body.object("stream_options")) {
    if (!options.stream) throw bad_request("stream_options", "'stream_options' needs \"stream\": true");
    const Json usage = stream->value("include_usage", Json(false));
    if (!usage.is_boolean())
      throw bad_request("stream_options", "'include_usage' of 'stream_options' is true or false");
    options.include_usage = usage.get<bool>();
  }
  body.boolean("timings_per_token");  // timings are told at the end, asked for or not
  options.return_progress = body.boolean("return_progress").value_or(false);
  // Who asks and where it is kept change no answer.
  body.ignore({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
               "cache_salt", "slot_id", "id_slot"});
  body.integer("t_max_predict_ms", -1, 0);  // no limit of time
  body.neutral("store", false);
  return options;
}

}  // namespace tern::server
