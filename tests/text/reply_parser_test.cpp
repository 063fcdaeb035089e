#include "text/reply_parser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "text/jinja_python.h"
#include "text/reply_json.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ReplyDelta::Kind;

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
    "where": {"type": "object"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}},
  {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
    "path": {"type": "string"}, "text": {"type": "string"}}}}}])");

const ReplyFormat kQwen{ToolSyntax::kQwenXml, "<think>", "</think>"};
const ReplyFormat kHermes{ToolSyntax::kHermesJson, "<think>", "</think>"};
const ReplyFormat kLlama{ToolSyntax::kLlama3, "", ""};
const ReplyFormat kMistral{ToolSyntax::kMistral, "[THINK]", "[/THINK]"};
const ReplyFormat kDeepSeek{ToolSyntax::kDeepSeek, "<think>", "</think>"};
const ReplyFormat kHarmony{ToolSyntax::kHarmony, "", ""};
const ReplyFormat kPlain{ToolSyntax::kPlainJson, "", ""};

struct Call {
  std::string id, name, arguments;
};
struct Reply {
  std::string content, reasoning;
  std::vector<Call> calls;

  void add(const std::vector<ReplyDelta>& deltas) {
    for (const ReplyDelta& d : deltas) {
      if (d.kind == Kind::kContent) content += d.text;
      if (d.kind == Kind::kReasoning) reasoning += d.text;
      if (d.kind != Kind::kToolCall) continue;
      ASSERT_GE(d.call, 0);
      if (static_cast<size_t>(d.call) == calls.size()) {
        EXPECT_FALSE(d.id.empty());
        EXPECT_FALSE(d.name.empty());
        calls.push_back({d.id, d.name, {}});
      } else {
        EXPECT_EQ(static_cast<size_t>(d.call), calls.size() - 1);
        EXPECT_TRUE(d.id.empty() && d.name.empty()) << "only the first piece of a call has them";
      }
      calls.back().arguments += d.text;
    }
  }
  std::string summary() const {
    std::string out = "content: " + content + "\nreasoning: " + reasoning + "\n";
    for (const Call& call : calls) out += call.name + "(" + call.arguments + ")\n";
    return out;
  }
};

Reply parse(const ReplyFormat& format, std::string_view text, ReplyOptions options,
            const std::function<size_t()>& chunk) {
  ReplyParser parser(format, options);
  Reply out;
  while (!text.empty()) {
    size_t n = std::min(chunk(), text.size());
    while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;  // whole characters
    out.add(parser.push(text.substr(0, n)));
    text.remove_prefix(n);
  }
  out.add(parser.finish());
  return out;
}

ReplyOptions with_tools(bool in_reasoning = false) {
  return {.in_reasoning = in_reasoning, .tools = kTools, .id_seed = 1};
}

/// However the text is cut, the reply is the same; returns it.
Reply parse_any_way(const ReplyFormat& format, const std::string& text, const ReplyOptions& options = with_tools()) {
  const Reply whole = parse(format, text, options, [] { return size_t{1} << 30; });
  EXPECT_EQ(parse(format, text, options, [] { return size_t{1}; }).summary(), whole.summary()) << text;
  std::mt19937 random(11);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(parse(format, text, options, [&] { return size_t{1 + random() % 9}; }).summary(), whole.summary())
        << text;
  return whole;
}

void expect_call(const Reply& reply, size_t index, const std::string& name, const char* arguments) {
  ASSERT_GT(reply.calls.size(), index) << reply.summary();
  EXPECT_EQ(reply.calls[index].name, name);
  const Json got = Json::parse(reply.calls[index].arguments, nullptr, false);
  ASSERT_TRUE(got.is_object()) << reply.calls[index].arguments;
  EXPECT_EQ(got, Json::parse(arguments)) << reply.calls[index].arguments;
}

