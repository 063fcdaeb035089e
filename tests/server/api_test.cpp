// The APIs over the demo model: what clients of OpenAI and llama.cpp ask, and what they must be told.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "gguf/temp_folder.h"
#include "server/model_server.h"

namespace tern::server {
namespace {

using test::Answer;
using test::chat;
using test::Client;
using test::http_request;
using test::Json;
using test::ModelServer;
using test::sse_data;

constexpr const char* kQuestion = "What does \"river\" mean?";

/// One server for all tests here. It ends before main() does: what it logs to goes behind that.
class SharedServer : public ::testing::Environment {
 public:
  void SetUp() override { server = std::make_unique<ModelServer>(); }
  void TearDown() override { server.reset(); }
  std::unique_ptr<ModelServer> server;
};
SharedServer* const kShared =
    static_cast<SharedServer*>(::testing::AddGlobalTestEnvironment(std::make_unique<SharedServer>().release()));
ModelServer& shared() {
  return *kShared->server;
}

Json error_of(const Answer& answer) {
  return Json::parse(answer.body, nullptr, false).at("error");
}

std::vector<Json> events(const Answer& answer) {
  std::vector<Json> out;
  for (const std::string& data : sse_data(answer.body))
    if (data != "[DONE]") out.push_back(Json::parse(data));
  return out;
}

TEST(Chat, AnswersWithUsageAndTimings) {
  const Json j = shared().json("/v1/chat/completions", chat(kQuestion));
  EXPECT_EQ(j.at("object"), "chat.completion");
  EXPECT_EQ(j.at("model"), "demo");
  EXPECT_FALSE(j.at("choices").at(0).at("message").at("content").get<std::string>().empty());
  EXPECT_GT(j.at("usage").at("prompt_tokens"), 5);
  EXPECT_GT(j.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(j.at("usage").at("total_tokens").get<int>(),
            j.at("usage").at("prompt_tokens").get<int>() + j.at("usage").at("completion_tokens").get<int>());
  EXPECT_GT(j.at("timings").at("predicted_ms"), 0);
}

TEST(Chat, AStreamSaysTheSameAsAWholeAnswer) {
  const Json whole = shared().json("/v1/chat/completions", chat(kQuestion));
  Json body = chat(kQuestion);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Answer answer = shared().post("/v1/chat/completions", body);
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(sse_data(answer.body).back(), "[DONE]");
  std::string content, reason;
  Json usage;
  const std::vector<Json> chunks = events(answer);
  EXPECT_EQ(chunks.front().at("choices").at(0).at("delta").at("role"), "assistant");
  for (const Json& chunk : chunks) {
    if (!chunk.at("choices").empty()) {
      const Json& choice = chunk.at("choices").at(0);
      content += choice.at("delta").value("content", "");
      if (!choice.at("finish_reason").is_null()) reason = choice.at("finish_reason");
    }
    if (chunk.contains("usage")) usage = chunk.at("usage");
  }
  EXPECT_EQ(content, whole.at("choices").at(0).at("message").at("content"));
  EXPECT_EQ(reason, whole.at("choices").at(0).at("finish_reason"));
  EXPECT_EQ(usage.at("completion_tokens"), whole.at("usage").at("completion_tokens"));
  EXPECT_EQ(usage.at("prompt_tokens"), whole.at("usage").at("prompt_tokens"));
}

TEST(Chat, NChoicesOfOneSeedAreNAnswers) {
  Json body = chat(kQuestion, 8);
  body["n"] = 2;
  body["seed"] = 7;
  body["temperature"] = 1.5;
  const Json two = shared().json("/v1/chat/completions", body);
  ASSERT_EQ(two.at("choices").size(), 2u);
  EXPECT_EQ(two.at("choices").at(1).at("index"), 1);
  EXPECT_NE(two.at("choices").at(0).at("message"), two.at("choices").at(1).at("message"));
}

TEST(Chat, LogprobsCarryTokensAndTheirRivals) {
  Json body = chat(kQuestion, 4);
  body["logprobs"] = true;
  body["top_logprobs"] = 3;
  const Json j = shared().json("/v1/chat/completions", body);
  const Json& content = j.at("choices").at(0).at("logprobs").at("content");
  ASSERT_EQ(content.size(), j.at("usage").at("completion_tokens").get<size_t>());
  EXPECT_EQ(content.at(0).at("top_logprobs").size(), 3u);
  EXPECT_LE(content.at(0).at("logprob"), 0);
}

TEST(Chat, AStopStringIsNotShown) {
  const std::string whole =
      shared().json("/v1/chat/completions", chat(kQuestion, 24)).at("choices").at(0).at("message").at("content");
  const size_t blank = whole.find(' ');
  ASSERT_NE(blank, std::string::npos) << whole;
  Json body = chat(kQuestion, 24);
  body["stop"] = Json::array({" "});
  const Json j = shared().json("/v1/chat/completions", body);
  EXPECT_EQ(j.at("choices").at(0).at("message").at("content"), whole.substr(0, blank));
  EXPECT_EQ(j.at("choices").at(0).at("finish_reason"), "stop");
}

TEST(Chat, WithoutMaxTokensAnswersWithWhatFits) {
  Json body = chat(kQuestion);
  body.erase("max_tokens");
  EXPECT_EQ(shared().post("/v1/chat/completions", body).status, 200);
}

TEST(Chat, APromptThatDoesNotFitIsRefusedWithBothNumbers) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "river ";
  const Answer answer = shared().post("/v1/chat/completions", chat(text));
  EXPECT_EQ(answer.status, 400);
  const Json error = error_of(answer);
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_GT(error.at("n_prompt_tokens"), 3000);
  const Json model = Json::parse(shared().get("/v1/models").body).at("data").at(0);
  EXPECT_EQ(error.at("n_ctx"), model.at("meta").at("n_ctx"));
  EXPECT_NE(error.at("message").get<std::string>().find(error.at("n_ctx").dump()), std::string::npos);
}

TEST(Chat, SystemAndDeveloperMessagesMayStandAnywhere) {
  Json body = chat("hello", 2);
  body["messages"] = {{{"role", "developer"}, {"content", "Be brief."}},
                      {{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "hi"}}})}},
                      {{"role", "assistant"}, {"content", nullptr}},
                      {{"role", "system"}, {"content", "Be polite."}},
                      {{"role", "user"}, {"content", kQuestion}}};
  EXPECT_EQ(shared().post("/v1/chat/completions", body).status, 200);
}

