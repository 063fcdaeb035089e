// 64 clients at once that stream, leave, cancel, come back and send nonsense. What each of them sends is drawn from a
// seed; what it gets must be what a client alone gets. A few seconds in the suite; for longer:
//   TERN_LOAD_SECONDS=60 build/release/tests/server/test_load
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <set>

#include "base/log.h"
#include "server/model_server.h"
#include "support/synth_model.h"

namespace tern::server {
namespace {

using test::Answer;
using test::Client;
using test::http_request;
using test::Json;
using test::ModelServer;
using test::random_tokens;
using test::sse_data;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // what was freed stays resident for a while
#else
constexpr bool kSanitized = false;
#endif

constexpr int kClients = 64, kActsOfAWave = 6;
constexpr size_t kMostBody = 32 << 10;
constexpr int64_t kVocabulary = 512;

/// What a request says, and what a client alone was answered.
struct Question {
  std::string path;
  Json body;
  std::string text{};
};

std::string text_of(const Json& said) {
  if (said.contains("content")) return said["content"];  // llama.cpp
  if (!said.contains("choices") || said["choices"].empty()) return "";
  const Json& choice = said["choices"][0];
  if (choice.contains("text")) return choice["text"];
  const Json& message = choice.contains("delta") ? choice["delta"] : choice["message"];
  return message.contains("content") && message["content"].is_string() ? message["content"] : Json("");
}

/// The text of a stream as far as it goes.
std::string streamed_text(std::string_view stream) {
  std::string text;
  for (const std::string& data : sse_data(stream))
    if (data != "[DONE]") text += text_of(Json::parse(data));
  return text;
}

ServerOptions options() {
  ServerOptions options;
  options.http.port = 0;
  HttpLimits& limits = options.http.limits;
  limits.body_bytes = kMostBody;
  // A machine that stands still for a while is nobody's fault; http_test.cpp looks at slow clients.
  limits.header_time = limits.body_time = limits.idle_time = limits.stall_time = std::chrono::minutes(10);
  // So many that none is dropped between the leaving of a client and its coming back.
  options.streams.streams = 4 * kClients;
  options.models.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  options.models.limits = {.queue = 2 * kClients, .chunk = 24};
  options.models.engine = {
      .path = "",
      .threads = 2,
      // With sums that do not depend on the batch, greedy answers are equal to the last token.
      .activations = ActivationMode::kF32,
      .limits = {.context = 256, .sequences = 8, .rows = 64, .k = KvType::kF32, .v = KvType::kF32, .checkpoints = 16}};
  return options;
}

/// Prompts of all lengths, some with a beginning in common, to three endpoints.
std::vector<Question> questions() {
  std::vector<Question> out;
  const std::vector<int32_t> shared = random_tokens(90, kVocabulary, 1000);
  for (int i = 0; i < 18; ++i) {
    const auto length = static_cast<size_t>(3 + 7 * i);
    std::vector<int32_t> prompt = random_tokens(length, kVocabulary, static_cast<uint64_t>(i));
    if (i % 2 == 1) prompt.insert(prompt.begin(), shared.begin(), shared.begin() + 70 + i);
    Json body{{"max_tokens", 5 + i}, {"temperature", 0}, {"ignore_eos", true}};
    if (i % 3 == 0) {
      body["messages"] = Json::array({{{"role", "user"}, {"content", "question " + std::to_string(i)}}});
    } else {
      body["prompt"] = prompt;
    }
    out.push_back({i % 3 == 0 ? "/v1/chat/completions" : i % 3 == 1 ? "/v1/completions" : "/completion", body});
  }
  return out;
}

/// Bodies that must be refused with 400.
std::vector<std::string> malformed_bodies() {
  std::vector<std::string> out{"",
                               "{",
                               "[1, 2]",
                               "null",
                               R"({"prompt": )",
                               R"({"prompt": []})",
                               R"({"prompt": [512]})",
                               R"({"prompt": [-1]})",
                               R"({"prompt": "a", "temperature": "hot"})",
                               R"({"prompt": "a", "max_tokens": -5})",
                               R"({"prompt": "a", "no_such_parameter": 1})",
                               R"({"prompt": "a", "logit_bias": {"x": 1}})",
                               R"({"prompt": "a", "grammar": "root ::= ("})",
                               "{\"prompt\": \"\xff\xfe\"}"};
  out.push_back(R"({"prompt": )" + std::string(2000, '[') + "}");
  Json far{{"prompt", random_tokens(300, kVocabulary, 9)}};
  out.push_back(far.dump());  // does not fit into the context
  return out;
}

size_t resident_bytes() {
  ::malloc_trim(0);
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

/// One event; comments, which keep a silent connection open, are skipped.
std::string next_event(Client& client) {
  std::string event;
  do {
    event = client.read_until("\n\n");
  } while (event.ends_with(": keep-alive\n\n"));
  return event;
}

class Crowd {
 public:
  Crowd()
      : model_(synth::find_shape("tiny-qwen35"), {.type = TensorType::F32}),
        server_(options(), model_.path),
        questions_(questions()),
        malformed_(malformed_bodies()) {
    spdlog::set_level(spdlog::level::warn);
    std::set<std::string> texts;
    for (Question& question : questions_) {
      question.text = text_of(server_.json(question.path, question.body));
      texts.insert(question.text);
    }
    EXPECT_EQ(texts.size(), questions_.size()) << "a mixed-up answer would not show";
  }

  /// Every client acts a few times.
  void wave(uint64_t number) {
    std::vector<std::thread> clients;
    for (uint64_t i = 0; i < kClients; ++i)
      clients.emplace_back([this, seed = number * kClients + i] {
        std::mt19937_64 random(seed);
        for (int k = 0; k < kActsOfAWave; ++k) act(random);
      });
    for (std::thread& client : clients) client.join();
  }

  void expect_nothing_is_held() {
    EXPECT_TRUE(server_.wait_for_stats([](const SchedulerStats& s) {
      return s.queued == 0 && s.running == 0 && s.pages_free + s.pages_cached == s.pages &&
             s.states_free + s.states_cached == s.states;
    }));
    const SchedulerStats stats = server_.stats();
    EXPECT_EQ(stats.failed, 0u);
    EXPECT_EQ(stats.finished + stats.cancelled, stats.requests);
    // The connection that asks is the only one left.
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::string metrics;
    do {
      metrics = server_.get("/metrics").body;
    } while (metrics.find("\ntern_http_connections 1\n") == std::string::npos &&
             std::chrono::steady_clock::now() < until);
    EXPECT_NE(metrics.find("\ntern_http_connections 1\n"), std::string::npos) << metrics;
  }

  int acts() const { return acts_; }
  int answers() const { return answers_; }
  SchedulerStats stats() { return server_.stats(); }

 private:
  using Random = std::mt19937_64;

  void act(Random& random) {
    ++acts_;
    const Question& question = questions_[random() % questions_.size()];
    switch (random() % 16) {
      case 0:
        return whole(question);
      case 1:
        return leave(question, random, false);
      case 2:
        return leave(question, random, true);
      case 3:
        return cancel(question);
      case 4:
        return come_back(question, random);
      case 5:
        return break_off(question, random);
      case 6:
        return oversized(question);
      case 7:
      case 8:
        return malformed(random);
      case 9:
        return nonsense(random);
      case 10:
        return stream(question, 2048);
      default:
        return stream(question, 0);
    }
  }

  static std::string request(const Question& question, bool streamed, const std::vector<std::string>& headers = {}) {
    Json body = question.body;
    body["stream"] = streamed;
    return http_request("POST", question.path, body.dump(), headers);
  }

  void expect_answer(const Question& question, const std::string& text) {
    EXPECT_EQ(text, question.text) << question.path << " " << question.body;
    ++answers_;
  }

  void whole(const Question& question) {
    Client client(server_.port());
    client.send(request(question, false));
    const Answer answer = client.read();
    ASSERT_EQ(answer.status, 200) << answer.body;
    expect_answer(question, text_of(Json::parse(answer.body)));
  }

  void stream(const Question& question, int receive_buffer) {
    Client client(server_.port(), receive_buffer);
    client.send(request(question, true));
    const Answer answer = client.read();
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_TRUE(answer.complete);
    expect_answer(question, streamed_text(answer.body));
  }

  /// Hangs up in the queue, while the prompt is read, or after some events; `reset` without a goodbye.
  void leave(const Question& question, Random& random, bool reset) {
    Client client(server_.port());
    client.send(request(question, true));
    std::string seen;
    if (const size_t events = random() % 6; events > 0) {
      client.read_until("\r\n\r\n");
      for (size_t i = 1; i < events; ++i) seen += next_event(client);
    }
    EXPECT_TRUE(question.text.starts_with(streamed_text(seen))) << seen;
    if (reset) client.reset();
  }

  void cancel(const Question& question) {
    Client client(server_.port());
    client.send(request(question, true));
    const std::string head = client.read_until("\r\n\r\n");
    const std::string first = next_event(client);
    ASSERT_EQ(sse_data(first).size(), 1u) << head << first;
    const Json begun = Json::parse(sse_data(first)[0]);
    if (!begun.contains("id")) return leave_rest(client, question, first);  // llama.cpp's have none
    const Answer told = test::ask(server_.port(), "POST", "/v1/cancel", Json{{"id", begun["id"]}}.dump());
    EXPECT_TRUE(told.status == 200 || told.status == 404) << told.body;  // it may have ended by itself
    leave_rest(client, question, first);
  }
  /// Reads to the end of a stream that may have been cut short.
  void leave_rest(Client& client, const Question& question, const std::string& first) {
    std::string text = streamed_text(first + client.read_until("0\r\n\r\n"));
    // Half a character is shown as U+FFFD at the end.
    constexpr std::string_view kHalf = "\xEF\xBF\xBD";
    if (!question.text.starts_with(text) && text.ends_with(kHalf)) text.resize(text.size() - kHalf.size());
    EXPECT_TRUE(question.text.starts_with(text)) << text << "\nis no beginning of " << question.text;
  }

  void come_back(const Question& question, Random& random) {
    std::string id, seen;
    const size_t events = 1 + random() % 4;
    {
      Client client(server_.port());
      client.send(request(question, true, {"X-Resumable-Stream: 1"}));
      const std::string head = client.read_until("\r\n\r\n");
      const size_t at = head.find("X-Stream-Id: ");
      ASSERT_NE(at, std::string::npos) << head;
      id = head.substr(at + 13, head.find("\r\n", at) - at - 13);
      for (size_t i = 0; i < events; ++i) seen += next_event(client);
    }
    const Answer rest =
        test::ask(server_.port(), "GET", "/v1/stream/" + id, "", {"Last-Event-ID: " + std::to_string(events)});
    ASSERT_EQ(rest.status, 200) << rest.body;
    expect_answer(question, streamed_text(seen) + streamed_text(rest.body));
  }

  void break_off(const Question& question, Random& random) {
    Client client(server_.port());
    const std::string bytes = request(question, true);
    client.send(std::string_view(bytes).substr(0, random() % bytes.size()));
  }

  void oversized(const Question& question) {
    Client client(server_.port());
    client.send(http_request("POST", question.path, std::string(kMostBody + 1, ' ')));
    EXPECT_EQ(client.read().status, 413);
  }

  void malformed(Random& random) {
    const std::string& body = malformed_[random() % malformed_.size()];
    const Answer answer = test::ask(server_.port(), "POST", "/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body.substr(0, 100) << ": " << answer.body;
  }

  void nonsense(Random& random) {
    std::string bytes(1 + random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    Client client(server_.port());
    client.send(bytes);
    client.close_sending();
    const std::string said = client.read_to_end();
    EXPECT_TRUE(said.empty() || said.starts_with("HTTP/1.1 400 ")) << said;
  }

  test::SynthFile model_;
  ModelServer server_;
  std::vector<Question> questions_;
  const std::vector<std::string> malformed_;
  std::atomic<int> acts_ = 0, answers_ = 0;
};

TEST(Load, SixtyFourClientsGetWhatEachAloneWouldGetAndLeaveNothingBehind) {
  const char* asked = std::getenv("TERN_LOAD_SECONDS");
  const std::chrono::seconds most(asked ? std::atoi(asked) : 0);
  Crowd crowd;
  const auto until = std::chrono::steady_clock::now() + most;
  uint64_t waves = 0;
  // The first two bring caches, stacks of threads and arenas to their size.
  for (; waves < 2; ++waves) crowd.wave(waves);
  crowd.expect_nothing_is_held();
  const size_t before = resident_bytes();
  do {
    crowd.wave(waves++);
  } while (std::chrono::steady_clock::now() < until && !HasFailure());
  crowd.expect_nothing_is_held();
  const size_t after = resident_bytes();
  const SchedulerStats stats = crowd.stats();
  std::printf(
      "%d acts, %d whole answers compared, %llu tokens, %llu requests cancelled; resident %.1f MB, then %.1f MB\n",
      crowd.acts(), crowd.answers(), static_cast<unsigned long long>(stats.generated_tokens),
      static_cast<unsigned long long>(stats.cancelled), double(before) / 1e6, double(after) / 1e6);
  EXPECT_GT(crowd.answers(), crowd.acts() / 4);
  EXPECT_GT(stats.cancelled, 0u);
  if (!kSanitized) {
    EXPECT_LT(after, before + (4 << 20)) << "memory grows";
  }
}

}  // namespace
}  // namespace tern::server
