// Purpose: one connection as bytes with deadlines: every read and write ends, whatever the peer does.
// In: a connected socket. Out: bytes. Thread: one, the connection's own. Out of scope: HTTP
// (http_connection.h). TLS is another ByteStream over the same socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace quire {

using Deadline = std::chrono::steady_clock::time_point;

enum class IoStatus { kOk, kClosed, kTimeout, kInterrupted };

struct IoResult {
  IoStatus status = IoStatus::kOk;
  std::size_t bytes = 0;  // read; > 0 with kOk
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Some bytes, kClosed at the end of the stream or after an error, kTimeout at the deadline.
  virtual IoResult read_some(char* data, std::size_t size, Deadline deadline) = 0;
  // Waits for the first byte of a request; kInterrupted as soon as the server stops.
  virtual IoStatus wait_readable(Deadline deadline) = 0;
  // All bytes, or not kOk. stall_limit: the longest time without any progress.
  virtual IoStatus write_all(std::string_view bytes, std::chrono::milliseconds stall_limit) = 0;
  // True once the peer has closed or reset its side. A half-closed connection counts as gone, as in nginx and
  // Go's net/http: nobody can tell it from a client that left. Does not block.
  virtual bool peer_gone() = 0;
  // Closes our side, then reads and drops what still comes until the peer closes or the deadline passes. A
  // plain close with unread input would reset the connection, and the peer could lose the answer
  // (RFC 9112, 9.6).
  virtual void close_gently(Deadline deadline) = 0;
};

// fd stays the caller's to close, and is made non-blocking. interrupt_fd: becomes readable or hung up when
// the server stops; -1 = none.
class SocketStream final : public ByteStream {
 public:
  SocketStream(int fd, int interrupt_fd);

  IoResult read_some(char* data, std::size_t size, Deadline deadline) override;
  IoStatus wait_readable(Deadline deadline) override;
  IoStatus write_all(std::string_view bytes, std::chrono::milliseconds stall_limit) override;
  bool peer_gone() override;
  void close_gently(Deadline deadline) override;

 private:
  const int fd_;
  const int interrupt_fd_;
};

}  // namespace quire
