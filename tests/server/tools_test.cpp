// Tools, thoughts and formats over the demo model, which speaks through templates of released models. It was trained on
// none of this: a grammar of one sentence makes it say what others would, and forced calls hold it to schemas.
#include <gtest/gtest.h>

#include <fstream>

#include "server/model_server.h"

namespace tern::server {
namespace {

using test::Answer;
using test::chat;
using test::demo_options;
using test::Json;
using test::ModelServer;
using test::sse_data;

std::string template_of(const std::string& model) {
  std::ifstream file(std::string(TERN_SOURCE_DIR) + "/tests/npm/node_modules/.chat_templates/" + model + ".jinja");
  EXPECT_TRUE(file) << model;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A server whose model reads and writes as another one.
std::unique_ptr<ModelServer> disguised(const std::string& model) {
  ServerOptions options = demo_options(2048);
  options.models.chat_template = template_of(model);
  return std::make_unique<ModelServer>(std::move(options));
}

/// Thinks unless told not to, writes calls in XML.
class Qwen35 : public test::ModelServerTest {
 protected:
  static void SetUpTestSuite() { server_ = disguised("Qwen3.5-4B"); }
};

const Json kWeather = Json::parse(
    R"({"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": {
  "type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]},
  "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}}})");
const Json kTime =
    Json::parse(R"({"type": "function", "function": {"name": "get_time", "description": "The time", "parameters": {
  "type": "object", "properties": {}}}})");

Json with_tools(std::string_view text, int max_tokens = 200) {
  Json body = chat(text, max_tokens);
  body["tools"] = Json::array({kWeather, kTime});
  return body;
}

/// Makes the answer `text`, with nothing thought before it.
Json scripted(std::string_view text) {
  Json body = with_tools("What is the weather in Oslo?");
  std::string literal;
  for (const char c : text)
    literal += c == '\n' ? std::string("\\n") : c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  body["grammar"] = "root ::= \"" + literal + "\"";
  body["enable_thinking"] = false;
  return body;
}

const Json& message_of(const Json& answer) {
  return answer.at("choices").at(0).at("message");
}
const Json& reason_of(const Json& answer) {
  return answer.at("choices").at(0).at("finish_reason");
}

