// The HTTP server against clients of every manner.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/client.h"
#include "server/http_server.h"

namespace tern::server {
namespace {

using namespace std::chrono_literals;
using test::Answer;
using test::ask;
using test::Client;
using test::http_request;

/// What a test feeds, and hears about.
struct Feed {
  std::mutex mutex;
  std::string pending;
  bool ended = false;
  std::function<void()> wake;
  std::promise<void> gone;  // the Source has been destroyed

  void say(const std::string& bytes, bool end = false) {
    std::function<void()> ring;
    {
      const std::lock_guard lock(mutex);
      pending += bytes;
      ended = end;
      ring = wake;
    }
    if (ring) ring();
  }
  bool wait_until_gone() { return gone.get_future().wait_for(60s) == std::future_status::ready; }
};

class FedSource final : public Source {
 public:
  explicit FedSource(std::shared_ptr<Feed> feed, size_t endless = 0) : feed_(std::move(feed)), endless_(endless) {}
  ~FedSource() override { feed_->gone.set_value(); }
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(feed_->mutex);
    feed_->wake = std::move(wake);
  }
  Piece next() override {
    const std::lock_guard lock(feed_->mutex);
    if (endless_ > 0) {
      feed_->wake();
      return {.bytes = std::string(endless_, 'x')};
    }
    return {.bytes = std::exchange(feed_->pending, {}), .end = feed_->ended};
  }
  std::string idle() override { return ": still here\n\n"; }
  HttpResponse whole() override { return {.body = "at last"}; }

 private:
  std::shared_ptr<Feed> feed_;
  const size_t endless_;
};

struct Fixture {
  std::shared_ptr<Feed> feed = std::make_shared<Feed>();
  std::promise<void> streaming;  // a request for a fed answer has come
  std::promise<void> finish;     // what "/busy" waits for
  HttpServer server;
  std::thread thread;

  explicit Fixture(const HttpLimits& limits = {})
      : server({.port = 0,
                .handler_threads = 1,
                .at_once = [](const HttpRequest& r) { return r.path == "/health"; },
                .limits = limits},
               [this](HttpRequest& r) { return answer(r); }),
        thread([this] { server.run(false); }) {}
  ~Fixture() {
    server.stop();
    server.stop();
    thread.join();
  }
  uint16_t port() const { return server.port(); }

  Reply answer(HttpRequest& request) {
    if (request.path == "/busy") {
      streaming.set_value();
      finish.get_future().wait();
    }
    if (request.path == "/throw") throw std::runtime_error("no");
    if (request.path == "/stream" || request.path == "/late" || request.path == "/endless") {
      auto source = std::make_shared<FedSource>(feed, request.path == "/endless" ? 65536 : 0);
      streaming.set_value();
      if (request.path == "/late") return Reply::late(source);
      return Reply::stream({.type = "text/event-stream"}, source);
    }
    return HttpResponse{.type = "text/plain",
                        .body = request.method + " " + request.path + "?" + request.parameters + " " + request.body};
  }
};

TEST(Http, OneConnectionServesManyRequests) {
  Fixture f;
  Client client(f.port());
  for (const char* path : {"/a", "/b?x=1"}) {
    client.send(http_request("GET", path));
    const Answer answer = client.read();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body.starts_with(std::string("GET ") + path)) << answer.body;
  }
}

TEST(Http, ATargetMayBeWrittenAsForAProxy) {
  Fixture f;
  EXPECT_EQ(test::ask(f.port(), "GET", "http://127.0.0.1:1/a?x=1").body, "GET /a?x=1 ");
}

TEST(Http, PipelinedRequestsAreAnsweredInOrder) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("GET", "/1") + http_request("POST", "/2", "body") + http_request("GET", "/3"));
  EXPECT_EQ(client.read().body, "GET /1? ");
  EXPECT_EQ(client.read().body, "POST /2? body");
  EXPECT_EQ(client.read().body, "GET /3? ");
}

TEST(Http, ARequestBehindAStreamWaitsForItsEnd) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("GET", "/stream") + http_request("GET", "/behind"));
  f.streaming.get_future().wait();
  f.feed->say("data: one\n\n");
  EXPECT_NE(client.read_until("data: one\n\n").find("chunked"), std::string::npos);
  f.feed->say("data: two\n\n", true);
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: two"), std::string::npos);
  EXPECT_EQ(client.read().body, "GET /behind? ");
}