TEST(ReplyParser, ReadsCallsOfEverySyntax) {
  struct Case {
    ReplyFormat format;
    const char* text;
    const char* content;
    std::vector<const char*> arguments;  // of get_weather
  };
  const Case cases[] = {
      {kQwen,
       "I "
       "look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</"
       "parameter>\n</function>\n</tool_call>",
       "I look.",
       {R"({"city": "Paris", "days": 3})"}},
      {kQwen, "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>", "", {"{}"}},
      {kQwen,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n</"
       "tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nB\n</parameter>\n</function>\n</tool_call>",
       "",
       {R"({"city": "A"})", R"({"city": "B"})"}},
      {kQwen,
       "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
       "",
       {R"({"city": "Paris"})"}},
      {kQwen,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
       "",
       {R"({"city": "Paris"})"}},
      {kQwen,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\n2\n</function>\n</tool_call>",
       "",
       {R"({"city": "Paris", "days": 2})"}},
      {kHermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}\n</tool_call>",
       "",
       {R"({"city": "Paris", "days": 3})"}},
      {kHermes,
       "<tool_call>{\"arguments\": {\"city\": \"</tool_call> in text\"}, \"name\": "
       "\"get_weather\"}</tool_call>\n<tool_call>{\"name\": \"get_weather\"}</tool_call>",
       "",
       {R"({"city": "</tool_call> in text"})", "{}"}},
      {kHermes, "{\"name\": \"get_weather\", \"arguments\": \"{\\\"days\\\": 1}\"}", "", {R"({"days": 1})"}},
      {kHermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}\n</tool_call>",
       "",
       {R"({"city": "Paris"})"}},
      {kHermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}}\n</tool_call>",
       "",
       {R"({"city": "Paris"})"}},
      {kLlama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}", "", {R"({"city": "Paris"})"}},
      {kLlama,
       "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"days\": 2}}; {\"name\": "
       "\"get_weather\", \"parameters\": {}}",
       "",
       {R"({"days": 2})", "{}"}},
      {kLlama, "<function=get_weather>{\"city\": \"Paris\"}</function>", "", {R"({"city": "Paris"})"}},
      {kMistral,
       "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}, {\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"B\"}}]",
       "",
       {R"({"city": "A"})", R"({"city": "B"})"}},
      {kMistral,
       "Sure.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"A\"}[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{\"days\": "
       "1}",
       "Sure.",
       {R"({"city": "A"})", R"({"days": 1})"}},
      {kDeepSeek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
       "\"A\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "",
       {R"({"city": "A"})", "{}"}},
      {kDeepSeek,
       "Ok\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"A\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Ok",
       {R"({"city": "A"})"}},
      {kHarmony,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>{\"city\": \"A\"}<|call|>",
       "",
       {R"({"city": "A"})"}},
      {kHarmony, " to=functions.get_weather<|channel|>commentary json<|message|>{\"days\":1}", "", {R"({"days": 1})"}},
      {kPlain, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}", "", {R"({"city": "Paris"})"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const Reply reply = parse_any_way(c.format, c.text);
    EXPECT_EQ(reply.content, c.content);
    EXPECT_EQ(reply.calls.size(), c.arguments.size()) << reply.summary();
    for (size_t i = 0; i < c.arguments.size(); ++i) expect_call(reply, i, "get_weather", c.arguments[i]);
  }
}