/// The arguments of a call of get_weather, which must be what the tool takes.
void expect_weather(const Json& call) {
  EXPECT_EQ(call.at("function").at("name"), "get_weather");
  const Json arguments = Json::parse(call.at("function").at("arguments").get<std::string>(), nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << call;
  EXPECT_TRUE(arguments.at("city") == "Oslo" || arguments.at("city") == "Rome") << call;
  EXPECT_TRUE(arguments.at("days") >= 1 && arguments.at("days") <= 9) << call;
}

struct Streamed {
  std::string content, reasoning, reason;
  Json calls = Json::array();
  Json usage;
};
/// Joins the chunks of a chat, checking how calls are told.
Streamed streamed(ModelServer& server, Json body) {
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  Streamed out;
  for (const std::string& data : sse_data(server.post("/v1/chat/completions", body).body)) {
    if (data == "[DONE]") continue;
    const Json chunk = Json::parse(data);
    if (chunk.contains("usage")) out.usage = chunk.at("usage");
    if (chunk.at("choices").empty()) continue;
    const Json& choice = chunk.at("choices").at(0);
    const Json& delta = choice.at("delta");
    out.content += delta.value("content", "");
    out.reasoning += delta.value("reasoning_content", "");
    if (!choice.at("finish_reason").is_null()) out.reason = choice.at("finish_reason");
    for (const Json& piece : delta.value("tool_calls", Json::array())) {
      const auto index = piece.at("index").get<size_t>();
      if (index == out.calls.size()) {
        EXPECT_FALSE(piece.at("id").get<std::string>().empty());
        EXPECT_EQ(piece.at("type"), "function");
        EXPECT_FALSE(piece.at("function").at("name").get<std::string>().empty());
        out.calls.push_back(piece);
        continue;
      }
      EXPECT_FALSE(piece.contains("id")) << "only the first piece has it";
      Json& arguments = out.calls.at(index)["function"]["arguments"];
      arguments = arguments.get<std::string>() + piece.at("function").at("arguments").get<std::string>();
    }
  }
  return out;
}

constexpr const char* kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>";

TEST_F(Qwen35, CallsAreTakenOutOfTheTextWholeAndStreamed) {
  const Json whole = server().json("/v1/chat/completions", scripted(std::string("Let me look.\n") + kCall));
  EXPECT_EQ(message_of(whole).at("content"), "Let me look.");
  ASSERT_EQ(message_of(whole).at("tool_calls").size(), 1u);
  expect_weather(message_of(whole).at("tool_calls").at(0));
  EXPECT_EQ(reason_of(whole), "tool_calls");

  const Streamed stream = streamed(server(), scripted(std::string("Let me look.\n") + kCall));
  EXPECT_EQ(stream.content, "Let me look.");
  ASSERT_EQ(stream.calls.size(), 1u);
  expect_weather(stream.calls.at(0));
  EXPECT_EQ(stream.reason, "tool_calls");
  EXPECT_EQ(stream.usage.at("completion_tokens"), whole.at("usage").at("completion_tokens"));
}

TEST_F(Qwen35, CallsThatDriftedFromTheFormAreFoundAndOthersAreText) {
  for (const char* drifted :
       {"<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n<parameter=days>\n3\n</function>"}) {
    const Json answer = server().json("/v1/chat/completions", scripted(drifted));
    ASSERT_TRUE(message_of(answer).contains("tool_calls")) << answer;
    expect_weather(message_of(answer).at("tool_calls").at(0));
    EXPECT_TRUE(message_of(answer).at("content").is_null()) << answer;
  }
  for (const char* text : {"<tool_call>\nget_weather(Oslo)\n</tool_call>", "<tool_call>", "<function=nothing>x",
                           "<tool_call>\n{\"city\": \"Oslo\"}\n</tool_call>"}) {
    const Json answer = server().json("/v1/chat/completions", scripted(text));
    EXPECT_EQ(message_of(answer).at("content"), text);
    EXPECT_FALSE(message_of(answer).contains("tool_calls")) << answer;
    EXPECT_EQ(reason_of(answer), "stop");
  }
}

TEST_F(Qwen35, MarkupInsideAThoughtIsNoCall) {
  const Json answer = server().json("/v1/chat/completions",
                                    scripted(std::string("<think>\nI could say ") + kCall + "\n</think>\n\nNo."));
  EXPECT_FALSE(message_of(answer).contains("tool_calls")) << answer;
  EXPECT_EQ(message_of(answer).at("content"), "No.");
  EXPECT_NE(message_of(answer).at("reasoning_content").get<std::string>().find("<function=get_weather>"),
            std::string::npos);
}

TEST_F(Qwen35, AnAliasChangesNothing) {
  server().server().models().add("bonsai-2-27b", test::demo_model());
  server().server().models().load("bonsai-2-27b");
  server().wait_until("bonsai-2-27b", Registry::State::kReady);
  Json body = scripted(kCall);
  body["model"] = "bonsai-2-27b";
  const Json answer = server().json("/v1/chat/completions", body);
  EXPECT_EQ(answer.at("model"), "bonsai-2-27b");
  ASSERT_TRUE(message_of(answer).contains("tool_calls")) << answer;
  expect_weather(message_of(answer).at("tool_calls").at(0));
  EXPECT_TRUE(message_of(answer).at("content").is_null());
}

TEST_F(Qwen35, HistoryTakesArgumentsAsTextWhereTheTemplateNeedsAnObject) {
  for (const Json& arguments : {Json(R"({"city": "Oslo"})"), Json({{"city", "Oslo"}})}) {
    Json body = with_tools("weather?");
    body["messages"].push_back(
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls", Json::array({{{"id", "c1"},
                                      {"type", "function"},
                                      {"function", {{"name", "get_weather"}, {"arguments", arguments}}}}})}});
    body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "rain"}});
    const std::string prompt = server().json("/apply-template", body).at("prompt");
    EXPECT_NE(prompt.find("<function=get_weather>\n<parameter=city>\nOslo\n</parameter>"), std::string::npos) << prompt;
    EXPECT_NE(prompt.find("<tool_response>\nrain\n</tool_response>"), std::string::npos) << prompt;
    body["max_tokens"] = 2;
    EXPECT_EQ(server().post("/v1/chat/completions", body).status, 200);
  }
}

