// Purpose: HTTP/1.0 and 1.1 on one connection: requests in, answers out, one after another until it closes.
// In: bytes of a ByteStream. Out: HttpRequests to the handler. Thread: the connection's own.
#pragma once

#include <chrono>
#include <cstddef>

#include "net/byte_stream.h"
#include "net/http_message.h"

namespace quire {

struct HttpLimits {
  std::size_t max_header_bytes = 32 * 1024;
  std::size_t max_body_bytes = 32u << 20;
  // From the connection (or the first byte of a later request) to the end of the headers, in all.
  std::chrono::milliseconds header_timeout{10'000};
  // From the end of the headers to the end of the body, in all.
  std::chrono::milliseconds body_timeout{60'000};
  // Longest time that a write may make no progress.
  std::chrono::milliseconds write_timeout{30'000};
  std::chrono::milliseconds keep_alive_timeout{60'000};
  // After an answer that ends the connection: how long the peer's remaining input is read and dropped.
  std::chrono::milliseconds linger{3'000};
};

// Returns when the connection has ended. stopping: asked after each answer; true ends keep-alive.
void serve_http_connection(ByteStream& stream, const HttpLimits& limits, const HttpHandler& handler,
                           const HttpErrorBody& error_body, const std::function<bool()>& stopping);

}  // namespace quire