TEST(ReplyParser, WhatIsNoCallComesOutAsText) {
  const std::pair<ReplyFormat, const char*> cases[] = {
      {kQwen, "Use the <tool_call> tag, then <function=name>."},
      {kQwen, "<tool_call>\nget_weather(Paris)\n</tool_call>"},
      {kQwen, "<tool_call>"},
      {kQwen, "<tool_call>\n<function=get_weather"},
      {kQwen, "a <function=unknown>\n<parameter=x>\n1\n</parameter>\n</function>"},
      {kQwen, "1 < 2 and <too"},
      {kQwen, " leading and trailing \n"},
      {kHermes, "<tool_call>\n{\"nome\": \"get_weather\"}\n</tool_call> and more"},
      {kHermes, "<tool_call>[1, 2]</tool_call>"},
      {kHermes, "{\"name\": \"Bob\", \"age\": 3}"},
      {kHermes, "{\"answer\": 42}"},
      {kHermes, "{\"name\": \"get_weather\", \"arguments\": [1]}"},
      {kHermes, "Code: {\"name\": \"get_weather\", \"arguments\": {}}"},
      {kLlama, "<|python_tag|>print(1)"},
      {kMistral, "[TOOL_CALLS] are special"},
      {kDeepSeek, "<｜tool▁call▁begin｜>nothing"},
      {kPlain, "{\"name\": 3}"},
      {kHarmony, "Just text."},
      {{ToolSyntax::kNone, "", ""}, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>"},
  };
  for (const auto& [format, text] : cases) {
    const Reply reply = parse_any_way(format, text);
    EXPECT_EQ(reply.content, text);
    EXPECT_TRUE(reply.calls.empty()) << text;
    EXPECT_EQ(reply.reasoning, "");
  }
  ReplyOptions off = with_tools();
  off.parse_tools = false;
  const char* call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(parse_any_way(kHermes, call, off).content, call);
}

TEST(ReplyParser, AFailedCallDoesNotHideTheNext) {
  const Reply reply = parse_any_way(
      kHermes, "<tool_call>oops<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"days\": 1}}</tool_call>");
  EXPECT_EQ(reply.content, "<tool_call>oops");
  expect_call(reply, 0, "get_weather", R"({"days": 1})");
}

TEST(ReplyParser, SeparatesThoughtsFromTheAnswer) {
  for (const ReplyFormat& format : {kQwen, kHermes, kDeepSeek}) {
    Reply reply = parse_any_way(format, "<think>\nHm, 1 < 2.\n</think>\n\nYes.");
    EXPECT_EQ(reply.reasoning, "Hm, 1 < 2.");
    EXPECT_EQ(reply.content, "Yes.");
    reply = parse_any_way(format, "Hm.\n\n</think>\n\nYes.\n", with_tools(true));
    EXPECT_EQ(reply.reasoning, "Hm.");
    EXPECT_EQ(reply.content, "Yes.\n");
    reply = parse_any_way(format, "still thinking </thin", with_tools(true));
    EXPECT_EQ(reply.reasoning, "still thinking </thin");
    EXPECT_EQ(reply.content, "");
    reply = parse_any_way(format, "The tag <think> opens, </think> closes.");
    EXPECT_EQ(reply.content, "The tag <think> opens, </think> closes.");
    EXPECT_EQ(reply.reasoning, "");
  }
  const Reply harmony = parse_any_way(
      kHarmony, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>");
  EXPECT_EQ(harmony.reasoning, "Hm.");
  EXPECT_EQ(harmony.content, "Yes.");
}

TEST(ReplyParser, MarkupInsideThoughtsIsNoCall) {
  const std::string call =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nX\n</parameter>\n</function>\n</tool_call>";
  Reply reply = parse_any_way(kQwen, "<think>\nI could say " + call + "\n</think>\n\nNo.");
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_EQ(reply.reasoning, "I could say " + call);
  EXPECT_EQ(reply.content, "No.");
  reply = parse_any_way(kQwen, call + "\n</think>\n\n" + call, with_tools(true));
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.reasoning, call);
  reply = parse_any_way(kHarmony, "<|channel|>analysis<|message|>{\"name\": \"get_weather\"}<|end|>");
  EXPECT_TRUE(reply.calls.empty());
}

TEST(ReplyParser, ValuesOfXmlHaveTheTypesOfTheTool) {
  const auto value_of = [&](const std::string& key, const std::string& text) {
    const Reply reply = parse_any_way(kQwen, "<tool_call>\n<function=get_weather>\n<parameter=" + key + ">\n" + text +
                                                 "\n</parameter>\n</function>\n</tool_call>");
    EXPECT_EQ(reply.calls.size(), 1u);
    return reply.calls.empty() ? Json() : Json::parse(reply.calls[0].arguments)[key];
  };
  EXPECT_EQ(value_of("city", "12"), Json("12"));
  EXPECT_EQ(value_of("city", "{\"a\": 1}"), Json("{\"a\": 1}"));
  EXPECT_EQ(value_of("city", "two\nlines \"quoted\" \\ <b>"), Json("two\nlines \"quoted\" \\ <b>"));
  EXPECT_EQ(value_of("city", "\nkept\n"), Json("\nkept\n"));
  EXPECT_EQ(value_of("city", ""), Json(""));
  EXPECT_EQ(value_of("days", "12"), Json(12));
  EXPECT_EQ(value_of("days", "twelve"), Json("twelve"));
  EXPECT_EQ(value_of("exact", "True"), Json(true));
  EXPECT_EQ(value_of("exact", "false"), Json(false));
  EXPECT_EQ(value_of("where", "{\"lat\": 1.5}"), Json({{"lat", 1.5}}));
  EXPECT_EQ(value_of("note", "null"), Json(nullptr));
  EXPECT_EQ(value_of("note", "12"), Json("12"));
  EXPECT_EQ(value_of("other", "12"), Json("12"));
  const Reply without = parse_any_way(kQwen,
                                      "<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n<parameter=b>\nx "
                                      "y\n</parameter>\n</function>\n</tool_call>",
                                      {});
  expect_call(without, 0, "f", R"({"a": 12, "b": "x y"})");
}

TEST(ReplyParser, ArgumentsStreamWhileTheyAreWritten) {
  for (const auto& [format, head, tail] :
       {std::tuple{kQwen, "<tool_call>\n<function=write>\n<parameter=text>\n",
                   "\n</parameter>\n</function>\n</tool_call>"},
        std::tuple{kHermes, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"", "\"}}\n</tool_call>"}}) {
    ReplyParser parser(format, with_tools());
    Reply reply;
    reply.add(parser.push(head));
    ASSERT_EQ(reply.calls.size(), 1u);
    const size_t before = reply.calls[0].arguments.size();
    reply.add(parser.push("some words and "));
    EXPECT_GT(reply.calls[0].arguments.size(), before + 5);
    reply.add(parser.push("more"));
    reply.add(parser.push(tail));
    EXPECT_EQ(Json::parse(reply.calls[0].arguments), Json({{"text", "some words and more"}}))
        << "before the end of the reply";
    reply.add(parser.finish());
    EXPECT_EQ(reply.calls.size(), 1u);
    EXPECT_EQ(reply.content, "");
  }
}

TEST(ReplyParser, ClosesACallThatTheModelForgotToAndLeavesACutOneOpen) {
  for (const auto& [format, text] :
       {std::pair{kQwen, "<tool_call>\n<function=write>\n<parameter=path>\n/a\n</parameter>\n<parameter=text>\nhalf"},
        std::pair{kHermes, "<tool_call>{\"name\": \"write\", \"arguments\": {\"path\": \"/a\", \"text\": \"half"}}) {
    for (const bool cut : {false, true}) {
      ReplyParser parser(format, with_tools());
      Reply reply;
      reply.add(parser.push(text));
      reply.add(parser.finish(cut));
      ASSERT_EQ(reply.calls.size(), 1u);
      EXPECT_EQ(Json::accept(reply.calls[0].arguments), !cut) << reply.calls[0].arguments;
      if (!cut) expect_call(reply, 0, "write", R"({"path": "/a", "text": "half"})");
      EXPECT_EQ(reply.content, "");
    }
  }
}

TEST(ReplyParser, GivesCallsIdsThatTemplatesTake) {
  const char* two = "[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"b\", \"arguments\": {}}]";
  const Reply reply = parse_any_way(kMistral, two);
  ASSERT_EQ(reply.calls.size(), 2u);
  EXPECT_EQ(reply.calls[0].id.size(), 9u);
  EXPECT_NE(reply.calls[0].id, reply.calls[1].id);
  EXPECT_TRUE(parse_any_way(kHermes, "{\"name\": \"write\", \"arguments\": {}}").calls[0].id.starts_with("call_"));
}

TEST(ReplyParser, GivesUpLookingForCallsInTextFullOfMarkup) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "<tool_call>{\"x\": \"";
  EXPECT_EQ(parse(kHermes, text, with_tools(), [] { return size_t{4096}; }).content, text);
}