TEST_F(Qwen35, ARequiredCallIsMadeBehindTheThought) {
  Json body = with_tools("Hello.");
  body["tool_choice"] = "required";
  body["thinking_budget"] = 6;
  body["parallel_tool_calls"] = false;
  const Json answer = server().json("/v1/chat/completions", body);
  EXPECT_EQ(reason_of(answer), "tool_calls") << answer;
  EXPECT_EQ(message_of(answer).at("tool_calls").size(), 1u);
  EXPECT_TRUE(message_of(answer).at("content").is_null());
  EXPECT_FALSE(message_of(answer).at("reasoning_content").get<std::string>().empty());

  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  const Json named = server().json("/v1/chat/completions", body);
  ASSERT_EQ(message_of(named).at("tool_calls").size(), 1u) << named;
  expect_weather(message_of(named).at("tool_calls").at(0));

  body["enable_thinking"] = false;
  const Streamed stream = streamed(server(), body);
  ASSERT_EQ(stream.calls.size(), 1u);
  expect_weather(stream.calls.at(0));
  EXPECT_EQ(stream.reasoning, "");
  EXPECT_EQ(stream.content, "");
  EXPECT_EQ(stream.reason, "tool_calls");
}

TEST_F(Qwen35, AFormatBeginsBehindTheThought) {
  const Json schema = Json::parse(R"({"type": "object", "properties": {"kind": {"enum": ["noun", "verb"]},
    "count": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["kind", "count"]})");
  Json body = chat("What is a river?", 300);
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "word"}, {"schema", schema}}}};
  body["thinking_budget"] = 6;
  const auto expect_word = [](const Json& answer) {
    const Json word = Json::parse(message_of(answer).at("content").get<std::string>(), nullptr, false);
    ASSERT_TRUE(word.is_object()) << answer;
    EXPECT_TRUE(word.at("kind") == "noun" || word.at("kind") == "verb");
    EXPECT_TRUE(word.at("count").is_number_integer());
  };
  const Json thought = server().json("/v1/chat/completions", body);
  expect_word(thought);
  EXPECT_FALSE(message_of(thought).at("reasoning_content").get<std::string>().empty());
  body["enable_thinking"] = false;
  const Json plain = server().json("/v1/chat/completions", body);
  expect_word(plain);
  EXPECT_FALSE(message_of(plain).contains("reasoning_content"));
  body["tools"] = Json::array({kWeather});
  const Json either = server().json("/v1/chat/completions", body);
  if (message_of(either).contains("tool_calls")) {
    expect_weather(message_of(either).at("tool_calls").at(0));
  } else {
    expect_word(either);
  }
}

TEST_F(Qwen35, AThoughtThatEatsAllTokensIsCutAndCounted) {
  const Json answer = server().json("/v1/chat/completions", chat("What is a river?", 12));
  EXPECT_EQ(reason_of(answer), "length");
  EXPECT_EQ(message_of(answer).at("content"), "");
  EXPECT_FALSE(message_of(answer).at("reasoning_content").get<std::string>().empty());
  const Json& usage = answer.at("usage");
  EXPECT_EQ(usage.at("completion_tokens"), 12);
  EXPECT_EQ(usage.at("completion_tokens_details").at("reasoning_tokens"), 12);
}

