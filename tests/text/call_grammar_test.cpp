#include "text/call_grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "text/grammar.h"
#include "text/json_schema.h"
#include "text/tokenizer_vocabulary.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ReplyDelta::Kind;

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city", "unit"]}}},
  {"type": "function", "function": {"name": "stop"}}])");

// Markup as released models have it: some of it control tokens, some tokens of their own, some ordinary text.
const Tokenizer& vocabulary() {
  static const Tokenizer tokenizer = [] {
    std::vector<std::pair<std::string, TokenType>> others;
    for (const char* text : {"<tool_call>", "</tool_call>"}) others.push_back({text, TokenType::kUserDefined});
    for (const char* text : {"[TOOL_CALLS]", "[ARGS]", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>",
                             "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<|end|>"})
      others.push_back({text, TokenType::kControl});
    gguf::Metadata metadata = byte_level({}, others);
    metadata.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(255 + others.size()));
    return Tokenizer::from_metadata(metadata);
  }();
  return tokenizer;
}

std::shared_ptr<const Grammar> calls(ToolSyntax syntax, const Json& tools = kTools, bool many = true) {
  const std::string rules = gbnf_of_calls(syntax, tools, many, vocabulary());
  return Grammar::from_gbnf(rules + std::string(gbnf_common_rules()), "calls");
}

GrammarState state_of(const std::shared_ptr<const Grammar>& grammar) {
  static const auto table = std::make_shared<const TokenTable>(vocabulary());
  return {grammar, table};
}

bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text, bool markup_as_tokens = true) {
  GrammarState state = state_of(grammar);
  for (const int32_t token : vocabulary().encode(text, {.add_special = false, .parse_special = markup_as_tokens})) {
    if (!state.allows(token)) return false;
    state.accept(token);
  }
  return state.complete();
}

struct Written {
  ToolSyntax syntax;
  const char* begin;
  const char* first;
  const char* second;
  const char* between;
  const char* end;
};
// As the templates of these models write calls.
const Written kWritten[] = {
    {ToolSyntax::kHermesJson, "",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"unit\": \"C\"}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>", "\n", ""},
    {ToolSyntax::kQwenXml, "",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
     "<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>",
     "<tool_call>\n<function=stop>\n</function>\n</tool_call>", "\n", ""},
    {ToolSyntax::kLlama3, "", R"({"name": "get_weather", "parameters": {"city": "Rome", "unit": "C"}})",
     R"({"name": "stop", "parameters": {}})", nullptr, ""},
    {ToolSyntax::kMistral, "[TOOL_CALLS][", R"({"name": "get_weather", "arguments": {"city": "Rome", "unit": "C"}})",
     R"({"name": "stop", "arguments": {}})", ", ", "]"},
    {ToolSyntax::kMistralArgs, "", R"([TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "unit": "C"})",
     "[TOOL_CALLS]stop[ARGS]{}", "", ""},
    {ToolSyntax::kHarmony, "",
     R"(<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome", "unit": "C"})",
     R"(<|start|>assistant<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{})", nullptr, ""},
    {ToolSyntax::kDeepSeek, "<｜tool▁calls▁begin｜>",
     R"(<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome", "unit": "C"}<｜tool▁call▁end｜>)",
     "<｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
    {ToolSyntax::kDeepSeekFenced, "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Rome\", \"unit\": \"C\"}\n```<"
     "｜tool▁call▁end｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n```json\n{}\n```<｜tool▁call▁end｜>", "\n",
     "<｜tool▁calls▁end｜>"},
    {ToolSyntax::kNone, "", R"({"name": "get_weather", "arguments": {"city": "Rome", "unit": "C"}})",
     R"({"name": "stop", "arguments": {}})", nullptr, ""},
};

