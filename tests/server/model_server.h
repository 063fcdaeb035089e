// A Server on a free port with the demo model, and what tests ask it.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/client.h"
#include "server/server.h"

namespace tern::test {

using Json = nlohmann::ordered_json;

inline std::string demo_model() {
  return std::string(TERN_SOURCE_DIR) + "/models/ternlet-hybrid-108m-PTQ1_0.gguf";
}

/// Options of a small server: four answers at a time.
server::ServerOptions demo_options(int32_t context = 1024);

class ModelServer {
 public:
  /// Serves a model as "demo" and waits until it is loaded.
  explicit ModelServer(server::ServerOptions options = demo_options(), const std::string& model = demo_model());
  ~ModelServer();

  uint16_t port() const { return server_->port(); }
  server::Server& server() { return *server_; }
  Answer get(std::string_view path, const std::vector<std::string>& headers = {}) const;
  Answer post(std::string_view path, const Json& body, const std::vector<std::string>& headers = {}) const;
  /// The answer, which must be 200, as JSON.
  Json json(std::string_view path, const Json& body) const;
  SchedulerStats stats();
  /// Looks again whenever the scheduler may have moved on, for a minute at most.
  bool wait_for_stats(const std::function<bool(const SchedulerStats&)>& wanted);
  void wait_until(const std::string& model, server::Registry::State state);

 private:
  std::unique_ptr<server::Server> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// Tests that share one ModelServer.
class ModelServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ModelServer>(); }
  static void TearDownTestSuite() { server_.reset(); }
  static ModelServer& server() { return *server_; }

  static inline std::unique_ptr<ModelServer> server_;
};

/// A greedy chat request of one user message.
Json chat(std::string_view text, int max_tokens = 16);

}  // namespace tern::test