TEST(LenientJson, LeavesValidJsonAloneAndMendsTheRest) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": [1, -2.5e3, true, null], "b": {"c": "x\"y\\z\u00e9\ud83d\ude00"}, "d": "" })", nullptr},
      {"{ }", nullptr},
      {"{\"a\": \"line\nnext\ttab\"}", R"({"a": "line\nnext\ttab"})"},
      {R"({"a": "say "hi" to C:\dir"})", R"({"a": "say \"hi\" to C:\\dir"})"},
      {R"({'a': 'it'})", R"({"a": "it"})"},
      {R"({a: 1, "b": True, "c": None,})", R"({"a": 1, "b": true, "c": null})"},
      {R"({"a": [1, 2,, 3,], "b": 4]})", R"({"a": [1, 2, 3], "b": 4})"},
      {R"({"a": hello world, "b": 1})", R"({"a": "hello world", "b": 1})"},
      {R"({"a": [1, {"b": 2}, "c": 3})", nullptr},
      {R"({"a": "\ud83d", "b": "\udc00\u12", "c": "\ud83d\u0041"})",
       R"({"a": "\ufffd", "b": "\ufffd\\u12", "c": "\ufffdA"})"},
      {R"({"a": {"b": 1})", R"({"a": {"b": 1}})"},
      {R"({"a":)", R"({"a": null})"},
      {R"({"a)", R"({"a": null})"},
      {R"({"a": 1 "b": 2})", nullptr},
  };
  for (const auto& [text, wanted] : cases) {
    LenientJson json("");
    std::string_view rest = text;
    rest.remove_prefix(json.read(rest));
    if (!json.done()) json.close();
    const Json got = Json::parse(json.text(), nullptr, false);
    EXPECT_TRUE(got.is_object()) << text << " became " << json.text();
    if (wanted) {
      EXPECT_EQ(got, Json::parse(wanted)) << json.text();
    }
    if (Json::accept(text)) {
      EXPECT_EQ(json.text(), text);
    }
  }
}