TEST(Chat, HistoryWithToolCallsRendersWhateverFormTheArgumentsHave) {
  for (const Json& arguments : {Json(R"({"city": "Oslo"})"), Json({{"city", "Oslo"}})}) {
    Json body = chat("weather?", 2);
    body["messages"].push_back(
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls",
          Json::array(
              {{{"id", "c1"}, {"type", "function"}, {"function", {{"name", "weather"}, {"arguments", arguments}}}}})}});
    body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "rain"}});
    EXPECT_EQ(shared().post("/v1/chat/completions", body).status, 200) << arguments;
  }
}

Json tool_named(std::string_view name) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", {{"type", "object"}}}}}};
}

TEST(Chat, AGrammarAndACallThatIsAskedForCannotBothHold) {
  Json body = chat("x", 1);
  body.update({{"tools", Json::array({tool_named("f")})}, {"tool_choice", "required"}, {"grammar", "root ::= \"a\""}});
  const Answer answer = shared().post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(error_of(answer).at("param"), "grammar");
}

TEST(Chat, WhatWouldChangeTheAnswerAndIsNotDoneIsRefusedByName) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{{"no_such_thing", 1},
                                                                             {"mirostat", 2},
                                                                             {"n", 0},
                                                                             {"temperature", "hot"},
                                                                             {"temperature", -1},
                                                                             {"top_k", 1.5},
                                                                             {"top_logprobs", 3},
                                                                             {"stream_options", Json::object()},
                                                                             {"stop", 5},
                                                                             {"logit_bias", {{"x", 1}}},
                                                                             {"logit_bias", {{"5", 1e300}}},
                                                                             {"t_max_predict_ms", 100},
                                                                             {"tools", Json::array({tool_named("")})},
                                                                             {"response_format", {{"type", "xml"}}},
                                                                             {"response_format", {{"type", 5}}},
                                                                             {"tools", Json::array({{{"type", 5}}})},
                                                                             {"tool_choice", "required"},
                                                                             {"max_tokens", 0}}) {
    Json body = chat("x", 1);
    body[name] = value;
    const Answer answer = shared().post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << name << ": " << answer.body;
    EXPECT_EQ(error_of(answer).at("param"), name) << answer.body;
    EXPECT_NE(error_of(answer).at("message").get<std::string>().find(name == "logit_bias" ? "token" : name),
              std::string::npos);
  }
}

