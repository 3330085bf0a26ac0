#include "net/http_server.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sse.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Reads until `until` appears, the peer closes, or the time is over.
  std::string read(std::string_view until, milliseconds limit = milliseconds(5000)) const {
    std::string got;
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (until.empty() || got.find(until) == std::string::npos) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd wait{fd_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0)
        return got + "<timeout>";
      char buffer[4096];
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count < 0) return got + "<reset>";
      if (count == 0) return got + "<end>";
      got.append(buffer, static_cast<std::size_t>(count));
    }
    return got;
  }

 private:
  int fd_;
  bool connected_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpHandler handler, HttpServerOptions options = {}) {
    options.host = "127.0.0.1";
    options.port = 0;
    server_ =
        std::make_unique<HttpServer>(options, std::move(handler), [](int status, std::string_view message) {
          return std::to_string(status) + "|" + std::string(message);
        });
    const Status status = server_->start();
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  static HttpHandler echo() {
    return [](const HttpRequest& request, ResponseWriter& writer) {
      HttpResponse response;
      response.body = request.method + " " + request.path + " [" + request.query + "] " + request.body;
      writer.send(response);
    };
  }
  int port() const { return server_->port(); }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, KeepsAConnectionAliveOverSeveralRequests) {
  start(echo());
  const Client client(port());
  client.send("GET /a?b=%20 HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string first = client.read("GET /a [b=%20] ");
  EXPECT_THAT(first, StartsWith("HTTP/1.1 200 OK\r\n"));
  client.send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_THAT(client.read("POST /b [] hello"), HasSubstr("Content-Length: 16\r\n"));
}

TEST_F(HttpServerTest, ServesPipelinedRequestsInOrder) {
  start(echo());
  const Client client(port());
  client.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = client.read("");
  EXPECT_LT(all.find("GET /1"), all.find("GET /2"));
  EXPECT_THAT(all, HasSubstr("GET /2 [] <end>"));
}

TEST_F(HttpServerTest, ReadsChunkedBodiesInAnySegmentation) {
  start(echo());
  const Client client(port());
  const std::string request =
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\n\r\n";
  for (const char c : request) {
    ASSERT_TRUE(client.send(std::string(1, c)));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_THAT(client.read("abcdefg"), HasSubstr("POST /c [] abcdefg"));
}

TEST_F(HttpServerTest, AnswersExpectContinue) {
  start(echo());
  const Client client(port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_THAT(client.read("[] ok"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, StreamsChunks) {
  start([](const HttpRequest&, ResponseWriter& writer) {
    HttpResponse head;
    head.content_type = "text/event-stream";
    writer.begin_stream(head);
    writer.write(sse_event("one"));
    writer.write(sse_event("two\nlines"));
    writer.end_stream(false);
  });
  const Client client(port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string all = client.read("0\r\n\r\n");
  EXPECT_THAT(all, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(all, HasSubstr("\r\n\r\nb\r\ndata: one\n\n\r\n17\r\ndata: two\ndata: lines\n\n\r\n0\r\n\r\n"));
}

TEST_F(HttpServerTest, StreamsToHttp10UntilTheConnectionCloses) {
  start([](const HttpRequest&, ResponseWriter& writer) {
    writer.begin_stream({});
    writer.write("abc");
    writer.end_stream(false);
  });
  const Client client(port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.read(""), HasSubstr("\r\n\r\nabc<end>"));
}

TEST_F(HttpServerTest, HeadGetsNoBody) {
  start(echo());
  const Client client(port());
  client.send("HEAD /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.read(""), ::testing::EndsWith("\r\n\r\n<end>"));
}

TEST_F(HttpServerTest, RefusesADeclaredBodyOverTheLimitBeforeReadingIt) {
  HttpServerOptions options;
  options.limits.max_body_bytes = 1000;
  start(echo(), options);
  const Client client(port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
  const std::string answer = client.read("", milliseconds(1000));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(answer, HasSubstr("413|The request body is larger than the limit of 1000 bytes."));
}

TEST_F(HttpServerTest, RefusesAChunkedBodyOverTheLimitWhileItArrives) {
  HttpServerOptions options;
  options.limits.max_body_bytes = 100'000;
  start(echo(), options);
  const Client client(port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "4000\r\n" + std::string(0x4000, 'x') + "\r\n";
  // The client sends far more than the limit before it looks at the answer, as most do.
  for (int i = 0; i < 200 && client.send(chunk); ++i) {
  }
  EXPECT_THAT(client.read("limit of"), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, RefusesLongHeadersAndGarbage) {
  HttpServerOptions options;
  options.limits.max_header_bytes = 2000;
  start(echo(), options);
  const Client client(port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(4000, 'a') + "\r\n\r\n");
  EXPECT_THAT(client.read("431|"), StartsWith("HTTP/1.1 431 "));
  const Client garbage(port());
  garbage.send("\x16\x03\x01 not http\r\n\r\n");
  EXPECT_THAT(garbage.read("400|"), StartsWith("HTTP/1.1 400 "));
  const Client both(port());
  both.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc");
  EXPECT_THAT(both.read("400|"), StartsWith("HTTP/1.1 400 "));
}

TEST_F(HttpServerTest, SlowHeadersEndAtTheirDeadline) {
  HttpServerOptions options;
  options.limits.header_timeout = milliseconds(200);
  start(echo(), options);
  const Client slow(port());
  const Client silent(port());
  const auto begin = std::chrono::steady_clock::now();
  std::thread dribble([&slow] {
    for (const char c : std::string("GET / HTTP/1.1\r\nHost: xxxxxxxxxxxxxxxxxxxx")) {
      if (!slow.send(std::string(1, c))) return;
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  EXPECT_THAT(slow.read("408|"), StartsWith("HTTP/1.1 408 "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1500));
  EXPECT_EQ(silent.read(""), "<end>");
  dribble.join();
}

TEST_F(HttpServerTest, TurnsAwayWhatIsOverTheConnectionLimit) {
  HttpServerOptions options;
  options.max_connections = 2;
  start(echo(), options);
  const Client a(port());
  const Client b(port());
  a.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  b.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
  a.read("/a [] ");
  b.read("/b [] ");
  const Client c(port());
  c.send("GET /c HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string refused = c.read("");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(refused, ::testing::EndsWith("<end>"));
}

TEST_F(HttpServerTest, SeesAClientThatLeft) {
  std::atomic<bool> gone{false};
  start([&gone](const HttpRequest&, ResponseWriter& writer) {
    for (int i = 0; i < 500 && !writer.client_gone(); ++i) std::this_thread::sleep_for(milliseconds(10));
    gone = writer.client_gone();
  });
  Client client(port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(gone);
  client.close();
  for (int i = 0; i < 200 && server_->num_connections() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(gone);
  EXPECT_EQ(server_->num_connections(), 0);
}

TEST_F(HttpServerTest, AStalledReaderIsDropped) {
  HttpServerOptions options;
  options.limits.write_timeout = milliseconds(200);
  std::atomic<bool> write_failed{false};
  start(
      [&write_failed](const HttpRequest&, ResponseWriter& writer) {
        writer.begin_stream({});
        const std::string chunk(64 * 1024, 'x');
        for (int i = 0; i < 1000; ++i) {
          if (!writer.write(chunk)) {
            write_failed = true;
            return;
          }
        }
      },
      options);
  const Client client(port(), 4096);
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  for (int i = 0; i < 500 && !write_failed; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(write_failed);
}

TEST_F(HttpServerTest, ManyConnectionsAtOnceAreAllAnswered) {
  start(echo());
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<std::unique_ptr<Client>> clients;
      for (int i = 0; i < 40; ++i) clients.push_back(std::make_unique<Client>(port()));
      for (auto& client : clients) client->send("GET /m HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
      for (auto& client : clients) {
        if (client->read("").find("GET /m [] <end>") != std::string::npos) ++answered;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answered, 320);
}

TEST_F(HttpServerTest, StopClosesIdleConnectionsAndLetsRequestsFinish) {
  std::mutex mutex;
  std::condition_variable changed;
  bool release = false;
  bool entered = false;
  start([&](const HttpRequest& request, ResponseWriter& writer) {
    if (request.path == "/slow") {
      std::unique_lock<std::mutex> lock(mutex);
      entered = true;
      changed.notify_all();
      changed.wait(lock, [&] { return release; });
    }
    HttpResponse response;
    response.body = "done";
    writer.send(response);
  });
  const Client idle(port());
  idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.read("done");
  const Client slow(port());
  slow.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return entered; });
  }
  const int old_port = port();
  std::thread stopper([&] { EXPECT_TRUE(server_->stop(milliseconds(5000))); });
  EXPECT_EQ(idle.read(""), "<end>");
  // The listener closes a moment later; until then the kernel still accepts.
  bool refused = false;
  for (int i = 0; i < 200 && !refused; ++i) {
    refused = !Client(old_port).connected();
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(refused);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    release = true;
    changed.notify_all();
  }
  EXPECT_THAT(slow.read(""), HasSubstr("done<end>"));
  stopper.join();
}

TEST_F(HttpServerTest, StopCutsWhatDoesNotFinish) {
  start([](const HttpRequest&, ResponseWriter& writer) {
    while (!writer.client_gone()) std::this_thread::sleep_for(milliseconds(5));
  });
  const Client client(port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(server_->stop(milliseconds(50)));
  EXPECT_EQ(server_->num_connections(), 0);
}

TEST_F(HttpServerTest, APortInUseIsAnErrorThatNamesIt) {
  start(echo());
  HttpServerOptions options;
  options.host = "127.0.0.1";
  options.port = port();
  HttpServer second(options, echo(), [](int, std::string_view) { return std::string(); });
  const Status status = second.start();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr(std::to_string(port())));
}

TEST(SseTest, SplitsLinesOfAnyEnding) {
  EXPECT_EQ(sse_event("a"), "data: a\n\n");
  EXPECT_EQ(sse_event("a\r\nb\rc\nd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(sse_event(""), "data: \n\n");
  EXPECT_EQ(sse_comment("x"), ": x\n\n");
}

}  // namespace
}  // namespace quire