TEST(LenientJson, AnyBytesBecomeAnObject) {
  std::mt19937 random(5);
  constexpr std::string_view kBytes = "{}[]\",:\\'un0 \nTrue-x<1";
  for (int i = 0; i < 20'000; ++i) {
    std::string text = "{";
    for (size_t n = random() % 24; n > 0; --n) text += kBytes[random() % kBytes.size()];
    LenientJson json(i % 2 == 0 ? "" : "<x");
    json.read(text);
    if (!json.done()) json.close();
    ASSERT_TRUE(Json::parse(json.text(), nullptr, false).is_object()) << text << " became " << json.text();
  }
}

TEST(ReplyParser, AnyCutOfAnyMarkupSoupGivesTheSameReply) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "\n",
                                          "<function=get_weather>",
                                          "</function>",
                                          "<parameter=city>",
                                          "</parameter>",
                                          "Paris",
                                          "<think>",
                                          "</think>",
                                          " ",
                                          "{\"name\": \"get_weather\", ",
                                          "\"arguments\": {",
                                          "\"days\": 3",
                                          "}}",
                                          "}",
                                          "<",
                                          "\"",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "get_weather",
                                          "<|python_tag|>",
                                          ";",
                                          "<|channel|>analysis",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|start|>assistant",
                                          " to=functions.get_weather"};
  std::mt19937 random(9);
  const ReplyFormat formats[] = {kQwen, kHermes, kLlama, kMistral, kHarmony, kPlain};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = 1 + random() % 14; n > 0; --n) text += words[random() % words.size()];
    const ReplyFormat& format = formats[random() % std::size(formats)];
    const ReplyOptions options = with_tools(random() % 4 == 0 && !format.think_close.empty());
    const Reply whole = parse(format, text, options, [] { return size_t{1} << 30; });
    ASSERT_EQ(parse(format, text, options, [] { return size_t{1}; }).summary(), whole.summary()) << text;
    ASSERT_EQ(parse(format, text, options, [&] { return size_t{1 + random() % 7}; }).summary(), whole.summary())
        << text;
    for (const Call& call : whole.calls)
      ASSERT_TRUE(Json::parse(call.arguments, nullptr, false).is_object()) << text << "\n" << whole.summary();
  }
}

constexpr const char* kTemplates = TERN_SOURCE_DIR "/tests/npm/node_modules/.chat_templates/";

ReplyFormat probed(const std::string& name) {
  const std::string source = read_file(kTemplates + name + ".jinja");
  return probe_reply_format(ChatTemplate::from_source(source, "<s>", "</s>"), source);
}