TEST_F(Qwen35, ABudgetEndsTheThoughtAndTheAnswerGoesOn) {
  Json body = chat("What is a river?", 40);
  body["thinking_budget"] = 8;
  const Json answer = server().json("/v1/chat/completions", body);
  EXPECT_FALSE(message_of(answer).at("reasoning_content").get<std::string>().empty());
  const std::string content = message_of(answer).at("content");
  EXPECT_FALSE(content.empty()) << answer;
  EXPECT_EQ(content.find("</think>"), std::string::npos) << content;
  const int spent = answer.at("usage").at("completion_tokens_details").at("reasoning_tokens");
  EXPECT_GE(spent, 8);
  EXPECT_LE(spent, 11) << "with the markup at its end";
}

TEST_F(Qwen35, ToolChoicesThatCannotBeAreRefusedByName) {
  const auto refused = [](const Json& body, std::string_view param) {
    const Answer answer = server().post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(Json::parse(answer.body).at("error").at("param"), param) << answer.body;
  };
  Json body = chat("x", 4);
  body["tool_choice"] = "required";
  refused(body, "tool_choice");
  body = with_tools("x");
  for (const Json& choice : {Json("sometimes"), Json{{"type", "function"}, {"function", {{"name", "other"}}}},
                             Json{{"type", "function"}}, Json(5)}) {
    body["tool_choice"] = choice;
    refused(body, "tool_choice");
  }
  body["tool_choice"] = "required";
  body["tools"][0]["function"]["strict"] = true;
  body["tools"][0]["function"]["parameters"]["properties"]["city"] = {{"type", "array"}, {"uniqueItems", true}};
  refused(body, "tools");
}

TEST_F(Qwen35, AnthropicGetsThoughtsAndCallsAsBlocks) {
  const Json body{
      {"model", "demo"},
      {"max_tokens", 200},
      {"temperature", 0},
      {"messages", Json::array({{{"role", "user"}, {"content", "Hello."}}})},
      {"thinking", {{"type", "enabled"}, {"budget_tokens", 6}}},
      {"tools", Json::array({{{"name", "get_weather"}, {"input_schema", kWeather["function"]["parameters"]}}})},
      {"tool_choice", {{"type", "any"}, {"disable_parallel_tool_use", true}}}};
  const Json whole = server().json("/v1/messages", body);
  ASSERT_EQ(whole.at("content").size(), 2u) << whole;
  EXPECT_EQ(whole.at("content").at(0).at("type"), "thinking");
  const Json& use = whole.at("content").at(1);
  EXPECT_EQ(use.at("type"), "tool_use");
  EXPECT_EQ(use.at("name"), "get_weather");
  EXPECT_TRUE(use.at("input").at("days") >= 1 && use.at("input").at("days") <= 9);
  EXPECT_EQ(whole.at("stop_reason"), "tool_use");

  Json request = body;
  request["stream"] = true;
  std::string thinking, input, reason;
  std::vector<std::string> blocks;
  for (const std::string& data : sse_data(server().post("/v1/messages", request).body)) {
    const Json event = Json::parse(data);
    if (event.at("type") == "content_block_start") blocks.push_back(event.at("content_block").at("type"));
    if (event.at("type") == "content_block_delta") {
      thinking += event.at("delta").value("thinking", "");
      input += event.at("delta").value("partial_json", "");
    }
    if (event.at("type") == "message_delta") reason = event.at("delta").at("stop_reason");
  }
  EXPECT_EQ(blocks, (std::vector<std::string>{"thinking", "tool_use"}));
  EXPECT_EQ(thinking, whole.at("content").at(0).at("thinking"));
  EXPECT_EQ(Json::parse(input), use.at("input"));
  EXPECT_EQ(reason, "tool_use");
}

