// Purpose: what the server gives to a handler and gets back: plain values and the way to answer.
// Thread: one connection. Out of scope: JSON and which paths exist (api/routes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET", as sent
  std::string path;     // the target before '?', as sent: percent-encoding is not undone
  std::string query;    // after '?', or ""
  HttpHeaders headers;  // names in lower case
  std::string body;
  // The first header of this name (lower case), or "".
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// How a handler answers: send() once, or begin_stream(), write()..., end_stream(). The functions return false
// when the client is gone or has stalled too long; the handler then stops its work.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual bool send(const HttpResponse& response) = 0;
  // response.body is not used.
  virtual bool begin_stream(const HttpResponse& response) = 0;
  virtual bool write(std::string_view bytes) = 0;
  // close_after: this connection ends here (the stream broke off with an error).
  virtual bool end_stream(bool close_after) = 0;
  virtual bool client_gone() = 0;
};

using HttpHandler = std::function<void(const HttpRequest&, ResponseWriter&)>;

std::string_view http_reason(int status);
// Standard errors of HTTP itself are answered in the shape of the API that runs on it: message -> body.
using HttpErrorBody = std::function<std::string(int status, std::string_view message)>;

}  // namespace quire
