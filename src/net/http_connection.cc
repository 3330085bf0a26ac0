// GCC 12 with a sanitizer sees an empty boost::optional inside Beast as uninitialized (a false alarm), at the
// end of the file, where the templates are made.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "net/http_connection.h"

#include <optional>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

namespace quire {
namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

constexpr std::size_t kReadBytes = 64 * 1024;

// What one connection remembers between requests.
struct Connection {
  ByteStream& stream;
  const HttpLimits& limits;
  boost::beast::flat_buffer input;  // read, not yet parsed
};

class ConnectionWriter final : public ResponseWriter {
 public:
  ConnectionWriter(ByteStream& stream, const HttpLimits& limits, bool head_only, bool http_1_0,
                   bool keep_alive)
      : stream_(stream),
        limits_(limits),
        head_only_(head_only),
        http_1_0_(http_1_0),
        keep_alive_(keep_alive) {}

  bool send(const HttpResponse& response) override {
    if (answered_) return false;
    answered_ = complete_ = true;
    std::string bytes = head(response);
    bytes += fmt::format("Content-Length: {}\r\n\r\n", response.body.size());
    if (!head_only_) bytes += response.body;
    return put(bytes);
  }

  bool begin_stream(const HttpResponse& response) override {
    if (answered_) return false;
    answered_ = true;
    chunked_ = !http_1_0_;
    if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection is the end of the body
    std::string bytes = head(response);
    // For proxies: an event must not wait in a buffer.
    bytes += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
    bytes += chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
    return put(bytes);
  }

  bool write(std::string_view bytes) override {
    if (!answered_ || complete_ || bytes.empty()) return alive_;
    if (head_only_) return alive_;
    if (!chunked_) return put(bytes);
    std::string chunk = fmt::format("{:x}\r\n", bytes.size());
    chunk.append(bytes);
    chunk += "\r\n";
    return put(chunk);
  }

  bool end_stream(bool close_after) override {
    if (!answered_ || complete_) return alive_;
    complete_ = true;
    if (close_after) keep_alive_ = false;
    return chunked_ && !head_only_ ? put("0\r\n\r\n") : alive_;
  }

  bool client_gone() override {
    if (alive_ && stream_.peer_gone()) alive_ = false;
    return !alive_;
  }

  void close_after_this() { keep_alive_ = false; }
  bool answered() const { return answered_; }
  bool complete() const { return complete_; }
  bool alive() const { return alive_; }
  bool keep_alive() const { return keep_alive_; }

 private:
  std::string head(const HttpResponse& response) const {
    std::string bytes =
        fmt::format("HTTP/1.1 {} {}\r\nServer: quire\r\n", response.status, http_reason(response.status));
    if (!response.content_type.empty()) bytes += fmt::format("Content-Type: {}\r\n", response.content_type);
    for (const auto& [name, value] : response.headers) bytes += fmt::format("{}: {}\r\n", name, value);
    bytes += keep_alive_ ? (http_1_0_ ? "Connection: keep-alive\r\n" : "") : "Connection: close\r\n";
    return bytes;
  }

  bool put(std::string_view bytes) {
    if (alive_ && stream_.write_all(bytes, limits_.write_timeout) != IoStatus::kOk) alive_ = false;
    return alive_;
  }

  ByteStream& stream_;
  const HttpLimits& limits_;
  const bool head_only_;
  const bool http_1_0_;
  bool keep_alive_;
  bool answered_ = false;
  bool complete_ = false;
  bool chunked_ = false;
  bool alive_ = true;
};

struct ParseFailure {
  int status = 0;  // 0 = nobody is there to answer
  std::string message;
};

ParseFailure describe(const boost::system::error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit) {
    return {413,
            fmt::format("The request body is larger than the limit of {} bytes.", limits.max_body_bytes)};
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, fmt::format("The request headers are larger than the limit of {} bytes.",
                             limits.max_header_bytes)};
  }
  if (error == http::error::bad_version) return {505, "Only HTTP/1.0 and HTTP/1.1 are spoken here."};
  return {400, "Malformed HTTP request: " + error.message() + "."};
}

