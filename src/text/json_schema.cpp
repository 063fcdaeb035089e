#include "text/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "text/grammar.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kMaxDepth = 100;
constexpr int32_t kMaxVisits = 20'000;

// White space is short: a model that has lost its way must not print blanks for ever. For the same reason numbers end
// after 16 digits. Lone surrogates are no text, so their escapes come in pairs.
constexpr std::string_view kCommonRules = R"GBNF(
ws ::= (" " | "\n" [ \t]{0,32})?
hex ::= [0-9a-fA-F]
char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CeEfF] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2}))
string ::= "\"" char* "\""
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
number ::= integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?
boolean ::= "true" | "false"
null ::= "null"
member ::= string ws ":" ws value ws
object ::= "{" ws (member ("," ws member)*)? "}"
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
value ::= object | array | string | number | boolean | null
)GBNF";

const std::set<std::string_view> kAnnotations = {
    "title",   "description", "default",  "examples",  "example",         "$schema",          "$id",   "$comment",
    "$anchor", "deprecated",  "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "$defs", "definitions"};
const std::set<std::string_view> kObjectWords = {"properties", "required", "additionalProperties", "minProperties",
                                                 "maxProperties"};
const std::set<std::string_view> kArrayWords = {"items",    "prefixItems", "additionalItems",
                                                "minItems", "maxItems",    "uniqueItems"};
const std::set<std::string_view> kStringWords = {"minLength", "maxLength", "pattern", "format"};
const std::set<std::string_view> kNumberWords = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                 "multipleOf"};
const std::set<std::string_view> kCommonWords = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};

[[noreturn]] void unsupported(const std::string& path, std::string_view word, std::string_view why = {}) {
  fail(ErrorCode::kUnsupported, "the schema's '{}' at {} cannot be enforced{}{}: leave it out", word, path,
       why.empty() ? "" : ", ", why);
}
[[noreturn]] void wrong(const std::string& path, std::string_view what) {
  fail(ErrorCode::kInvalidArgument, "the schema is wrong at {}: {}", path, what);
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "integer")
    return value.is_number_integer() || (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
  if (type == "number") return value.is_number();
  return value.type_name() == type;
}

class SchemaWriter {
 public:
  SchemaWriter(const Json& root, std::string name) : root_(root), name_(std::move(name)) {}

  std::string write(const std::string& pointer) {
    const std::string expression = reference(pointer, pointer);
    std::string out = fmt::format("{} ::= {}\n", name_, expression);
    for (const std::string& rule : rules_) out += rule;
    if (!refer_back_.empty()) require_end(out);
    return out;
  }

