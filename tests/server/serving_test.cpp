// What happens around answers: clients that leave, streams that resume, keys and origins, models that come and go.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "gguf/temp_folder.h"
#include "server/model_server.h"

namespace tern::server {
namespace {

using test::Answer;
using test::chat;
using test::Client;
using test::demo_options;
using test::http_request;
using test::Json;
using test::ModelServer;
using test::sse_data;

Json long_chat() {
  Json body = chat("Tell me about rivers.", 900);
  body["stream"] = true;
  body["ignore_eos"] = true;
  return body;
}

bool idle(const SchedulerStats& stats) {
  return stats.queued == 0 && stats.running == 0 && stats.pages_free + stats.pages_cached == stats.pages;
}

TEST(Leaving, AClientThatLeavesWhileDecodingFreesItsPages) {
  ModelServer server;
  Client client(server.port());
  client.send(http_request("POST", "/v1/chat/completions", long_chat().dump()));
  client.read_until("\"content\":\"");
  client.read_until("\n\n");
  client.read_until("\n\n");
  client.close();
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.cancelled == 1 && idle(s); }));
}

TEST(Leaving, AClientThatLeavesBeforeItsWholeAnswerFreesItsPages) {
  ModelServer server;
  Client client(server.port());
  Json body = long_chat();
  body["stream"] = false;
  body.erase("stream_options");
  client.send(http_request("POST", "/v1/chat/completions", body.dump()));
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.running == 1; }));
  client.close();
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.cancelled == 1 && idle(s); }));
}

TEST(Leaving, AClientThatLeavesWhileItsPromptIsReadFreesItsPages) {
  ModelServer server;
  std::promise<void> second_step, go;
  std::shared_future<void> gate = go.get_future().share();
  const auto model = server.server().models().find("demo");
  model->model->backend().set_trace([&second_step, gate, steps = 0](const OpTrace& trace) mutable {
    if (trace.op != 0 || ++steps != 2) return;
    second_step.set_value();
    gate.wait();
  });
  std::string words;
  for (int i = 0; i < 300; ++i) words += " river";
  Json body = long_chat();
  body["messages"][0]["content"] = words;
  body["max_tokens"] = 9;
  Client client(server.port());
  client.send(http_request("POST", "/v1/chat/completions", body.dump()));
  ASSERT_EQ(second_step.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  EXPECT_EQ(server.stats().slots.at(0).state, SlotInfo::State::kPrompt);
  client.close();
  // The connection that asks is the only one left once the other has been given up.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (server.get("/metrics").body.find("\ntern_http_connections 1\n") == std::string::npos &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  go.set_value();
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.cancelled == 1 && idle(s); }));
  EXPECT_EQ(server.stats().steps, 2u) << "the rest of the prompt is read for nobody";
  EXPECT_EQ(server.stats().generated_tokens, 0u);
}

/// `first` takes the only place of a server, `second` waits for it.
void occupy_and_queue(ModelServer& server, Client& first, Client& second) {
  first.send(http_request("POST", "/v1/chat/completions", long_chat().dump()));
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.running == 1; }));
  second.send(http_request("POST", "/v1/chat/completions", long_chat().dump()));
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.queued == 1; }));
}

TEST(Leaving, AClientThatLeavesTheQueueIsForgotten) {
  ServerOptions options = demo_options();
  options.models.engine.limits.sequences = 1;
  ModelServer server(std::move(options));
  Client first(server.port()), second(server.port());
  occupy_and_queue(server, first, second);
  const Json slots = Json::parse(server.get("/slots").body);
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots.at(1).at("queue_position"), 1);
  second.close();
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.queued == 0 && s.running == 1; }));
  first.close();
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return idle(s); }));
}

TEST(Leaving, AnAnswerCanBeCancelledByItsId) {
  ModelServer server;
  Client client(server.port());
  client.send(http_request("POST", "/v1/chat/completions", long_chat().dump()));
  const std::string first = client.read_until("\n\n") + client.read_until("\n\n");
  const std::string id = Json::parse(sse_data(first).at(0)).at("id");
  EXPECT_EQ(server.json("/v1/cancel", {{"id", id}}).at("cancelled"), true);
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"finish_reason\":\"cancelled\""), std::string::npos) << rest.substr(rest.size() - 400);
  EXPECT_EQ(server.post("/v1/cancel", {{"id", id}}).status, 404);
}