// Feeds the parser until the headers (header_only) or the whole message are read.
std::optional<ParseFailure> parse_until(Connection& connection, Parser& parser, bool header_only,
                                        Deadline deadline) {
  const auto finished = [&] { return header_only ? parser.is_header_done() : parser.is_done(); };
  bool need_input = connection.input.size() == 0;
  while (!finished()) {
    if (need_input) {
      const auto space = connection.input.prepare(kReadBytes);
      const IoResult got =
          connection.stream.read_some(static_cast<char*>(space.data()), space.size(), deadline);
      if (got.status == IoStatus::kTimeout) {
        return ParseFailure{408, header_only ? "The request headers took too long to arrive."
                                             : "The request body took too long to arrive."};
      }
      if (got.status != IoStatus::kOk) return ParseFailure{};
      connection.input.commit(got.bytes);
    }
    boost::system::error_code error;
    const std::size_t used = parser.put(connection.input.data(), error);
    connection.input.consume(used);
    if (error && error != http::error::need_more) return describe(error, connection.limits);
    need_input = error == http::error::need_more || connection.input.size() == 0;
  }
  return std::nullopt;
}

HttpRequest to_request(Parser& parser) {
  HttpRequest request;
  auto message = parser.release();
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const std::size_t mark = target.find('?');
  request.path = std::string(target.substr(0, mark));
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.body = std::move(message.body());
  return request;
}

// One request and its answer. False ends the connection.
bool serve_one(Connection& connection, const HttpHandler& handler, const HttpErrorBody& error_body,
               const std::function<bool()>& stopping) {
  const HttpLimits& limits = connection.limits;
  const auto refuse = [&](const ParseFailure& failure) {
    if (failure.status != 0) {
      ConnectionWriter writer(connection.stream, limits, false, false, false);
      HttpResponse response;
      response.status = failure.status;
      response.body = error_body(failure.status, failure.message);
      if (writer.send(response)) connection.stream.close_gently(Clock::now() + limits.linger);
    }
    return false;
  };

  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
  parser.body_limit(limits.max_body_bytes);
  if (auto failure = parse_until(connection, parser, true, Clock::now() + limits.header_timeout)) {
    return refuse(*failure);
  }
  const unsigned version = parser.get().version();
  if (version != 10 && version != 11) return refuse({505, "Only HTTP/1.0 and HTTP/1.1 are spoken here."});
  if (!parser.is_done()) {
    const auto expect = parser.get()[http::field::expect];
    if (!expect.empty()) {
      if (!boost::beast::iequals(expect, "100-continue")) return refuse({417, "Unknown expectation."});
      const auto status = connection.stream.write_all("HTTP/1.1 100 Continue\r\n\r\n", limits.write_timeout);
      if (status != IoStatus::kOk) return false;
    }
    parser.eager(true);
    if (auto failure = parse_until(connection, parser, false, Clock::now() + limits.body_timeout)) {
      return refuse(*failure);
    }
  }

  const bool keep_alive = parser.keep_alive() && !stopping();
  const HttpRequest request = to_request(parser);
  ConnectionWriter writer(connection.stream, limits, request.method == "HEAD", version == 10, keep_alive);
  handler(request, writer);
  if (!writer.answered()) {
    HttpResponse response;
    response.status = 500;
    response.body = error_body(500, "The request was not answered.");
    writer.close_after_this();
    writer.send(response);
  }
  if (!writer.alive() || !writer.complete()) return false;
  if (writer.keep_alive() && !stopping()) return true;
  // The whole request has been read, so there is nothing to wait for.
  connection.stream.close_gently(Clock::now());
  return false;
}

}  // namespace

void serve_http_connection(ByteStream& stream, const HttpLimits& limits, const HttpHandler& handler,
                           const HttpErrorBody& error_body, const std::function<bool()>& stopping) {
  Connection connection{stream, limits, {}};
  bool first = true;
  do {
    // A new connection has the header timeout to begin; one kept alive may stay idle for longer.
    if (connection.input.size() == 0) {
      const auto patience = first ? limits.header_timeout : limits.keep_alive_timeout;
      if (stream.wait_readable(Clock::now() + patience) != IoStatus::kOk) return;
    }
    first = false;
  } while (serve_one(connection, handler, error_body, stopping));
}

}  // namespace quire
