// The APIs of others than OpenAI and llama.cpp over the demo model.
#include <gtest/gtest.h>

#include "server/model_server.h"

namespace tern::server {
namespace {

using test::Answer;
using test::Json;
using test::sse_data;

class Messages : public test::ModelServerTest {
 protected:
  /// A greedy request of one user message.
  static Json body() {
    return {{"model", "demo"},
            {"max_tokens", 16},
            {"temperature", 0},
            {"messages", Json::array({{{"role", "user"}, {"content", "What does \"river\" mean?"}}})}};
  }
  static void expect_refused(const Json& request, std::string_view named) {
    const Answer answer = server().post("/v1/messages", request);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json json = Json::parse(answer.body, nullptr, false);
    EXPECT_EQ(json.at("type"), "error");
    EXPECT_EQ(json.at("error").at("type"), "invalid_request_error");
    EXPECT_NE(json.at("error").at("message").get<std::string>().find(named), std::string::npos) << answer.body;
  }
};

TEST_F(Messages, AStreamSaysTheSameAsAWholeAnswer) {
  const Json whole = server().json("/v1/messages", body());
  EXPECT_EQ(whole.at("type"), "message");
  Json request = body();
  request["stream"] = true;
  std::vector<std::string> types;
  std::string said, wanted;
  Json last;
  for (const std::string& data : sse_data(server().post("/v1/messages", request).body)) {
    const Json event = Json::parse(data);
    types.push_back(event.at("type"));
    if (types.back() == "content_block_delta")
      for (const char* key : {"text", "thinking"}) said += event.at("delta").value(key, "");
    if (types.back() == "message_delta") last = event;
  }
  for (const Json& block : whole.at("content"))
    for (const char* key : {"text", "thinking"}) wanted += block.value(key, "");
  ASSERT_FALSE(types.empty());
  EXPECT_EQ(types.front(), "message_start");
  EXPECT_EQ(types.back(), "message_stop");
  EXPECT_FALSE(said.empty());
  EXPECT_EQ(said, wanted);
  EXPECT_EQ(last.at("delta").at("stop_reason"), whole.at("stop_reason"));
  EXPECT_EQ(last.at("usage").at("output_tokens"), whole.at("usage").at("output_tokens"));
}

TEST_F(Messages, CountsTheTokensThatAnAnswerReads) {
  Json request = body();
  const Json usage = server().json("/v1/messages", request).at("usage");
  request.erase("max_tokens");
  request.erase("temperature");
  const Json counted = server().json("/v1/messages/count_tokens", request);
  EXPECT_EQ(counted.at("input_tokens").get<int>(),
            usage.at("input_tokens").get<int>() + usage.at("cache_read_input_tokens").get<int>());
}

TEST_F(Messages, SystemMessagesMayStandAnywhere) {
  Json request = body();
  request["system"] = "Be brief.";
  request["messages"].insert(request["messages"].begin(), {{{"role", "user"}, {"content", "hi"}},
                                                           {{"role", "assistant"}, {"content", "hello"}},
                                                           {{"role", "system"}, {"content", "Be polite."}}});
  const Answer answer = server().post("/v1/messages", request);
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(Messages, WhatCannotBeDoneIsRefusedByName) {
  Json request = body();
  request.erase("max_tokens");
  expect_refused(request, "max_tokens");
  request = body();
  request["mcp_servers"] = Json::array({"x"});
  expect_refused(request, "mcp_servers");
  request = body();
  request["messages"].push_back({{"role", "assistant"}, {"content", "It is"}});
  expect_refused(request, "last message");
}

}  // namespace
}  // namespace tern::server
