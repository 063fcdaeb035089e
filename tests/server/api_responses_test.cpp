// /v1/responses and embeddings over the demo model: what the official client (clients/openai.mjs) does not look at.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "server/model_server.h"
#include "server/tool_template.h"

namespace tern::server {
namespace {

using test::Answer;
using test::Json;
using test::ModelServer;
using test::sse_data;

constexpr const char* kQuestion = "What does \"river\" mean?";

class ResponsesApi : public test::ModelServerTest {
 protected:
  static Json ask(const Json& more = Json::object()) {
    Json body{{"model", "demo"}, {"input", kQuestion}, {"temperature", 0}, {"max_output_tokens", 12}};
    body.update(more);
    return body;
  }
  static std::string refused_parameter(const Json& body, const char* path = "/v1/responses") {
    const Answer answer = server().post(path, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json error = Json::parse(answer.body).at("error");
    return error.at("param").is_null() ? "" : error.at("param").get<std::string>();
  }
};

TEST_F(ResponsesApi, AStreamTellsInOrderWhatAWholeResponseSays) {
  const Json whole = server().json("/v1/responses", ask());
  EXPECT_EQ(whole.at("object"), "response");
  EXPECT_EQ(whole.at("status"), "incomplete");
  EXPECT_EQ(whole.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(whole.at("usage").at("output_tokens"), 12);
  const Answer answer = server().post("/v1/responses", ask({{"stream", true}}));
  std::vector<std::string> types;
  std::string text;
  Json last;
  for (const std::string& data : sse_data(answer.body)) {
    last = Json::parse(data);
    EXPECT_EQ(last.at("sequence_number"), types.size());
    const std::string type = last.at("type");
    if (type == "response.output_text.delta") text += last.at("delta");
    types.push_back(type);
  }
  std::vector<std::string> kinds;  // runs of one type as one
  for (const std::string& type : types)
    if (kinds.empty() || kinds.back() != type) kinds.push_back(type);
  EXPECT_EQ(kinds, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.incomplete"}));
  EXPECT_NE(answer.body.find("event: response.output_text.delta\n"), std::string::npos);
  const Json& output = last.at("response").at("output");
  EXPECT_EQ(output.at(0).at("content"), whole.at("output").at(0).at("content"));
  EXPECT_EQ(output.at(0).at("content").at(0).at("text"), text);
  EXPECT_EQ(output.at(0).at("status"), "incomplete");
  EXPECT_EQ(last.at("response").at("usage").at("output_tokens"), 12);
}

TEST_F(ResponsesApi, ItemsAreTheConversationThatMessagesWouldBe) {
  const Json items = Json::array(
      {{{"type", "message"},
        {"role", "user"},
        {"content", Json::array({{{"type", "input_text"}, {"text", "weather?"}}})}},
       {{"type", "reasoning"}, {"id", "rs_1"}, {"summary", Json::array()}},
       {{"type", "function_call"}, {"call_id", "c1"}, {"name", "weather"}, {"arguments", "{\"city\": \"Oslo\"}"}},
       {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "rain"}},
       {{"role", "developer"}, {"content", "Be brief."}},
       {{"role", "user"}, {"content", kQuestion}}});
  const Json call = {
      {"id", "c1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", "{\"city\": \"Oslo\"}"}}}};
  const Json messages = Json::array({{{"role", "system"}, {"content", "Be polite."}},
                                     {{"role", "user"}, {"content", "weather?"}},
                                     {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
                                     {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "rain"}},
                                     {{"role", "system"}, {"content", "Be brief."}},
                                     {{"role", "user"}, {"content", kQuestion}}});
  const Json response = server().json("/v1/responses", ask({{"input", items}, {"instructions", "Be polite."}}));
  const Json chat =
      server().json("/v1/chat/completions", {{"messages", messages}, {"temperature", 0}, {"max_tokens", 12}});
  EXPECT_EQ(response.at("usage").at("input_tokens"), chat.at("usage").at("prompt_tokens"));
  EXPECT_EQ(response.at("output").at(0).at("content").at(0).at("text"),
            chat.at("choices").at(0).at("message").at("content"));
}

TEST_F(ResponsesApi, WhatIsStoredNowhereIsRefusedByName) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, Json>>{{"previous_response_id", "resp_1"},
                                                 {"store", true},
                                                 {"background", true},
                                                 {"truncation", "auto"},
                                                 {"input", Json::array()},
                                                 {"input", Json::array({{{"type", "item_reference"}, {"id", "x"}}})},
                                                 {"tools", Json::array({{{"type", "web_search"}}})},
                                                 {"include", Json::array({"message.output_text.logprobs"})},
                                                 {"no_such_thing", 1}})
    EXPECT_EQ(refused_parameter(ask({{name, value}})), name);
  const Answer neutral =
      server().post("/v1/responses", ask({{"store", false},
                                          {"previous_response_id", nullptr},
                                          {"truncation", "disabled"},
                                          {"include", Json::array({"reasoning.encrypted_content"})},
                                          {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
                                          {"text", {{"format", {{"type", "text"}}}, {"verbosity", "low"}}},
                                          {"tools", Json::array()},
                                          {"presence_penalty", 0.5},
                                          {"metadata", {{"a", "b"}}}}));
  EXPECT_EQ(neutral.status, 200) << neutral.body;
}

TEST_F(ResponsesApi, ErrorsNameTheParametersOfThisRoute) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "river ";
  EXPECT_EQ(refused_parameter(ask({{"input", text}})), "input");
  EXPECT_EQ(refused_parameter(ask({{"max_output_tokens", 5000}})), "input") << "together they do not fit";
  EXPECT_EQ(refused_parameter(ask({{"text", {{"format", {{"type", "xml"}}}}}})), "text");
  EXPECT_EQ(refused_parameter(ask({{"text", {{"format", {{"type", "json_schema"}}}}}})), "text") << "without a schema";
  EXPECT_EQ(refused_parameter({{"input", {"x", text}}}, "/v1/embeddings"), "input");
}

