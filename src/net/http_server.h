// Purpose: listen, and give every connection a thread of its own. In: address and limits. Out: HttpRequests
// to the handler, which runs on the connection's thread. Thread: start(), stop() and the counters from any.
// Overload: beyond max_connections a connection is answered 503 with Retry-After at once, and closed.
// Out of scope: paths, JSON, authentication (api/); TLS (another ByteStream).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/http_connection.h"
#include "net/http_message.h"

namespace quire {

struct HttpServerOptions {
  std::string host = "0.0.0.0";  // IPv4, IPv6 ("::" listens on both) or a name
  int port = 8000;               // 0 = any free port, see port()
  std::string unix_path;         // listens here instead, if not ""
  int max_connections = 1024;
  HttpLimits limits;
};

class HttpServer {
 public:
  HttpServer(HttpServerOptions options, HttpHandler handler, HttpErrorBody error_body);
  ~HttpServer();  // stop(0)

  // Binds and begins to accept. Errors name the address.
  Status start();
  int port() const;             // the one really bound
  std::string address() const;  // "http://127.0.0.1:8000" or "unix:/path"
  int num_connections() const;
  // Accepts no more and closes idle connections; those in a request may finish it until the deadline, then
  // they are cut. True if none had to be cut. A second call only waits again.
  bool stop(std::chrono::milliseconds deadline);
  // Only stops accepting and ends keep-alive; returns at once.
  void close_listener();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