TEST(CallGrammar, TakesWhatTemplatesWrite) {
  for (const Written& w : kWritten) {
    SCOPED_TRACE(w.first);
    const std::string one = std::string(w.begin) + w.first + w.end;
    EXPECT_TRUE(matches(calls(w.syntax), one));
    EXPECT_TRUE(matches(calls(w.syntax, kTools, false), one));
    EXPECT_TRUE(matches(calls(w.syntax), std::string(w.begin) + w.second + w.end));
    const std::string two = std::string(w.begin) + w.first + (w.between ? w.between : "") + w.second + w.end;
    EXPECT_EQ(matches(calls(w.syntax), two), w.between != nullptr);
    EXPECT_FALSE(matches(calls(w.syntax, kTools, false), two));
    EXPECT_FALSE(matches(calls(w.syntax, Json::array({kTools[1]})), one)) << "another tool";
    EXPECT_FALSE(matches(calls(w.syntax), "Hello.")) << "no call";
    EXPECT_FALSE(matches(calls(w.syntax), ""));
  }
}

TEST(CallGrammar, MarkupThatIsATokenComesAsThatToken) {
  for (const Written& w : kWritten) {
    const std::string one = std::string(w.begin) + w.first + w.end;
    const bool has_tokens = one.find("<tool_call>") != one.npos || one.find("[TOOL") != one.npos ||
                            one.find("<|") != one.npos || one.find("<｜") != one.npos;
    if (w.syntax == ToolSyntax::kHermesJson || w.syntax == ToolSyntax::kQwenXml) {
      // Tokens of their own are found in any text: byte by byte is what must not be.
      GrammarState state = state_of(calls(w.syntax));
      EXPECT_FALSE(state.allows('<'));
      EXPECT_TRUE(state.allows(*vocabulary().find("<tool_call>")));
    } else {
      EXPECT_EQ(matches(calls(w.syntax), one, false), !has_tokens) << one;
    }
  }
}

TEST(CallGrammar, HoldsArgumentsToTheSchemaOfTheTool) {
  const auto json = calls(ToolSyntax::kPlainJson);
  const auto call = [](const std::string& arguments) {
    return R"({"name": "get_weather", "arguments": )" + arguments + "}";
  };
  EXPECT_TRUE(matches(json, call(R"({"city": "Rome", "days": 9, "unit": "F"})")));
  EXPECT_FALSE(matches(json, call(R"({"city": "Rome"})")));
  EXPECT_FALSE(matches(json, call(R"({"city": "Rome", "days": 10, "unit": "F"})")));
  EXPECT_FALSE(matches(json, call(R"({"city": "Rome", "unit": "K"})")));
  EXPECT_FALSE(matches(json, R"({"name": "other", "arguments": {}})"));

  const auto xml = calls(ToolSyntax::kQwenXml);
  const auto tags = [](const std::string& city, const std::string& days, const std::string& unit) {
    std::string out = "<tool_call>\n<function=get_weather>\n";
    if (!city.empty()) out += "<parameter=city>\n" + city + "\n</parameter>\n";
    if (!days.empty()) out += "<parameter=days>\n" + days + "\n</parameter>\n";
    if (!unit.empty()) out += "<parameter=unit>\n" + unit + "\n</parameter>\n";
    return out + "</function>\n</tool_call>";
  };
  EXPECT_TRUE(matches(xml, tags("two\n</para>\nlines <b> \"q\" São", "", "C")));
  EXPECT_TRUE(matches(xml, tags("Rome", "9", "F")));
  EXPECT_FALSE(matches(xml, tags("Rome", "10", "F")));
  EXPECT_FALSE(matches(xml, tags("Rome", "", "K")));
  EXPECT_FALSE(matches(xml, tags("Rome", "", "")));
  EXPECT_FALSE(matches(xml, tags("a</parameter>b", "", "C")));
  EXPECT_FALSE(matches(xml, tags("a\n</function>b", "", "C")));
}

TEST(CallGrammar, WhatNoGrammarCanSayIsLeftFreeUnlessTheToolIsStrict) {
  Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}}])");
  EXPECT_TRUE(matches(calls(ToolSyntax::kPlainJson, tools), R"({"name": "f", "arguments": {"b": 1}})"));
  EXPECT_TRUE(matches(calls(ToolSyntax::kQwenXml, tools),
                      "<tool_call>\n<function=f>\n<parameter=a>\n[1]\n</parameter>\n</function>\n</tool_call>"));
  tools[0]["function"]["strict"] = true;
  for (const ToolSyntax syntax : {ToolSyntax::kPlainJson, ToolSyntax::kQwenXml}) {
    try {
      calls(syntax, tools);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string_view(error.what()).find("'uniqueItems'"), std::string_view::npos) << error.what();
    }
  }
}