TEST(Http, ChunkedBodiesAreJoined) {
  Fixture f;
  Client client(f.port());
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.send("4;note=1\r\ndefg\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_EQ(client.read().body, "POST /c? abcdefg");
}

TEST(Http, ABodyIsAskedForWhenTheClientWaits) {
  Fixture f;
  Client client(f.port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send("body");
  EXPECT_EQ(client.read().body, "POST /e? body");
}

TEST(Http, ATooLargeBodyIsRefusedBeforeItIsSent) {
  Fixture f({.body_bytes = 100});
  Client client(f.port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n");
  const Answer answer = client.read();
  EXPECT_EQ(answer.status, 413);
  EXPECT_NE(answer.body.find("exceeds 100 bytes"), std::string::npos) << answer.body;
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(Http, ATooLargeBodyIsRefusedWhileItIsSent) {
  Fixture f({.body_bytes = 100});
  EXPECT_EQ(ask(f.port(), "POST", "/", std::string(200'000, 'x')).status, 413);
  EXPECT_EQ(ask(f.port(), "POST", "/", std::string(100, 'x')).status, 200);
  Client client(f.port());
  client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + std::string(101, 'x') +
              "\r\n");
  EXPECT_EQ(client.read().status, 413);
}

TEST(Http, WhoeverSendsAllOfATooLargeBodyStillReadsTheRefusal) {
  Fixture f({.body_bytes = 100});
  Client client(f.port());
  client.send(http_request("POST", "/", std::string(20'000'000, 'x')));
  EXPECT_EQ(client.read().status, 413);
}

TEST(Http, TooLargeHeadersAreRefused) {
  Fixture f({.header_bytes = 1000});
  EXPECT_EQ(ask(f.port(), "GET", "/", "", {"X-Long: " + std::string(2000, 'x')}).status, 431);
  EXPECT_EQ(ask(f.port(), "GET", "/", "", {"X-Long: " + std::string(500, 'x')}).status, 200);
}

TEST(Http, WhatIsNoRequestIsRefusedAndHungUpOn) {
  Fixture f;
  for (const char* bytes :
       {"\x16\x03\x01\x02junk\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/3.0\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    Client client(f.port());
    client.send(bytes);
    EXPECT_EQ(client.read().status, 400) << bytes;
    EXPECT_EQ(client.read_to_end(), "") << bytes;
  }
  EXPECT_EQ(ask(f.port(), "GET", "/").status, 200);
}

TEST(Http, HeadersThatTrickleInAreCutOff) {
  Fixture f({.header_time = 50ms});
  Client client(f.port());
  client.send("GET / HTTP/1.1\r\nHost");
  EXPECT_EQ(client.read().status, 408);
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(Http, ABodyThatTricklesInIsCutOff) {
  Fixture f({.body_time = 50ms});
  Client client(f.port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.read().status, 408);
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(Http, AnIdleConnectionIsClosedWithoutAWord) {
  Fixture f({.idle_time = 50ms});
  Client client(f.port());
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(Http, AClientThatLeavesEndsItsStreamAtOnce) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("GET", "/stream"));
  f.streaming.get_future().wait();
  f.feed->say("data: one\n\n");
  client.read_until("data: one\n\n");
  client.close();
  EXPECT_TRUE(f.feed->wait_until_gone());
}

TEST(Http, AClientThatLeavesEndsWhatItWaitsFor) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("POST", "/late", "{}"));
  f.streaming.get_future().wait();
  client.close();
  EXPECT_TRUE(f.feed->wait_until_gone());
}

TEST(Http, AClientThatClosesItsSideHasLeftAStream) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("GET", "/stream"));
  client.close_sending();
  EXPECT_TRUE(f.feed->wait_until_gone());
}

TEST(Http, AClientThatClosesItsSideStillGetsWhatIsReady) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("GET", "/1") + http_request("GET", "/2"));
  client.close_sending();
  EXPECT_EQ(client.read().body, "GET /1? ");
  EXPECT_EQ(client.read().body, "GET /2? ");
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(Http, AnAnswerThatTakesTimeIsSentWhole) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("POST", "/late", "{}"));
  f.streaming.get_future().wait();
  f.feed->say("", true);
  const Answer answer = client.read();
  EXPECT_EQ(answer.body, "at last");
  EXPECT_TRUE(f.feed->wait_until_gone());
}

TEST(Http, WhatIsAnsweredAtOnceDoesNotWaitForBusyHandlers) {
  Fixture f;
  Client busy(f.port());
  busy.send(http_request("GET", "/busy"));
  f.streaming.get_future().wait();
  EXPECT_EQ(ask(f.port(), "GET", "/health").body, "GET /health? ");
  f.finish.set_value();
  EXPECT_EQ(busy.read().body, "GET /busy? ");
}

TEST(Http, AStreamThatNobodyReadsIsGivenUp) {
  Fixture f({.stall_time = 50ms});
  Client client(f.port(), 4096);
  client.send(http_request("GET", "/endless"));
  EXPECT_TRUE(f.feed->wait_until_gone());
}

TEST(Http, SilenceIsFilledWithComments) {
  Fixture f({.comment_time = 10ms});
  Client client(f.port());
  client.send(http_request("GET", "/stream"));
  client.read_until(": still here\n\n");
  client.read_until(": still here\n\n");
  f.streaming.get_future().wait();
  f.feed->say("data: end\n\n", true);
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: end"), std::string::npos);
}

TEST(Http, AnOldClientGetsAPlainBodyAndTheEnd) {
  Fixture f;
  Client client(f.port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  f.streaming.get_future().wait();
  f.feed->say("data: all\n\n", true);
  const std::string all = client.read_to_end();
  EXPECT_EQ(all.find("chunked"), std::string::npos);
  EXPECT_TRUE(all.ends_with("\r\n\r\ndata: all\n\n")) << all;
}

TEST(Http, AHeadHasNoBody) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("HEAD", "/h") + http_request("GET", "/g"));
  const Answer head = client.read(true);
  EXPECT_EQ(head.headers.at("content-length"), "9");
  EXPECT_EQ(client.read().body, "GET /g? ");
}