TEST_F(ResponsesApi, AFormatHoldsTheText) {
  const Json schema = {
      {"type", "object"}, {"properties", {{"kind", {{"enum", {"noun", "verb"}}}}}}, {"required", {"kind"}}};
  const Json format = {{"type", "json_schema"}, {"name", "word"}, {"schema", schema}, {"strict", true}};
  const Json response =
      server().json("/v1/responses", ask({{"text", {{"format", format}}}, {"max_output_tokens", 100}}));
  EXPECT_EQ(response.at("status"), "completed");
  const Json word = Json::parse(response.at("output").at(0).at("content").at(0).at("text").get<std::string>());
  EXPECT_TRUE(word.at("kind") == "noun" || word.at("kind") == "verb");
}

TEST(ResponsesTools, ThoughtsAndCallsAreItemsWholeAndStreamed) {
  ServerOptions options = test::demo_options();
  options.models.chat_template = test::kToolTemplate;
  ModelServer server(std::move(options));
  Json body{
      {"input", "What is the weather in Oslo?"},
      {"temperature", 0},
      {"thinking_budget", 4},
      {"grammar", test::kOneCall},
      {"tools", Json::array({{{"type", "function"}, {"name", "weather"}, {"parameters", {{"type", "object"}}}}})}};
  const Json whole = server.json("/v1/responses", body);
  EXPECT_EQ(whole.at("status"), "completed");
  ASSERT_EQ(whole.at("output").size(), 2u) << whole;
  const Json& thought = whole.at("output").at(0);
  EXPECT_EQ(thought.at("type"), "reasoning");
  EXPECT_FALSE(thought.at("content").at(0).at("text").get<std::string>().empty());
  EXPECT_GT(whole.at("usage").at("output_tokens_details").at("reasoning_tokens"), 0);
  const Json& call = whole.at("output").at(1);
  EXPECT_EQ(call.at("type"), "function_call");
  EXPECT_EQ(call.at("name"), "weather");
  EXPECT_EQ(Json::parse(call.at("arguments").get<std::string>()), (Json{{"city", "Oslo"}}));

  body["stream"] = true;
  std::string arguments, thoughts;
  Json last;
  std::vector<std::string> added;
  for (const std::string& data : sse_data(server.post("/v1/responses", body).body)) {
    last = Json::parse(data);
    if (last.at("type") == "response.output_item.added") added.push_back(last.at("item").at("type"));
    if (last.at("type") == "response.function_call_arguments.delta") arguments += last.at("delta");
    if (last.at("type") == "response.function_call_arguments.done") {
      EXPECT_EQ(last.at("arguments"), arguments);
    }
    if (last.at("type") == "response.reasoning_text.delta") thoughts += last.at("delta");
  }
  EXPECT_EQ(added, (std::vector<std::string>{"reasoning", "function_call"}));
  EXPECT_EQ(last.at("type"), "response.completed");
  EXPECT_EQ(arguments, call.at("arguments"));
  EXPECT_EQ(thoughts, thought.at("content").at(0).at("text"));

  // The output goes back as input, with a result.
  Json next = body;
  next.erase("stream");
  next.erase("grammar");
  next["max_output_tokens"] = 8;
  next["input"] = Json::array({{{"role", "user"}, {"content", "What is the weather in Oslo?"}}, thought, call});
  next["input"].push_back({{"type", "function_call_output"}, {"call_id", call.at("call_id")}, {"output", "rain"}});
  EXPECT_EQ(server.json("/v1/responses", next).at("status"), "incomplete");
}