TEST(Tools, AForcedCallComesInEverySyntax) {
  for (const char* model :
       {"Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
        "deepseek-ai-DeepSeek-V3.1", "openai-gpt-oss-120b", "google-gemma-2-2b-it"}) {
    SCOPED_TRACE(model);
    const auto server = disguised(model);
    Json body = with_tools("Hello.");
    body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
    body["parallel_tool_calls"] = false;
    body["enable_thinking"] = false;
    const Json answer = server->json("/v1/chat/completions", body);
    ASSERT_TRUE(message_of(answer).contains("tool_calls")) << answer;
    expect_weather(message_of(answer).at("tool_calls").at(0));
    EXPECT_EQ(reason_of(answer), "tool_calls");
    EXPECT_TRUE(message_of(answer).at("content").is_null()) << answer;
  }
}

TEST(Thoughts, OfChannelsComeBeforeAFormatAndACall) {
  const auto server = disguised("openai-gpt-oss-120b");
  Json body = with_tools("Hello.", 300);
  body["thinking_budget"] = 6;
  body["parallel_tool_calls"] = false;
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  const Json call = server->json("/v1/chat/completions", body);
  ASSERT_TRUE(message_of(call).contains("tool_calls")) << call;
  expect_weather(message_of(call).at("tool_calls").at(0));
  EXPECT_FALSE(message_of(call).at("reasoning_content").get<std::string>().empty()) << call;

  Json word = chat("Hello.", 300);
  word["thinking_budget"] = 6;
  word["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"enum", {"noun", "verb"}}}}}}};
  const Json answer = server->json("/v1/chat/completions", word);
  const Json& content = message_of(answer).at("content");
  EXPECT_TRUE(content == "\"noun\"" || content == "\"verb\"") << answer;
  EXPECT_FALSE(message_of(answer).at("reasoning_content").get<std::string>().empty()) << answer;
  word["enable_thinking"] = false;
  const Json plain = server->json("/v1/chat/completions", word);
  EXPECT_FALSE(message_of(plain).contains("reasoning_content")) << plain;
}

TEST(Thoughts, AreOffWhereTheTemplateAlwaysOpensThem) {
  const auto server = disguised("deepseek-ai-DeepSeek-R1-Distill-Llama-8B");
  const std::string open = server->json("/apply-template", chat("Hello.")).at("prompt");
  ASSERT_TRUE(open.ends_with("<think>\n")) << open;
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"enable_thinking", false},
                                                 {"reasoning_effort", "none"},
                                                 {"thinking_budget", 0},
                                                 {"chat_template_kwargs", {{"enable_thinking", false}}}}) {
    Json body = chat("Hello.", 12);
    body[key] = value;
    const Json answer = server->json("/v1/chat/completions", body);
    EXPECT_FALSE(message_of(answer).contains("reasoning_content")) << answer;
    EXPECT_FALSE(message_of(answer).at("content").get<std::string>().empty()) << answer;
    EXPECT_EQ(answer.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 0);
  }
  const Json answer = server->json("/v1/chat/completions", chat("Hello.", 12));
  EXPECT_TRUE(message_of(answer).contains("reasoning_content")) << answer;
}

/// Cached tokens of each turn of a chat, and the tokens that prompt and answer of the turn before had together.
TEST(Turns, ReadOnlyWhatIsNewHoweverManyThereAre) {
  ModelServer server;
  Json body = chat("hi", 3);
  int before = 0;
  for (int turn = 0; turn < 36; ++turn) {
    const Json answer = server.json("/v1/chat/completions", body);
    const int cached = answer.at("usage").at("prompt_tokens_details").at("cached_tokens");
    // The last token of an answer is read again, and how the template ends a turn is new.
    EXPECT_GE(cached, before - 4) << "turn " << turn;
    if (turn == 1) {
      EXPECT_LT(before, 64) << "shorter than a page";
      EXPECT_GT(cached, 0);
    }
    before = answer.at("usage").at("total_tokens");
    body["messages"].push_back({{"role", "assistant"}, {"content", message_of(answer).at("content")}});
    body["messages"].push_back({{"role", "user"}, {"content", "go on"}});
  }
}

}  // namespace
}  // namespace tern::server
