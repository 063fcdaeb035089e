// Ollama's API over the demo model: what its official client (clients/ollama.mjs) cannot ask, or cannot see.
#include <gtest/gtest.h>

#include <sstream>

#include "server/model_server.h"
#include "server/tool_template.h"

namespace tern::server {
namespace {

using test::Answer;
using test::Json;
using test::ModelServer;

class OllamaApi : public test::ModelServerTest {
 protected:
  static Json question(const Json& options = Json::object()) {
    Json body{{"model", "demo"},
              {"messages", Json::array({{{"role", "user"}, {"content", "What does \"river\" mean?"}}})},
              {"stream", false},
              {"options", {{"temperature", 0}, {"num_predict", 8}}}};
    body["options"].update(options);
    return body;
  }
  static std::string refusal(std::string_view path, const Json& body) {
    const Answer answer = server().post(path, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json json = Json::parse(answer.body);
    EXPECT_EQ(json.size(), 1u) << answer.body;
    return json.at("error").get<std::string>();
  }
};

TEST_F(OllamaApi, AStreamIsAJsonObjectALineAndNothingElse) {
  Json body = question();
  body.erase("stream");
  const Answer answer = server().post("/api/chat", body);
  EXPECT_EQ(answer.headers.at("content-type"), "application/x-ndjson");
  std::istringstream lines(answer.body);
  std::vector<Json> parts;
  for (std::string line; std::getline(lines, line);) parts.push_back(Json::parse(line));
  ASSERT_GT(parts.size(), 2u);
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i].at("done"), i + 1 == parts.size());
  const Json& last = parts.back();
  EXPECT_EQ(last.at("eval_count"), 8);
  EXPECT_GE(last.at("total_duration").get<int64_t>(),
            last.at("prompt_eval_duration").get<int64_t>() + last.at("eval_duration").get<int64_t>());
  EXPECT_GT(last.at("eval_duration"), 0);
}

TEST_F(OllamaApi, AnAnswerEndsWhereTheContextThatWasAskedForDoes) {
  const int prompt = server().json("/api/chat", question()).at("prompt_eval_count");
  const Json held = server().json("/api/chat", question({{"num_ctx", prompt + 3}}));
  EXPECT_EQ(held.at("eval_count"), 3);
  EXPECT_EQ(held.at("done_reason"), "length");
  const std::string why = refusal("/api/chat", question({{"num_ctx", prompt}}));
  EXPECT_NE(why.find(std::to_string(prompt)), std::string::npos) << why;
}

TEST_F(OllamaApi, AContextThatIsNotServedIsRefusedWithBothNumbers) {
  const std::string why = refusal("/api/chat", question({{"num_ctx", 99999}}));
  EXPECT_NE(why.find("99999"), std::string::npos) << why;
  EXPECT_NE(why.find("1024"), std::string::npos) << why;
}

TEST_F(OllamaApi, ALimitBeyondTheContextIsWhatFits) {
  EXPECT_EQ(server().post("/api/chat", question({{"num_predict", 100000}, {"stop", Json::array({" "})}})).status, 200);
}

TEST_F(OllamaApi, WhatWouldChangeTheAnswerAndIsNotDoneIsRefusedByName) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{
           {"mirostat", 2}, {"num_predict", 0}, {"no_such_thing", 1}, {"tfs_z", 0.5}, {"temperature", "hot"}}) {
    const std::string why = refusal("/api/chat", question({{name, value}}));
    EXPECT_NE(why.find(name), std::string::npos) << why;
  }
  for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{
           {"think", true}, {"format", "xml"}, {"keep_alive", "soon"}, {"shift", true}, {"no_such_thing", 1}}) {
    Json body = question();
    body[name] = value;
    const std::string why = refusal("/api/chat", body);
    EXPECT_NE(why.find(name == "think" ? "think" : name), std::string::npos) << why;
  }
  Json image = question();
  image["messages"][0]["images"] = Json::array({"aGk="});
  EXPECT_NE(refusal("/api/chat", image).find("images"), std::string::npos);
  EXPECT_NE(refusal("/api/generate", {{"prompt", "x"}, {"suffix", "y"}}).find("suffix"), std::string::npos);
}

TEST_F(OllamaApi, TruncateCutsNothing) {
  Json body = question({{"num_predict", 2}});
  body["truncate"] = true;
  EXPECT_EQ(server().post("/api/chat", body).status, 200);
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "river ";
  body["messages"][0]["content"] = words;
  EXPECT_NE(refusal("/api/chat", body).find("1024"), std::string::npos);
  EXPECT_EQ(server().post("/api/embed", {{"input", "river"}, {"truncate", true}}).status, 200);
  EXPECT_NE(refusal("/api/embed", {{"input", words}, {"truncate", true}}).find("1024"), std::string::npos);
}