TEST(Chat, NeutralAndHarmlessParametersAreAccepted) {
  Json body = chat("x", 1);
  body.update({{"presence_penalty", 0},
               {"frequency_penalty", 0.0},
               {"user", "u"},
               {"metadata", {{"a", "b"}}},
               {"n", 1},
               {"logit_bias", Json::object()},
               {"store", false},
               {"tools", Json::array()},
               {"seed", nullptr},
               {"typical_p", 1.0},
               {"parallel_tool_calls", true},
               {"response_format", {{"type", "text"}}},
               {"top_p", 1},
               {"stop", nullptr}});
  const Answer answer = shared().post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST(Chat, AnImageIsRefusedForWhatItIs) {
  Json body = chat("x", 1);
  body["messages"][0]["content"] = Json::array({{{"type", "image_url"}, {"image_url", {{"url", "data:,"}}}}});
  const Answer answer = shared().post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("image_url"), std::string::npos);
}

TEST(Requests, BodiesThatAreNoJsonAreRefusedAndHarmNothing) {
  std::string deep(100'000, '['), wide = "{";
  for (int i = 0; i < 5000; ++i) wide += "\"k" + std::to_string(i) + "\":1,";
  for (const std::string& body :
       {std::string("{"), std::string("nonsense"), std::string("[1]"), std::string("\xff\xfe"), deep, wide + "\"z\":1}",
        std::string(R"({"messages": 5})"), std::string(R"({"messages": [5]})"), std::string(R"({"messages": [{}]})"),
        std::string(R"({"messages": [{"role": "user", "content": 5}]})"), std::string(R"({"messages": []})")}) {
    const Answer answer = test::ask(shared().port(), "POST", "/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << body.substr(0, 60);
    EXPECT_FALSE(error_of(answer).at("message").get<std::string>().empty());
  }
  EXPECT_EQ(shared().get("/health").status, 200);
}

TEST(Requests, PathsAndMethodsThatDoNotExistAreNamed) {
  EXPECT_EQ(shared().get("/v1/nothing").status, 404);
  const Answer wrong = shared().get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
}

TEST(Requests, MinusOneTokenIsWhatFitsAsClientsOfLlamaCppSayIt) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    Json body = chat("river");
    body.erase("max_tokens");
    body[name] = -1;
    body["stop"] = Json::array({" ", "."});
    EXPECT_EQ(shared().post("/v1/chat/completions", body).status, 200) << name;
    for (const int wrong : {0, -2}) {
      body[name] = wrong;
      EXPECT_EQ(error_of(shared().post("/v1/chat/completions", body)).at("param"), name);
    }
  }
}

TEST(Requests, ABaseUrlMayLackTheVersion) {
  EXPECT_EQ(shared().json("/chat/completions", chat("river", 2)).at("object"), "chat.completion");
}

TEST(Requests, AConversationThatIsTooMuchForTheTemplateIsTheClientsToShorten) {
  server::ServerOptions options = test::demo_options();
  options.models.chat_template =
      "{% if messages[0].content == 'much' %}{% for i in range(99999) %}"
      "{% set list = [i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i,i] %}{% endfor %}{% endif %}"
      "{{ messages[0].content }}";
  ModelServer server(std::move(options));
  EXPECT_EQ(server.post("/v1/chat/completions", chat("little", 1)).status, 200);
  const Answer answer = server.post("/v1/chat/completions", chat("much", 1));
  EXPECT_EQ(answer.status, 400) << "clients try 503 again: " << answer.body;
  EXPECT_EQ(error_of(answer).at("param"), "messages");
}

TEST(Requests, AnUnknownModelIsNotAnotherOne) {
  Json body = chat("x", 1);
  body["model"] = "gpt-9";
  const Answer answer = shared().post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(error_of(answer).at("code"), "model_not_found");
  EXPECT_NE(answer.body.find("demo"), std::string::npos) << "the names there are";
}

TEST(Completions, LogprobsOfAStreamAreThoseOfTheWholeAnswerInPieces) {
  Json body{{"prompt", "The river"}, {"max_tokens", 6}, {"temperature", 0}, {"logprobs", 1}};
  const Json whole = shared().json("/v1/completions", body).at("choices").at(0).at("logprobs");
  ASSERT_EQ(whole.at("tokens").size(), 6u);
  EXPECT_GT(whole.at("text_offset").back().get<int>(), 5);
  body["stream"] = true;
  std::map<std::string, Json> joined;
  for (const std::string& data : sse_data(shared().post("/v1/completions", body).body)) {
    if (data == "[DONE]") continue;
    const Json logprobs = Json::parse(data).at("choices").at(0).at("logprobs");
    if (logprobs.is_null()) continue;
    for (const auto& [name, values] : logprobs.items())
      for (const Json& value : values) joined[name].push_back(value);
  }
  for (const auto& [name, values] : whole.items()) EXPECT_EQ(joined[name], values) << name;
}

TEST(Completions, ContinueTextAndTokensAlike) {
  const Json tokens = shared().json("/tokenize", {{"content", "The river"}}).at("tokens");
  const auto text_of = [&](const Json& prompt) {
    return shared()
        .json("/v1/completions", {{"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}})
        .at("choices")
        .at(0)
        .at("text");
  };
  EXPECT_EQ(text_of("The river"), text_of(tokens));
  const Json echoed = shared().json("/v1/completions",
                                    {{"prompt", "The river"}, {"max_tokens", 2}, {"temperature", 0}, {"echo", true}});
  EXPECT_TRUE(echoed.at("choices").at(0).at("text").get<std::string>().starts_with("The river"));
}

TEST(LlamaCpp, CompletionStreamsAndEndsWithWhy) {
  const Json body{{"prompt", "The river"}, {"n_predict", 6}, {"temperature", 0}, {"stream", true}};
  const Answer answer = shared().post("/completion", body);
  std::string content;
  const std::vector<Json> chunks = events(answer);
  for (const Json& chunk : chunks) content += chunk.at("content").get<std::string>();
  EXPECT_EQ(chunks.back().at("stop"), true);
  EXPECT_EQ(chunks.back().at("stop_type"), "limit");
  EXPECT_EQ(chunks.back().at("tokens_predicted"), 6);
  Json whole = body;
  whole["stream"] = false;
  EXPECT_EQ(shared().json("/completion", whole).at("content"), content);
}

TEST(LlamaCpp, TheSeedThatIsToldDrawsTheAnswerAgain) {
  Json body{{"prompt", "The river"}, {"n_predict", 12}, {"temperature", 1.5}, {"cache_prompt", false}};
  const Json first = shared().json("/completion", body);
  body["seed"] = first.at("generation_settings").at("seed");
  EXPECT_EQ(shared().json("/completion", body).at("content"), first.at("content"));
}

TEST(LlamaCpp, TokensRoundTripAndTemplatesRender) {
  const Json tokens = shared().json("/tokenize", {{"content", "caf\u00e9 river"}, {"with_pieces", true}}).at("tokens");
  Json ids = Json::array();
  for (const Json& token : tokens) ids.push_back(token.at("id"));
  EXPECT_EQ(shared().json("/detokenize", {{"tokens", ids}}).at("content"), "caf\u00e9 river");
  const Json prompt = shared().json("/apply-template", chat("river")).at("prompt");
  EXPECT_NE(prompt.get<std::string>().find("river"), std::string::npos);
  EXPECT_NE(prompt.get<std::string>().find("assistant"), std::string::npos);
}

TEST(LlamaCpp, PropsAndModelsTellOneContext) {
  const Json props = Json::parse(shared().get("/props").body);
  const Json model = Json::parse(shared().get("/v1/models").body).at("data").at(0);
  EXPECT_EQ(props.at("n_ctx"), model.at("meta").at("n_ctx"));
  EXPECT_EQ(props.at("total_slots"), 4);
  EXPECT_EQ(model.at("id"), "demo");
  EXPECT_GT(model.at("meta").at("n_params"), 100'000'000);
  EXPECT_TRUE(props.at("default_generation_settings").at("params").contains("temperature"));
}

TEST(LlamaCpp, MetricsCountWhatWasAnswered) {
  shared().json("/v1/chat/completions", chat("x", 2));
  const std::string text = shared().get("/metrics").body;
  for (const char* name :
       {"tern_requests_total{model=\"demo\"}", "tern_kv_pages_used", "tern_time_to_first_token_seconds_bucket",
        "tern_inter_token_seconds_count", "tern_http_requests_total{status=\"200\"}"})
    EXPECT_NE(text.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace tern::server