/// A text made of tokens that the grammar allows, by chance; nothing when it did not end in time.
std::optional<std::string> random_text(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  GrammarState state = state_of(grammar);
  std::string text;
  for (int i = 0; i < 600 && !state.finished(); ++i) {
    std::vector<float> logits(static_cast<size_t>(vocabulary().n_vocab()), 0.0f);
    state.mask(logits);
    std::vector<int32_t> tokens, printable;
    for (int32_t t = 0; t < vocabulary().n_vocab(); ++t) {
      if (!std::isfinite(logits[static_cast<size_t>(t)])) continue;
      tokens.push_back(t);
      const std::string& piece = vocabulary().piece(t);
      if (piece.size() != 1 || (piece[0] >= ' ' && piece[0] <= '~') || piece[0] == '\n') printable.push_back(t);
    }
    const std::vector<int32_t>& from = printable.empty() || random() % 8 == 0 ? tokens : printable;
    const int32_t token = from.at(random() % from.size());
    if (vocabulary().is_end_of_generation(token)) break;
    state.accept(token);
    text += vocabulary().piece(token, true);
  }
  return state.complete() ? std::optional(text) : std::nullopt;
}

TEST(CallGrammar, WhateverItAllowsIsReadAsCallsOfTheTools) {
  std::mt19937 random(11);
  for (const Written& w : kWritten) {
    const auto grammar = calls(w.syntax);
    int whole = 0;
    for (int i = 0; i < 40; ++i) {
      const auto text = random_text(grammar, random);
      if (!text) continue;
      ++whole;
      ReplyOptions options;
      options.tools = kTools;
      options.call_forced = true;
      ReplyParser parser({w.syntax, "", ""}, options);
      std::vector<ReplyDelta> deltas = parser.push(*text);
      for (ReplyDelta& delta : parser.finish()) deltas.push_back(std::move(delta));
      std::vector<std::pair<std::string, std::string>> read;
      std::string content;
      for (const ReplyDelta& delta : deltas) {
        if (delta.kind == Kind::kContent) content += delta.text;
        if (delta.kind != Kind::kToolCall) continue;
        if (!delta.name.empty()) read.push_back({delta.name, ""});
        read.back().second += delta.text;
      }
      EXPECT_EQ(content, "") << *text;
      ASSERT_FALSE(read.empty()) << *text;
      for (const auto& [name, arguments] : read) {
        const Json json = Json::parse(arguments, nullptr, false);
        ASSERT_TRUE(json.is_object()) << *text << "\n" << arguments;
        if (name == "stop") continue;
        EXPECT_EQ(name, "get_weather");
        EXPECT_TRUE(json.contains("city") && json["city"].is_string()) << *text;
        EXPECT_TRUE(json["unit"] == "C" || json["unit"] == "F") << *text;
        if (json.contains("days")) {
          EXPECT_TRUE(json["days"] >= 1 && json["days"] <= 9) << *text;
        }
      }
    }
    EXPECT_GE(whole, 5) << w.first;
  }
}

TEST(CallGrammar, AnAnswerInHarmonyHasItsHeaders) {
  const std::string content = gbnf_of_content(ToolSyntax::kHarmony, "\"yes\"", vocabulary());
  const auto grammar = Grammar::from_gbnf("root ::= " + content);
  EXPECT_TRUE(matches(grammar, "<|channel|>final<|message|>yes"));
  EXPECT_TRUE(matches(grammar, "<|start|>assistant<|channel|>final<|message|>yes"));
  EXPECT_FALSE(matches(grammar, "yes"));
  EXPECT_EQ(gbnf_of_content(ToolSyntax::kQwenXml, "\"yes\"", vocabulary()), "\"yes\"");
}

}  // namespace
}  // namespace tern::text