TEST_F(OllamaApi, WhatSaysHowAModelRunsIsTheServersToDecide) {
  Json body = question({{"num_gpu", 99}, {"num_thread", 8}, {"num_keep", 4}, {"use_mmap", true}, {"tfs_z", 1.0}});
  body.update({{"keep_alive", "5m"}, {"think", false}, {"format", ""}, {"tools", Json::array()}, {"shift", false}});
  const Answer answer = server().post("/api/chat", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(OllamaApi, HistoryWithCallsNeedsNoIds) {
  Json body = question();
  const Json call = {{"function", {{"name", "weather"}, {"arguments", {{"city", "Oslo"}}}}}};
  body["messages"].push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}});
  body["messages"].push_back({{"role", "tool"}, {"tool_name", "weather"}, {"content", "rain"}});
  body["messages"].push_back({{"role", "system"}, {"content", "Be brief."}});
  body["messages"].push_back({{"role", "user"}, {"content", "And tomorrow?"}});
  const Answer answer = server().post("/api/chat", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(OllamaApi, WhatOnlyItKnowsIsRefusedByNameElsewhere) {
  for (const char* path : {"/v1/chat/completions", "/v1/responses", "/v1/messages"})
    for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{
             {"think", false}, {"num_ctx", 4096}, {"options", {{"num_ctx", 1}}}}) {
      Json body{{"max_tokens", 1}, {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
      if (std::string_view(path) == "/v1/responses") body = {{"input", "x"}};
      body[name] = value;
      const Answer answer = server().post(path, body);
      EXPECT_EQ(answer.status, 400) << path;
      EXPECT_NE(answer.body.find("'" + name + "'"), std::string::npos) << answer.body;
    }
}

TEST(OllamaTools, ThoughtsAreApartAndArgumentsAreObjects) {
  ServerOptions options = test::demo_options();
  options.models.chat_template = test::kToolTemplate;
  ModelServer server(std::move(options));
  const Json shown = server.json("/api/show", {{"model", "demo"}});
  EXPECT_EQ(shown.at("capabilities"), (Json{"completion", "tools", "thinking"}));
  Json body{{"messages", Json::array({{{"role", "user"}, {"content", "What is the weather in Oslo?"}}})},
            {"stream", false},
            {"think", true},
            {"options", {{"temperature", 0}, {"num_predict", 8}}}};
  const Json thought = server.json("/api/chat", body);
  EXPECT_FALSE(thought.at("message").at("thinking").get<std::string>().empty());
  EXPECT_EQ(thought.at("message").at("content"), "");
  EXPECT_EQ(thought.at("done_reason"), "length");

  body["think"] = false;
  body["grammar"] = test::kOneCall;
  body["options"].erase("num_predict");
  body["tools"] =
      Json::parse(R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}])");
  const Json called = server.json("/api/chat", body);
  ASSERT_EQ(called.at("message").at("tool_calls").size(), 1u) << called;
  const Json& function = called.at("message").at("tool_calls").at(0).at("function");
  EXPECT_EQ(function.at("name"), "weather");
  EXPECT_EQ(function.at("arguments"), (Json{{"city", "Oslo"}}));
  EXPECT_FALSE(called.at("message").contains("thinking"));
  EXPECT_EQ(called.at("done_reason"), "stop");

  body["stream"] = true;
  std::istringstream lines(server.post("/api/chat", body).body);
  Json calls;
  for (std::string line; std::getline(lines, line);)
    if (const Json part = Json::parse(line); part.at("message").contains("tool_calls"))
      calls = part.at("message").at("tool_calls");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls.at(0).at("function"), function);

  body["messages"].push_back(called.at("message"));  // as clients send it back
  body["messages"].push_back({{"role", "tool"}, {"tool_name", "weather"}, {"content", "rain"}});
  EXPECT_EQ(server.post("/api/chat", body).status, 200);
}

TEST_F(OllamaApi, ARequestWithoutAQuestionIsAboutTheModel) {
  Json loaded = server().json("/api/generate", {{"model", "demo"}});
  EXPECT_EQ(loaded.at("done_reason"), "load");
  EXPECT_EQ(loaded.at("response"), "");
  const Answer slip = server().post("/api/chat", {{"model", "demo"}, {"mesages", question().at("messages")}});
  EXPECT_EQ(slip.status, 400) << "an empty answer would hide that nothing was asked: " << slip.body;
  EXPECT_NE(slip.body.find("mesages"), std::string::npos) << slip.body;
  const Answer unknown = server().post("/api/generate", {{"model", "another"}, {"keep_alive", 0}});
  EXPECT_EQ(unknown.status, 404) << unknown.body;
  EXPECT_EQ(server().json("/api/chat", {{"model", "demo"}, {"keep_alive", 0}}).at("done_reason"), "unload");
  EXPECT_EQ(server().post("/api/chat", question()).status, 409);
  EXPECT_TRUE(Json::parse(server().get("/api/ps").body).at("models").empty());
  server().json("/api/generate", {{"model", "demo"}, {"keep_alive", -1}});
  server().wait_until("demo", Registry::State::kReady);
  EXPECT_EQ(server().post("/api/chat", question()).status, 200);
}

TEST_F(OllamaApi, ClientsFindOutWhoAnswers) {
  EXPECT_EQ(server().get("/").body, "Ollama is running");
  EXPECT_FALSE(Json::parse(server().get("/api/version").body).at("version").get<std::string>().empty());
  const Json tag = Json::parse(server().get("/api/tags").body).at("models").at(0);
  EXPECT_EQ(tag.at("name"), "demo");
  EXPECT_TRUE(Json::parse(server().get("/api/nothing").body).at("error").is_string()) << "in Ollama's envelope";
  EXPECT_EQ(tag.at("digest").get<std::string>().size(), 64u);
  EXPECT_EQ(tag.at("details").at("quantization_level"), "PTQ1_0");
}

}  // namespace
}  // namespace tern::server