TEST(Leaving, AFullQueueRefusesWithATimeToComeBack) {
  ServerOptions options = demo_options();
  options.models.engine.limits.sequences = 1;
  options.models.limits.queue = 1;
  ModelServer server(std::move(options));
  Client first(server.port()), second(server.port());
  occupy_and_queue(server, first, second);
  const Answer refused = server.post("/v1/chat/completions", chat("x", 1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  Json body = chat("x", 1);
  body["n"] = 3;
  const Answer never = server.post("/v1/chat/completions", body);
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_NE(never.body.find("'n' is 3, and this server runs and queues at most 2"), std::string::npos) << never.body;
}

TEST(Resuming, AStreamGoesOnWhereItsReaderStopped) {
  ModelServer server;
  Json body = chat("What does \"river\" mean?", 24);
  body["stream"] = true;
  const std::vector<std::string> whole = sse_data(server.post("/v1/chat/completions", body).body);
  std::string id, last, seen;
  {
    Client client(server.port());
    client.send(http_request("POST", "/v1/chat/completions", body.dump(), {"X-Resumable-Stream: 1"}));
    const std::string head = client.read_until("\r\n\r\n");
    const size_t at = head.find("X-Stream-Id: ");
    ASSERT_NE(at, std::string::npos) << head;
    id = head.substr(at + 13, head.find("\r\n", at) - at - 13);
    client.read_until("id: 2\n");
  }
  const Answer rest = server.get("/v1/stream/" + id, {"Last-Event-ID: 2"});
  EXPECT_TRUE(rest.complete);
  EXPECT_TRUE(rest.body.starts_with("id: 3\n")) << rest.body.substr(0, 80);
  const Answer again = server.get("/v1/stream/" + id);
  EXPECT_EQ(sse_data(again.body).size(), whole.size());
  EXPECT_EQ(sse_data(again.body).size(), sse_data(rest.body).size() + 2);
  const Json polled = Json::parse(server.get("/v1/stream/" + id + "/events?after=2").body);
  EXPECT_EQ(polled.at("done"), true);
  EXPECT_EQ(polled.at("events").size(), sse_data(rest.body).size());
  EXPECT_EQ(polled.at("events").back().at("data"), "[DONE]");
  for (const char* beyond : {"Last-Event-ID: 1000000", "Last-Event-ID: 18446744073709551615"}) {
    const Answer nothing = server.get("/v1/stream/" + id, {beyond});
    EXPECT_EQ(nothing.status, 200) << nothing.body;
    EXPECT_EQ(nothing.body, "");
  }
  EXPECT_EQ(server.get("/v1/stream/none").status, 404);
}

TEST(Resuming, OnlyAStreamThatAsksForItIsKept) {
  ModelServer server;
  Json body = chat("river", 2);
  body["stream"] = true;
  for (const char* no : {"X-Resumable-Stream: 0", "X-Resumable-Stream: False", "X-Resumable-Stream:"})
    EXPECT_FALSE(server.post("/v1/chat/completions", body, {no}).headers.contains("x-stream-id")) << no;
  for (const char* yes : {"X-Resumable-Stream: 1", "X-Resumable-Stream: true"})
    EXPECT_TRUE(server.post("/v1/chat/completions", body, {yes}).headers.contains("x-stream-id")) << yes;
}

TEST(Resuming, AStreamThatNobodyComesBackToIsCancelled) {
  ServerOptions options = demo_options();
  options.streams.keep = std::chrono::milliseconds(20);
  ModelServer server(std::move(options));
  {
    Client client(server.port());
    client.send(http_request("POST", "/v1/chat/completions", long_chat().dump(), {"X-Resumable-Stream: 1"}));
    client.read_until("id: 2\n");
  }
  EXPECT_TRUE(server.wait_for_stats([](const SchedulerStats& s) { return s.cancelled == 1 && idle(s); }));
}

TEST(Resuming, EventsThatAreNoLongerKeptAreGone) {
  ServerOptions options = demo_options();
  options.streams.window = 600;
  ModelServer server(std::move(options));
  Json body = chat("river", 16);
  body["stream"] = true;
  const Answer answer = server.post("/v1/chat/completions", body, {"X-Resumable-Stream: 1"});
  const Answer late = server.get("/v1/stream/" + answer.headers.at("x-stream-id"), {"Last-Event-ID: 1"});
  EXPECT_EQ(late.status, 410);
}

TEST(Access, AKeyIsAskedForEverywhereButHealth) {
  ServerOptions options = demo_options();
  options.api_keys = {"secret", "other"};
  ModelServer server(std::move(options));
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/v1/models", {"Authorization: Bearer wrong!"}).status, 401);
  EXPECT_EQ(server.get("/v1/models", {"Authorization: Bearer secret"}).status, 200);
  EXPECT_EQ(server.get("/v1/models", {"Authorization: bearer secret"}).status, 200);
  EXPECT_EQ(server.get("/v1/models", {"Authorization: Bearer SECRET"}).status, 401);
  EXPECT_EQ(server.get("/v1/models", {"Authorization: Basic secret"}).status, 401);
  EXPECT_EQ(server.get("/v1/models", {"X-Api-Key: other"}).status, 200);
}

TEST(Access, OnlyPagesThatAreNamedOrLocalMayAsk) {
  ServerOptions options = demo_options();
  options.cors_origins = {"https://chat.example"};
  ModelServer server(std::move(options));
  for (const char* origin : {"https://chat.example", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"}) {
    const Answer answer = server.get("/v1/models", {std::string("Origin: ") + origin});
    EXPECT_EQ(answer.status, 200) << origin;
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), origin);
  }
  for (const char* origin :
       {"https://chat.example.evil", "http://chat.example", "http://localhost.evil", "null", "http://127.0.0.1:8383"}) {
    const bool local = std::string_view(origin) == "http://127.0.0.1:8383";
    EXPECT_EQ(server.get("/v1/models", {std::string("Origin: ") + origin}).status, local ? 200 : 403) << origin;
  }
  const Answer preflight = test::ask(server.port(), "OPTIONS", "/v1/chat/completions", "",
                                     {"Origin: https://chat.example", "Access-Control-Request-Method: POST",
                                      "Access-Control-Request-Headers: authorization, content-type"});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization, content-type");
}

TEST(Access, WhatWouldLetAnybodyInDoesNotStart) {
  const auto message = [](ServerOptions options) -> std::string {
    try {
      const Server server(std::move(options));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  ServerOptions open = demo_options();
  open.http.host = "0.0.0.0";
  EXPECT_NE(message(open).find("--api-key"), std::string::npos);
  open.api_keys = {"k"};
  EXPECT_EQ(message(open), "");
  for (const char* origin : {"*", "https://*.example", "chat.example", "https://chat.example/"}) {
    ServerOptions any = demo_options();
    any.cors_origins = {origin};
    EXPECT_NE(message(any).find("not exact"), std::string::npos) << origin;
  }
}

TEST(Models, HealthTellsWhyAndHowFarUntilOneIsReady) {
  ServerOptions options = demo_options();
  std::promise<void> go, begun;
  std::shared_future<void> gate = go.get_future().share();
  auto once = std::make_shared<std::once_flag>();
  options.models.engine.progress = [&, once, gate](uint64_t, uint64_t) {
    std::call_once(*once, [&] { begun.set_value(); });
    gate.wait();
  };
  Server server(std::move(options));
  server.models().add("another", "/nowhere/another.gguf");  // which nobody has asked for
  server.models().add("demo", test::demo_model());
  std::thread thread([&] { server.run(false); });
  server.models().load("demo");
  begun.get_future().wait();
  const Answer loading = test::ask(server.port(), "GET", "/health");
  EXPECT_EQ(loading.status, 503);
  const Json error = Json::parse(loading.body).at("error");
  EXPECT_EQ(error.at("message"), "Loading model");
  EXPECT_EQ(error.at("type"), "unavailable_error");
  EXPECT_EQ(error.at("code"), 503);
  EXPECT_TRUE(error.at("progress").is_number());
  EXPECT_EQ(test::ask(server.port(), "POST", "/v1/chat/completions", chat("x", 1).dump()).status, 503);
  go.set_value();
  server.stop();
  thread.join();
}

TEST(Models, ARequestEndsOnTheWeightsItBeganWith) {
  ModelServer server;
  Client client(server.port());
  client.send(http_request("POST", "/v1/chat/completions", long_chat().dump()));
  client.read_until("\"content\":\"");
  EXPECT_EQ(server.json("/models/unload", {{"model", "demo"}}).at("success"), true);
  EXPECT_EQ(server.post("/v1/chat/completions", chat("x", 1)).status, 409);
  const std::string rest = client.read_until("data: [DONE]");
  EXPECT_NE(rest.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_EQ(server.json("/models/load", {{"model", "demo"}}).at("success"), true);
  EXPECT_EQ(server.post("/v1/chat/completions", chat("x", 1)).status, 200);
  EXPECT_EQ(server.post("/models/load", {{"model", "nothing"}}).status, 404);
}

TEST(Models, OneThatDoesNotLoadIsNamedWithTheReason) {
  ModelServer server;
  server.server().models().add("broken", "/nowhere/broken.gguf");
  server.server().models().load("broken");
  server.wait_until("broken", Registry::State::kFailed);
  Json body = chat("x", 1);
  body["model"] = "broken";
  const Answer answer = server.post("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 500);
  EXPECT_NE(answer.body.find("/nowhere/broken.gguf"), std::string::npos) << answer.body;
  EXPECT_EQ(server.get("/health").status, 200) << "another is ready";
}

TEST(Models, AFolderServesWhatItHolds) {
  const gguf::testing::TempFolder folder;
  std::filesystem::create_symlink(test::demo_model(), folder / "again.gguf");
  std::filesystem::copy_file(test::demo_model(), folder / "twin.gguf");
  std::ofstream(folder / "notes.txt") << "no model";
  ModelServer server;
  server.server().models().add_folder((folder / "twin.gguf").substr(0, (folder / "twin.gguf").rfind('/')));
  std::vector<std::string> names;
  const Json models = Json::parse(server.get("/v1/models").body);
  for (const Json& model : models.at("data")) names.push_back(model.at("id"));
  EXPECT_EQ(names, (std::vector<std::string>{"demo", "twin"})) << "one that is known is not listed twice";
  Json body = chat("x", 1);
  body["model"] = "twin";
  const Answer unloaded = server.post("/v1/chat/completions", body);
  EXPECT_EQ(unloaded.status, 409);
  EXPECT_NE(unloaded.body.find("/models/load"), std::string::npos) << unloaded.body;
  EXPECT_EQ(server.post("/models/load", {{"model", "twin"}}).status, 200);
  EXPECT_EQ(server.json("/v1/chat/completions", body).at("model"), "twin");
  EXPECT_EQ(server.json("/v1/chat/completions", chat("x", 1)).at("model"), "demo");
  EXPECT_EQ(server.post("/models/unload", {{"model", "demo"}}).status, 200);
  body.erase("model");
  EXPECT_EQ(server.json("/v1/chat/completions", body).at("model"), "twin") << "the only one ready";
}

TEST(Models, ALoadIsAnsweredWhenItHasEnded) {
  const gguf::testing::TempFolder folder;
  ModelServer server;
  const std::string path = folder / "cut.gguf";
  std::filesystem::copy_file(test::demo_model(), path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  server.server().models().add("cut", path);
  for (int again = 0; again < 2; ++again) {
    const Answer answer = server.post("/models/load", {{"model", "cut"}});
    EXPECT_EQ(answer.status, 500) << answer.body;
    const Json error = Json::parse(answer.body).at("error");
    EXPECT_NE(error.at("message").get<std::string>().find("is truncated"), std::string::npos) << answer.body;
    EXPECT_EQ(server.get("/health").status, 200) << "another is ready";
  }
  const Answer ollama = server.post("/api/generate", {{"model", "cut"}});
  EXPECT_EQ(ollama.status, 500) << ollama.body;
  EXPECT_TRUE(Json::parse(ollama.body).at("error").is_string()) << ollama.body;
  // One in service, whose file breaks, stays.
  server.server().models().add("demo", path);
  EXPECT_EQ(server.post("/models/load", {{"model", "demo"}}).status, 500);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.post("/v1/chat/completions", chat("x", 1)).status, 200);
  server.server().models().add("demo", test::demo_model());
  EXPECT_EQ(server.post("/models/load", {{"model", "demo"}}).status, 200);
  EXPECT_EQ(server.post("/models/unload", {{"model", "demo"}}).status, 200);
  const Answer loaded = server.post("/api/chat", {{"model", "demo"}, {"messages", Json::array()}});
  EXPECT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(Json::parse(loaded.body).at("done_reason"), "load");
  EXPECT_EQ(server.post("/v1/chat/completions", chat("x", 1)).status, 200) << "it is there by then";
}

}  // namespace
}  // namespace tern::server