TEST_F(ResponsesApi, EmbeddingsAreNormalisedInOrderAndTheSameInEveryEncoding) {
  const Json both = server().json("/v1/embeddings", {{"model", "demo"}, {"input", {"a river", "a mountain"}}});
  ASSERT_EQ(both.at("data").size(), 2u);
  EXPECT_EQ(both.at("data").at(1).at("index"), 1);
  const auto river = both.at("data").at(0).at("embedding").get<std::vector<float>>();
  ASSERT_EQ(river.size(), 1024u);
  double square = 0;
  for (const float x : river) square += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(square, 1, 1e-5);
  EXPECT_NE(both.at("data").at(0).at("embedding"), both.at("data").at(1).at("embedding"));

  const Json tokens = server().json("/tokenize", {{"content", "a river"}, {"add_special", true}}).at("tokens");
  EXPECT_EQ(both.at("usage").at("prompt_tokens").get<size_t>(),
            tokens.size() +
                server().json("/tokenize", {{"content", "a mountain"}, {"add_special", true}}).at("tokens").size());
  const Json coded = server().json(
      "/v1/embeddings", {{"input", Json::array({tokens})}, {"encoding_format", "base64"}, {"dimensions", 1024}});
  const std::string code = coded.at("data").at(0).at("embedding");
  ASSERT_EQ(code.size(), (1024 * 4 + 2) / 3 * 4);
  const auto digit = [](char c) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return c == '=' ? 0u : static_cast<unsigned>(kDigits.find(c));
  };
  std::string bytes;
  for (size_t i = 0; i < code.size(); i += 4) {
    const unsigned group =
        digit(code[i]) << 18 | digit(code[i + 1]) << 12 | digit(code[i + 2]) << 6 | digit(code[i + 3]);
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(group >> shift & 255);
  }
  std::vector<float> decoded(1024);
  std::memcpy(decoded.data(), bytes.data(), 4096);
  for (size_t i = 0; i < 1024; ++i) EXPECT_NEAR(decoded[i], river[i], 1e-5) << i;
}

