// A backend that fails in the middle of a step, seen by clients of every API: an error in their envelope, whole or at
// the end of a stream, and a server that goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "base/error.h"
#include "server/model_server.h"

namespace tern::server {
namespace {

using test::Answer;
using test::chat;
using test::Json;
using test::sse_data;

const Json kMessages = Json::array({{{"role", "user"}, {"content", "What does \"river\" mean?"}}});

struct Route {
  const char* path;
  Json body;
  const char* message;          // where an error has its text
  const char* kind;             // where it has its kind; empty: it has none
  const char *fault, *starved;  // the kinds of a fault of ours, and of too little memory
  const char* in_stream = "";   // in front of `message` in the last event of a stream; nullptr: there are no streams
};

std::vector<Route> routes() {
  const Json text{{"prompt", "Once upon a time"}, {"max_tokens", 8}, {"temperature", 0}};
  const Json messages{{"messages", kMessages}, {"max_tokens", 8}, {"temperature", 0}};
  const Json ollama{{"options", {{"num_predict", 8}, {"temperature", 0}}}};
  Json asked = ollama, told = ollama;
  asked["messages"] = kMessages;
  told["prompt"] = "river";
  const char *ours = "server_error", *memory = "unavailable_error";
  return {
      {"/v1/chat/completions", messages, "/error/message", "/error/type", ours, memory},
      {"/v1/completions", text, "/error/message", "/error/type", ours, memory},
      {"/completion", text, "/error/message", "/error/type", ours, memory},
      {"/v1/messages", messages, "/error/message", "/error/type", "api_error", "overloaded_error"},
      {"/v1/responses",
       {{"input", "river"}, {"max_output_tokens", 8}, {"temperature", 0}},
       "/error/message",
       "/error/type",
       ours,
       memory,
       "/response"},
      {"/api/chat", asked, "/error", "", "", ""},
      {"/api/generate", told, "/error", "", "", ""},
      {"/v1/embeddings", {{"input", "river"}}, "/error/message", "/error/type", ours, memory, nullptr},
      {"/api/embed", {{"input", "river"}}, "/error", "", "", "", nullptr},
  };
}

class Failing : public test::ModelServerTest {
 protected:
  void TearDown() override { served().backend().set_trace({}); }
  /// When nothing runs, no probe behind a failure either.
  static Model& served() {
    Scheduler& scheduler = *server().server().models().find("demo")->scheduler;
    scheduler.drain();
    return scheduler.model();
  }
  /// The next step, and no other, fails with `what`.
  template <typename What>
  static void fail_next_step(What what) {
    Model& model = served();
    model.backend().set_trace(
        [left = 1, middle = model.plan().ops.size() / 2, what = std::move(what)](const OpTrace& trace) mutable {
          if (trace.op == middle && left-- > 0) throw what;
        });
  }
  static void expect_alive() {
    EXPECT_EQ(server().get("/health").status, 200);
    EXPECT_TRUE(server().wait_for_stats([](const SchedulerStats& s) {
      return s.queued == 0 && s.running == 0 && s.pages_free + s.pages_cached == s.pages &&
             s.states_free + s.states_cached == s.states;
    }));
  }
  static std::string said() {
    return server().json("/v1/chat/completions", chat("river", 12)).at("choices").at(0).at("message").dump();
  }
  /// The last thing that a stream says but "[DONE]".
  static Json last_of(const Answer& answer) {
    std::vector<std::string> told = sse_data(answer.body);
    if (answer.headers.at("content-type") == "application/x-ndjson") {
      std::istringstream lines(answer.body);
      for (std::string line; std::getline(lines, line);) told.push_back(line);
    }
    if (!told.empty() && told.back() == "[DONE]") told.pop_back();
    return told.empty() ? Json() : Json::parse(told.back());
  }
  static void expect_error(const Json& json, const Route& route, const std::string& at, const char* message,
                           const char* kind) {
    EXPECT_EQ(json.value(Json::json_pointer(at + route.message), ""), message) << route.path << " " << json;
    if (*route.kind != '\0' && at.empty()) {
      EXPECT_EQ(json.value(Json::json_pointer(route.kind), ""), kind) << route.path << " " << json;
    }
  }
};

TEST_F(Failing, AWholeAnswerIsAnErrorInTheEnvelopeOfItsApi) {
  const std::string before = said();
  for (const Route& route : routes()) {
    Json body = route.body;
    if (route.in_stream) body["stream"] = false;
    fail_next_step(std::runtime_error("the device fell off the bus"));
    const Answer broken = server().post(route.path, body);
    EXPECT_EQ(broken.status, 500) << route.path << broken.body;
    expect_error(Json::parse(broken.body), route, "", "the device fell off the bus", route.fault);
    fail_next_step(Error(ErrorCode::kOutOfMemory, "12 MB more than the device has"));
    const Answer starved = server().post(route.path, body);
    EXPECT_EQ(starved.status, 503) << route.path << starved.body;
    expect_error(Json::parse(starved.body), route, "", "12 MB more than the device has", route.starved);
    EXPECT_EQ(server().post(route.path, body).status, 200) << "of the next, as ever: " << route.path;
  }
  expect_alive();
  served().backend().set_trace({});
  EXPECT_EQ(said(), before);
}

TEST_F(Failing, AStreamEndsWithTheErrorInTheEnvelopeOfItsApi) {
  for (const Route& route : routes()) {
    if (!route.in_stream) continue;
    Json body = route.body;
    body["stream"] = true;
    fail_next_step(std::runtime_error("the device fell off the bus"));
    const Answer answer = server().post(route.path, body);
    EXPECT_EQ(answer.status, 200) << "it had begun";
    EXPECT_TRUE(answer.complete) << route.path;
    expect_error(last_of(answer), route, route.in_stream, "the device fell off the bus", route.fault);
  }
  expect_alive();
}

TEST_F(Failing, AResumableStreamKeepsTheError) {
  Json body = chat("river", 8);
  body["stream"] = true;
  fail_next_step(std::runtime_error("the device fell off the bus"));
  const Answer first = server().post("/v1/chat/completions", body, {"X-Resumable-Stream: 1"});
  const Answer again = server().get("/v1/stream/" + first.headers.at("x-stream-id"));
  EXPECT_EQ(last_of(again).at("error").at("message"), "the device fell off the bus");
  expect_alive();
}

TEST_F(Failing, ABackendThatGoesOnFailingIsSeenInHealth) {
  const auto broken = std::make_shared<std::atomic<bool>>(true);
  served().backend().set_trace([broken](const OpTrace&) {
    if (*broken) throw std::runtime_error("the device fell off the bus");
  });
  EXPECT_EQ(server().post("/v1/chat/completions", chat("river", 4)).status, 500);
  EXPECT_TRUE(server().wait_for_stats([](const SchedulerStats& s) { return !s.failing.empty(); }));
  const Answer sick = server().get("/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_EQ(Json::parse(sick.body).at("error").at("message"),
            "the model 'demo' answers nothing: the device fell off the bus");
  EXPECT_NE(server().get("/metrics").body.find("\ntern_backend_failing{model=\"demo\"} 1\n"), std::string::npos);
  *broken = false;
  EXPECT_EQ(server().post("/v1/chat/completions", chat("river", 4)).status, 200);
  EXPECT_TRUE(server().wait_for_stats([](const SchedulerStats& s) { return s.failing.empty(); }));
  expect_alive();
}

TEST_F(Failing, TheMetricsCountIt) {
  const uint64_t before = server().stats().failed;
  fail_next_step(std::runtime_error("once"));
  EXPECT_EQ(server().post("/v1/chat/completions", chat("river", 4)).status, 500);
  EXPECT_TRUE(server().wait_for_stats([&](const SchedulerStats& s) { return s.failed == before + 1; }));
  const std::string counted = "\ntern_requests_failed_total{model=\"demo\"} " + std::to_string(before + 1) + "\n";
  EXPECT_NE(server().get("/metrics").body.find(counted), std::string::npos);
}

TEST_F(Failing, ARequestThatLeavesNoTokenToSayIsRefused) {
  const auto vocabulary = static_cast<int>(server().server().models().find("demo")->tokenizer().n_vocab());
  Json bans = Json::array();
  for (int token = 0; token < vocabulary; ++token) bans.push_back(Json::array({token, false}));
  for (const bool stream : {false, true}) {
    Json body{{"prompt", "river"}, {"max_tokens", 4}, {"logit_bias", bans}, {"stream", stream}};
    const Answer answer = server().post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json error = Json::parse(answer.body).at("error");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_NE(error.at("message").get<std::string>().find("logit_bias bans all"), std::string::npos) << answer.body;
  }
  // Where only the grammar's own tokens are banned it shows when the answer begins.
  Json held{{"prompt", "river"}, {"max_tokens", 4}, {"grammar", R"(root ::= "7")"}, {"logit_bias", Json::array()}};
  for (int token = 0; token < vocabulary; ++token)
    if (server().server().models().find("demo")->tokenizer().piece(token, true).starts_with("7"))
      held["logit_bias"].push_back(Json::array({token, false}));
  const Answer answer = server().post("/v1/completions", held);
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_NE(answer.body.find("the biases and the grammar of the request leave none"), std::string::npos);
  expect_alive();
}

}  // namespace
}  // namespace tern::server