TEST(ReplyFormat, IsProbedFromRealTemplates) {
  const std::map<std::string, ToolSyntax> wanted = {
      {"Qwen3.5-4B", ToolSyntax::kQwenXml},
      {"Qwen3-Coder", ToolSyntax::kQwenXml},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ToolSyntax::kQwenXml},
      {"Qwen-Qwen3-0.6B", ToolSyntax::kHermesJson},
      {"Qwen-QwQ-32B", ToolSyntax::kHermesJson},
      {"Qwen-Qwen2.5-7B-Instruct", ToolSyntax::kHermesJson},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ToolSyntax::kHermesJson},
      {"meta-llama-Llama-3.1-8B-Instruct", ToolSyntax::kLlama3},
      {"meta-llama-Llama-3.2-3B-Instruct", ToolSyntax::kLlama3},
      {"mistralai-Mistral-Nemo-Instruct-2407", ToolSyntax::kMistral},
      {"Mistral-Small-3.2-24B-Instruct-2506", ToolSyntax::kMistralArgs},
      {"mistralai-Ministral-3-14B-Reasoning-2512", ToolSyntax::kMistralArgs},
      {"deepseek-ai-DeepSeek-V3.1", ToolSyntax::kDeepSeek},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ToolSyntax::kDeepSeekFenced},
      {"openai-gpt-oss-120b", ToolSyntax::kHarmony},
      {"google-gemma-2-2b-it", ToolSyntax::kNone},
  };
  for (const auto& [name, syntax] : wanted)
    EXPECT_EQ(static_cast<int>(probed(name).tools), static_cast<int>(syntax)) << name;
  EXPECT_EQ(probed("Qwen3.5-4B").think_close, "</think>");
  EXPECT_EQ(probed("mistralai-Ministral-3-14B-Reasoning-2512").think_open, "[THINK]");
  EXPECT_EQ(probed("meta-llama-Llama-3.2-3B-Instruct").think_open, "");
}

// What a template writes for a call is what its parser reads.
TEST(ReplyFormat, ReadsBackTheCallsThatTemplatesWrite) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kTemplates)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = read_file(entry.path());
    const ChatTemplate chat_template = ChatTemplate::from_source(source, "<s>", "</s>");
    const ReplyFormat format = probe_reply_format(chat_template, source);
    if (format.tools == ToolSyntax::kNone || format.tools == ToolSyntax::kPlainJson) continue;
    const Json arguments = {{"city", "São Paulo"}, {"days", 3}};
    const Json call = {
        {"id", "call00001"}, {"type", "function"}, {"function", {{"name", "get_weather"}, {"arguments", arguments}}}};
    Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
    RenderOptions options;
    options.tools = kTools;
    std::string prompt, both;
    try {
      prompt = chat_template.render(messages, options);
      messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}});
      options.add_generation_prompt = false;
      both = chat_template.render(messages, options);
    } catch (const Error&) {
      continue;  // templates that want another conversation
    }
    size_t same = 0;
    while (same < prompt.size() && same < both.size() && prompt[same] == both[same]) ++same;
    while (same > 0 && both[same - 1] != '\n' && both[same - 1] != '>' && both[same - 1] != ']') --same;  // whole tags
    const bool thinking = !format.think_open.empty() &&
                          prompt.find(format.think_open, same > 20 ? same - 20 : 0) != prompt.npos &&
                          both.find(format.think_close, same) != both.npos;
    std::string written = both.substr(same);
    if (format.tools == ToolSyntax::kHarmony) written = written.substr(0, written.find("<|call|>"));
    if (written.find("get_weather") == written.npos) continue;  // it leaves calls out of what was said
    const Reply reply = parse_any_way(format, written, with_tools(thinking));
    ASSERT_EQ(reply.calls.size(), 1u) << entry.path() << "\n" << written << "\n" << reply.summary();
    EXPECT_EQ(reply.calls[0].name, "get_weather") << entry.path();
    EXPECT_EQ(Json::parse(reply.calls[0].arguments, nullptr, false), arguments) << entry.path() << reply.summary();
    ++read;
  }
  EXPECT_GE(read, 15);
}

}  // namespace
}  // namespace tern::text