TEST(Http, AHandlerThatThrowsIsOneFailedRequest) {
  Fixture f;
  Client client(f.port());
  client.send(http_request("GET", "/throw") + http_request("GET", "/next"));
  EXPECT_EQ(client.read().status, 500);
  EXPECT_EQ(client.read().status, 200);
}

TEST(Http, ConnectionsBeyondTheLimitAreClosed) {
  Fixture f({.connections = 2});
  Client a(f.port()), b(f.port());
  a.send(http_request("GET", "/"));
  b.send(http_request("GET", "/"));
  EXPECT_EQ(a.read().status, 200);
  EXPECT_EQ(b.read().status, 200);
  Client c(f.port());
  EXPECT_EQ(c.read_to_end(), "");
}

TEST(Http, StoppingLetsRequestsEndAndClosesIdleConnections) {
  auto f = std::make_unique<Fixture>();
  Client idle(f->port()), busy(f->port());
  idle.send(http_request("GET", "/"));
  EXPECT_EQ(idle.read().status, 200);
  busy.send(http_request("GET", "/stream"));
  f->streaming.get_future().wait();
  f->server.stop();
  EXPECT_EQ(idle.read_to_end(), "");
  f->feed->say("data: end\n\n", true);
  EXPECT_NE(busy.read_to_end().find("data: end"), std::string::npos);
  f->thread.join();
  f->thread = std::thread([] {});
}

TEST(Http, StoppingTwiceEndsWhatIsLeft) {
  auto f = std::make_unique<Fixture>();
  Client busy(f->port());
  busy.send(http_request("GET", "/stream"));
  f->streaming.get_future().wait();
  f.reset();
  const std::string all = busy.read_to_end();
  EXPECT_FALSE(all.ends_with("0\r\n\r\n")) << "a stream that was cut must not look whole";
}

/// Connections that this process may hold both ends of, at most `wanted`.
size_t connections_possible(size_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return std::min<size_t>(wanted, (limit.rlim_cur - 64) / 2);
}

TEST(Http, AThousandStreamsAreOpenAtOnceAndEachGetsItsOwn) {
  const size_t n = connections_possible(1000);
  std::vector<std::shared_ptr<Feed>> feeds(n);
  for (auto& feed : feeds) feed = std::make_shared<Feed>();
  HttpServer server({.port = 0, .handler_threads = 1}, [&](HttpRequest& r) {
    return Reply::stream({.type = "text/event-stream"},
                         std::make_shared<FedSource>(feeds.at(std::stoul(r.path.substr(1)))));
  });
  std::thread thread([&] { server.run(false); });
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < n; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send(http_request("GET", "/" + std::to_string(i)));
  }
  for (const auto& client : clients) EXPECT_TRUE(client->read_until("\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(server.connections(), n);
  for (size_t i = n; i-- > 0;) feeds[i]->say("data: " + std::to_string(i) + "\n\n", true);
  for (size_t i = 0; i < n; ++i)
    EXPECT_NE(clients[i]->read_until("0\r\n\r\n").find("\r\ndata: " + std::to_string(i) + "\n\n"), std::string::npos);
  server.stop();
  thread.join();
}

TEST(Http, AnAddressInUseIsNamed) {
  Fixture f;
  try {
    HttpServer second({.port = f.port()}, [](HttpRequest&) { return HttpResponse{}; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(f.port())), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos) << error.what();
  }
}

TEST(HttpRequest, ParametersAndPathsAreDecoded) {
  const HttpRequest request{.method = "GET", .path = "/", .parameters = "a=1%202&b&c=%zz&a=3"};
  EXPECT_EQ(request.parameter("a"), "1 2");
  EXPECT_EQ(request.parameter("b"), "");
  EXPECT_EQ(request.parameter("c"), "%zz");
  EXPECT_EQ(request.parameter("d"), "");
  EXPECT_EQ(percent_decoded("%41%4"), "A%4");
}

TEST(HttpRequest, APathCannotWriteALineOfItsOwnToTheLog) {
  EXPECT_EQ(one_line(percent_decoded("/a%0Ainfo:%20fake%1b[31m%7f%00%c3%a9")), "/a?info: fake?[31m??\xc3\xa9");
}

}  // namespace
}  // namespace tern::server