TEST_F(ResponsesApi, EmbeddingsOfTheLastTokenAndOfOllamasClients) {
  const auto first = [](const Json& data) { return data.at("data").at(0).at("embedding").get<std::vector<float>>(); };
  const auto mean = first(server().json("/v1/embeddings", {{"input", "a river"}, {"pooling", "mean"}}));
  const auto last = first(server().json("/v1/embeddings", {{"input", "a river"}, {"pooling", "last"}}));
  EXPECT_NE(mean, last);
  const Json ollama = server().json("/api/embed", {{"model", "demo"}, {"input", "a river"}});
  const auto same = ollama.at("embeddings").at(0).get<std::vector<float>>();
  ASSERT_EQ(same.size(), mean.size());
  for (size_t i = 0; i < same.size(); ++i) EXPECT_NEAR(same[i], mean[i], 1e-5);
  EXPECT_GT(ollama.at("prompt_eval_count"), 0);
  EXPECT_EQ(server().json("/api/embeddings", {{"prompt", "a river"}}).at("embedding").size(), 1024u);
}

TEST(Embeddings, ManyInputsNeedNoPlaceInTheQueueAndKeepTheirOrder) {
  ServerOptions options = test::demo_options();
  options.models.limits.queue = 0;
  ModelServer server(std::move(options));
  Json input = Json::array();
  for (int i = 0; i < 11; ++i) input.push_back("a river and " + std::string(static_cast<size_t>(i) * 9, 'x'));
  const Json all = server.json("/v1/embeddings", {{"input", input}});
  ASSERT_EQ(all.at("data").size(), input.size());
  const Json ninth = server.json("/v1/embeddings", {{"input", input.at(9)}});
  const auto many = all.at("data").at(9).at("embedding").get<std::vector<float>>();
  const auto one = ninth.at("data").at(0).at("embedding").get<std::vector<float>>();
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-3);
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.running == 0 && s.pages_free == s.pages; }));
}

TEST_F(ResponsesApi, PenaltiesChangeTheAnswerOnEveryRoute) {
  const auto openai = [](double penalty) {
    return server()
        .json("/v1/completions", {{"prompt", "Moby Dick was a whale. The whale"},
                                  {"temperature", 0},
                                  {"max_tokens", 40},
                                  {"frequency_penalty", penalty}})
        .at("choices")
        .at(0)
        .at("text");
  };
  const auto ollama = [](double penalty) {
    return server()
        .json("/api/generate", {{"prompt", "Moby Dick was a whale. The whale"},
                                {"raw", true},
                                {"stream", false},
                                {"options", {{"temperature", 0}, {"num_predict", 40}, {"frequency_penalty", penalty}}}})
        .at("response");
  };
  EXPECT_NE(openai(-2), openai(0));
  EXPECT_EQ(ollama(-2), openai(-2));
  EXPECT_EQ(refused_parameter(ask({{"presence_penalty", 3}})), "presence_penalty");
}

TEST_F(ResponsesApi, EmbeddingsThatCannotBeMadeAreRefusedByName) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "river ";
  const Answer answer = server().post("/v1/embeddings", {{"input", {"x", text}}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("context_length_exceeded"), std::string::npos) << answer.body;
  for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{{"dimensions", 5},
                                                                             {"encoding_format", "hex"},
                                                                             {"pooling", "cls"},
                                                                             {"input", ""},
                                                                             {"input", Json::array({"x", ""})},
                                                                             {"input", {{"a", 1}}},
                                                                             {"input", Json::array({99999999})},
                                                                             {"no_such_thing", 1}}) {
    Json body{{"input", "x"}};
    body[name] = value;
    EXPECT_EQ(refused_parameter(body, "/v1/embeddings"), name);
  }
  const Answer ollama = server().post("/api/embed", {{"input", "x"}, {"options", {{"num_ctx", 99999}}}});
  EXPECT_EQ(ollama.status, 400) << ollama.body;
}

}  // namespace
}  // namespace tern::server