 private:
  /// Of a schema that refers to itself: it may do so before it says anything, or without an end. The grammar sees that,
  /// and would tell it by the names of its rules.
  void require_end(const std::string& rules) const {
    try {
      Grammar::from_gbnf(std::string(rules).append(kCommonRules), name_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      wrong(fmt::format("{}", fmt::join(refer_back_, " and ")),
            "a '$ref' leads back there with nothing in between, or without an end");
    }
  }

  /// A new rule; returns its name.
  std::string rule(const std::string& expression) {
    std::string name = fmt::format("{}-{}", name_, ++count_);
    rules_.push_back(fmt::format("{} ::= {}\n", name, expression));
    return name;
  }

  /// The rule of a schema somewhere in this document: one a place, however often and from wherever it is meant.
  std::string reference(const std::string& pointer, const std::string& path) {
    const auto [it, added] = references_.try_emplace(pointer);
    if (added) {
      std::string name = fmt::format("{}-ref{}-", name_, references_.size());
      for (const char c : pointer)
        name += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '-';
      it->second = name;
      open_.insert(pointer);
      const std::string expression = visit(target(pointer, path), pointer);
      open_.erase(pointer);
      rules_.push_back(fmt::format("{} ::= {}\n", name, expression));
      return name;
    }
    if (open_.contains(pointer)) refer_back_.insert(pointer);
    return it->second;
  }

  const Json& target(const std::string& pointer, const std::string& path) const {
    if (pointer.empty() || pointer[0] != '#')
      unsupported(path, "$ref", fmt::format("'{}' is not in this document", pointer));
    try {
      return root_.at(Json::json_pointer(pointer.substr(1)));
    } catch (const Json::exception&) {
      wrong(path, fmt::format("'$ref' points to '{}', which is not there", pointer));
    }
  }

  std::string visit(const Json& schema, const std::string& path) {
    if (++visits_ > kMaxVisits) fail(ErrorCode::kUnsupported, "the schema has more than {} parts", kMaxVisits);
    if (depth_ >= kMaxDepth) fail(ErrorCode::kUnsupported, "the schema is nested more than {} deep", kMaxDepth);
    ++depth_;
    std::string out = visit_here(schema, path);
    --depth_;
    return out;
  }

  std::string visit_here(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) unsupported(path, "false", "nothing matches it");
      return "value";
    }
    if (!schema.is_object()) wrong(path, "a schema is an object");
    Json flat = without_annotations(schema, path);
    if (flat.size() == 1 && flat.contains("$ref")) return reference(ref_of(flat, path), path);
    flat = flattened(flat, path);
    for (const char* word : {"anyOf", "oneOf"})
      if (flat.contains(word)) return choice(flat, word, path);
    if (flat.contains("const")) return literals(flat, Json::array({flat["const"]}), path);
    if (flat.contains("enum")) return literals(flat, flat["enum"], path);
    if (!flat.contains("type")) return typed(flat, implied_type(flat), path);
    if (flat["type"].is_string()) return typed(flat, flat["type"].get<std::string>(), path);
    if (!flat["type"].is_array() || flat["type"].empty()) wrong(path + "/type", "a type is a name or a list of names");
    std::string out;
    for (const Json& type : flat["type"]) {
      if (!type.is_string()) wrong(path + "/type", "a type is a name or a list of names");
      out += (out.empty() ? "" : " | ") + typed(flat, type.get<std::string>(), path);
    }
    return "(" + out + ")";
  }

  /// What says something about the answer. Refuses words that nothing here enforces.
  static Json without_annotations(const Json& schema, const std::string& path) {
    Json out = Json::object();
    for (const auto& [word, value] : schema.items()) {
      if (kAnnotations.contains(word) || word.starts_with("x-")) continue;
      const auto knows = [&name = word](const std::set<std::string_view>& words) { return words.contains(name); };
      if (!knows(kObjectWords) && !knows(kArrayWords) && !knows(kStringWords) && !knows(kNumberWords) &&
          !knows(kCommonWords))
        unsupported(path, word);
      out[word] = value;
    }
    return out;
  }

  static std::string ref_of(const Json& schema, const std::string& path) {
    if (!schema["$ref"].is_string()) wrong(path + "/$ref", "a reference is a string");
    return schema["$ref"].get<std::string>();
  }

  /// Without allOf and $ref: their words put together.
  Json flattened(const Json& schema, const std::string& path) {
    Json out = schema;
    out.erase("allOf");
    out.erase("$ref");
    const auto add = [&](const Json& part, const std::string& where) {
      if (++visits_ > kMaxVisits || depth_ >= kMaxDepth)
        fail(ErrorCode::kUnsupported, "the schema's allOf and $ref at {} nest too deep", path);
      ++depth_;
      if (!part.is_object()) wrong(where, "a schema is an object");
      out = merged(out, flattened(without_annotations(part, where), where), path);
      --depth_;
    };
    if (schema.contains("$ref")) add(target(ref_of(schema, path), path), ref_of(schema, path));
    if (schema.contains("allOf")) {
      if (!schema["allOf"].is_array()) wrong(path + "/allOf", "a list of schemas is expected");
      for (size_t i = 0; i < schema["allOf"].size(); ++i) add(schema["allOf"][i], fmt::format("{}/allOf/{}", path, i));
    }
    return out;
  }

  /// A schema that both hold for; kUnsupported where that is not one of these words.
  static Json merged(const Json& a, const Json& b, const std::string& path) {
    if (a.empty()) return b;
    if (b.empty()) return a;
    for (const Json* part : {&a, &b})
      if (part->contains("additionalProperties") && a.contains("properties") && b.contains("properties") &&
          a["properties"] != b["properties"])
        unsupported(path, "additionalProperties", "together with the properties of another part of allOf");
    Json out = a;
    for (const auto& [word, value] : b.items()) {
      if (!out.contains(word)) {
        out[word] = value;
      } else if (word == "properties" && value.is_object() && out[word].is_object()) {
        for (const auto& [name, property] : value.items()) {
          if (out[word].contains(name) && out[word][name] != property)
            unsupported(path, "allOf", fmt::format("it describes '{}' twice", name));
          out[word][name] = property;
        }
      } else if (word == "required" && value.is_array() && out[word].is_array()) {
        for (const Json& name : value)
          if (std::find(out[word].begin(), out[word].end(), name) == out[word].end()) out[word].push_back(name);
      } else if (out[word] != value) {
        unsupported(path, word, "there are two of it in allOf or beside anyOf");
      }
    }
    return out;
  }

  std::string choice(Json flat, const std::string& word, const std::string& path) {
    const Json parts = flat[word];
    flat.erase(word);
    if (!parts.is_array() || parts.empty()) wrong(path + "/" + word, "a list of schemas is expected");
    std::string out;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string where = fmt::format("{}/{}/{}", path, word, i);
      const Json* part = &parts[i];
      Json both;
      if (!flat.empty()) {
        if (!part->is_object()) wrong(where, "a schema is an object");
        both = merged(flat, flattened(without_annotations(*part, where), where), where);
        part = &both;
      }
      out += (i == 0 ? "" : " | ") + visit(*part, where);
    }
    return "(" + out + ")";
  }

  static std::string literals(const Json& flat, const Json& values, const std::string& path) {
    if (!values.is_array() || values.empty()) wrong(path + "/enum", "a list of values is expected");
    std::string out;
    for (const Json& value : values) {
      const auto matches = [&](const Json& type) {
        return type.is_string() && has_type(value, type.get<std::string>());
      };
      const Json types = !flat.contains("type")    ? Json()
                         : flat["type"].is_array() ? flat["type"]
                                                   : Json::array({flat["type"]});
      if (!types.is_null() && std::none_of(types.begin(), types.end(), matches)) continue;
      out += (out.empty() ? "" : " | ") + gbnf_literal(value.dump());
    }
    if (out.empty()) wrong(path, "none of its values has its type");
    for (const auto& [word, value] : flat.items())
      if (word != "type" && word != "enum" && word != "const") unsupported(path, word, "beside enum or const");
    if (flat.contains("enum") && flat.contains("const")) unsupported(path, "enum", "beside const");
    return "(" + out + ")";
  }

  static std::string implied_type(const Json& flat) {
    const auto any_of = [&](const std::set<std::string_view>& words) {
      return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return flat.contains(word); });
    };
    if (any_of(kObjectWords)) return "object";
    if (any_of(kArrayWords)) return "array";
    if (any_of(kStringWords)) return "string";
    if (any_of(kNumberWords)) return "number";
    return "";
  }

  std::string typed(const Json& flat, const std::string& type, const std::string& path) {
    if (type.empty()) return "value";
    if (type == "object") return object(flat, path);
    if (type == "array") return array(flat, path);
    if (type == "string") return string(flat, path);
    if (type == "integer" || type == "number") return number(flat, type == "integer", path);
    if (type == "boolean" || type == "null") return type;
    wrong(path + "/type", fmt::format("'{}' is no type of JSON", type));
  }

  static std::optional<int64_t> size_of(const Json& flat, const char* word, const std::string& path) {
    if (!flat.contains(word)) return std::nullopt;
    const Json& value = flat[word];
    if (!has_type(value, "integer") || value.get<double>() < 0) wrong(path + "/" + word, "a count is a number from 0");
    if (value.get<double>() > 100'000) unsupported(path, word, "it is above 100000");
    return value.get<int64_t>();
  }

  std::string object(const Json& flat, const std::string& path) {
    if (!flat.contains("properties") && !flat.contains("required") && !flat.contains("additionalProperties") &&
        !flat.contains("minProperties") && !flat.contains("maxProperties"))
      return "object";
    Json properties = flat.value("properties", Json::object());
    const Json required = flat.value("required", Json::array());
    if (!properties.is_object()) wrong(path + "/properties", "an object is expected");
    if (!required.is_array()) wrong(path + "/required", "a list of names is expected");
    // Without the word others are left out: that too is an answer the schema describes.
    const bool bare = properties.empty() && !flat.contains("properties");
    const Json others = flat.value("additionalProperties", Json(bare));
    const bool others_known = flat.contains("additionalProperties");
    for (const Json& name : required) {
      if (!name.is_string()) wrong(path + "/required", "a list of names is expected");
      if (properties.contains(name.get<std::string>())) continue;
      if (others_known && others == Json(false))
        wrong(path + "/required", fmt::format("{} is no property", name.dump()));
      properties[name.get<std::string>()] = others_known ? others : Json(true);
    }
    if (const auto least = size_of(flat, "minProperties", path);
        least && *least > static_cast<int64_t>(required.size()))
      unsupported(path, "minProperties", "it is above the number of required ones");
    if (const auto most = size_of(flat, "maxProperties", path);
        most && (others != Json(false) || *most < static_cast<int64_t>(properties.size())))
      unsupported(path, "maxProperties", "it is below the number of possible ones");

    // From the last to the first: what may follow when nothing is written yet, and when something is.
    std::vector<std::string> names;
    for (const auto& [name, property] : properties.items()) names.push_back(name);
    std::string first = R"("")", more = R"("")";
    if (others != Json(false)) {
      const std::string value = visit(others, path + "/additionalProperties");
      const std::string member = rule(fmt::format(R"({} ws ":" ws {} ws)", gbnf_of_other_strings(names), value));
      more = fmt::format(R"(("," ws {})*)", member);
      first = fmt::format(R"(({} {})?)", member, more);
    }
    for (size_t i = names.size(); i-- > 0;) {
      const std::string value = visit(properties[names[i]], path + "/properties/" + names[i]);
      const std::string member = rule(fmt::format(R"({} ws ":" ws {} ws)", gbnf_literal(Json(names[i]).dump()), value));
      const std::string rest = rule(more);
      const bool needed = std::find(required.begin(), required.end(), Json(names[i])) != required.end();
      first = needed ? fmt::format("{} {}", member, rest) : fmt::format("({} {} | {})", member, rest, rule(first));
      more = needed ? fmt::format(R"("," ws {} {})", member, rest) : fmt::format(R"(("," ws {})? {})", member, rest);
    }
    return rule(fmt::format(R"("{{" ws {} "}}")", first));
  }

  std::string array(const Json& flat, const std::string& path) {
    Json tuple = flat.value("prefixItems", Json::array());
    Json items = flat.value("items", Json(tuple.empty()));
    if (items.is_array()) {  // a tuple as written before 2020
      tuple = items;
      items = flat.value("additionalItems", Json(false));
    }
    if (!tuple.is_array()) wrong(path + "/prefixItems", "a list of schemas is expected");
    if (flat.value("uniqueItems", Json(false)) != Json(false)) unsupported(path, "uniqueItems");
    const auto fixed = static_cast<int64_t>(tuple.size());
    const int64_t least = std::max<int64_t>(0, size_of(flat, "minItems", path).value_or(0) - fixed);
    const auto given_most = size_of(flat, "maxItems", path);
    if (given_most && *given_most < fixed + least) wrong(path + "/maxItems", "it is below the least number of items");
    std::optional<int64_t> most;
    if (given_most) most = *given_most - fixed;
    if (items == Json(false)) {
      if (least > 0) wrong(path + "/minItems", "it is above the number of possible items");
      most = 0;
    }
    std::string out;
    for (int64_t i = 0; i < fixed; ++i)
      out += (i == 0 ? "" : R"("," ws )") +
             visit(tuple[static_cast<size_t>(i)], fmt::format("{}/prefixItems/{}", path, i)) + " ws ";
    if (most != 0) {
      const std::string item = rule(visit(items, path + "/items") + " ws");
      const auto range = [&](int64_t low) {
        return most ? fmt::format("{{{},{}}}", low, *most - (fixed == 0 ? 1 : 0)) : fmt::format("{{{},}}", low);
      };
      if (fixed > 0) {
        out += fmt::format(R"(("," ws {}){})", item, range(least));
      } else {
        const std::string list = fmt::format(R"({} ("," ws {}){})", item, item, range(std::max<int64_t>(0, least - 1)));
        out += least > 0 ? list : "(" + list + ")?";
      }
    }
    return rule(fmt::format(R"("[" ws {} "]")", out));
  }

  std::string string(const Json& flat, const std::string& path) {
    const auto least = size_of(flat, "minLength", path), most = size_of(flat, "maxLength", path);
    if (least && most && *most < *least) wrong(path + "/maxLength", "it is below minLength");
    std::optional<std::string> pattern;
    if (flat.contains("pattern")) {
      if (!flat["pattern"].is_string()) wrong(path + "/pattern", "a regular expression is a string");
      pattern = flat["pattern"].get<std::string>();
    }
    if (flat.contains("format")) {
      if (pattern) unsupported(path, "format", "beside a pattern");
      const auto known =
          flat["format"].is_string() ? pattern_of_format(flat["format"].get<std::string>()) : std::nullopt;
      if (!known) unsupported(path, "format", fmt::format("{} is not known", flat["format"].dump()));
      pattern = *known;
    }
    if (pattern) {
      if (least.value_or(0) > 0 || most)
        unsupported(path, least ? "minLength" : "maxLength", "beside a pattern or format");
      return rule(fmt::format(R"("\"" {} "\"")", gbnf_of_pattern(*pattern, path + "/pattern")));
    }
    if (!least && !most) return "string";
    return rule(fmt::format(R"("\"" char{{{},{}}} "\"")", least.value_or(0), most ? std::to_string(*most) : ""));
  }

  static std::optional<Bound> bound(const Json& flat, const char* plain, const char* exclusive, bool low, bool integer,
                                    const std::string& path) {
    std::optional<Bound> out;
    for (const char* word : {plain, exclusive}) {
      if (!flat.contains(word)) continue;
      if (!flat[word].is_number()) unsupported(path, word, "it is no number");
      const double value = flat[word].get<double>();
      if (std::abs(value) > 1e15) unsupported(path, word, "it is beyond 10^15");
      const double whole = low ? std::ceil(value) : std::floor(value);
      if (whole != value && !integer) unsupported(path, word, "it is no integer");
      const Bound bound{static_cast<int64_t>(whole), word == exclusive && whole == value};
      const bool tighter = !out || (low ? bound.value > out->value : bound.value < out->value) ||
                           (bound.value == out->value && bound.exclusive);
      if (tighter) out = bound;
    }
    return out;
  }

  std::string number(const Json& flat, bool integer, const std::string& path) {
    if (flat.contains("multipleOf") && !(integer && flat["multipleOf"] == Json(1))) unsupported(path, "multipleOf");
    const auto low = bound(flat, "minimum", "exclusiveMinimum", true, integer, path);
    const auto high = bound(flat, "maximum", "exclusiveMaximum", false, integer, path);
    if (!low && !high) return integer ? "integer" : "number";
    const auto out = integer ? gbnf_of_integers(low, high) : gbnf_of_numbers(low, high);
    if (!out) wrong(path, "no number lies between its minimum and its maximum");
    return rule(*out);
  }

  const Json& root_;
  const std::string name_;
  std::vector<std::string> rules_;
  std::map<std::string, std::string> references_;
  std::set<std::string> open_, refer_back_;  // pointers: being visited; those that something within refers to
  int32_t count_ = 0, depth_ = 0, visits_ = 0;
};

}  // namespace

std::string gbnf_of_schema_part(const Json& document, const std::string& pointer, const std::string& name) {
  return SchemaWriter(document, name).write(pointer);
}

std::string_view gbnf_common_rules() {
  return kCommonRules;
}

std::string gbnf_of_schema(const Json& schema) {
  return gbnf_of_schema_part(schema, "#", "root").append(kCommonRules);
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(const Json& schema) {
  return from_gbnf(gbnf_of_schema(schema));
}

}  // namespace tern::text
