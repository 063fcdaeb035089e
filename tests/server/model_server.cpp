#include "server/model_server.h"

#include <gtest/gtest.h>

namespace tern::test {

server::ServerOptions demo_options(int32_t context) {
  server::ServerOptions options;
  options.http.port = 0;
  options.models.engine.threads = 2;
  options.models.engine.limits = {.context = context, .sequences = 4, .rows = 128};
  return options;
}

ModelServer::ModelServer(server::ServerOptions options, const std::string& model)
    : server_(std::make_unique<server::Server>(std::move(options))) {
  server_->models().on_change([this] {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  server_->models().add("demo", model);
  server_->models().load("demo");
  thread_ = std::thread([this] { server_->run(false); });
  wait_until("demo", server::Registry::State::kReady);
}

ModelServer::~ModelServer() {
  server_->stop();
  server_->stop();
  thread_.join();
  server_->models().on_change({});
}

void ModelServer::wait_until(const std::string& model, server::Registry::State state) {
  std::unique_lock lock(mutex_);
  const auto reached = [&] {
    for (const auto& entry : server_->models().list())
      if (entry.name == model && entry.state == state) return true;
    return false;
  };
  ASSERT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), reached)) << model;
}

Answer ModelServer::get(std::string_view path, const std::vector<std::string>& headers) const {
  return ask(port(), "GET", path, "", headers);
}

Answer ModelServer::post(std::string_view path, const Json& body, const std::vector<std::string>& headers) const {
  return ask(port(), "POST", path, body.dump(), headers);
}

Json ModelServer::json(std::string_view path, const Json& body) const {
  const Answer answer = post(path, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return Json::parse(answer.body, nullptr, false);
}

SchedulerStats ModelServer::stats() {
  return server_->models().find("demo")->scheduler->stats();
}

bool ModelServer::wait_for_stats(const std::function<bool(const SchedulerStats&)>& wanted) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < until) {
    if (wanted(stats())) return true;
    std::this_thread::yield();
  }
  return false;
}

Json chat(std::string_view text, int max_tokens) {
  return {{"model", "demo"},
          {"messages", Json::array({{{"role", "user"}, {"content", text}}})},
          {"max_tokens", max_tokens},
          {"temperature", 0}};
}

}  // namespace tern::test
