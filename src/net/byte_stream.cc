#include "net/byte_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quire {
namespace {

// Milliseconds until the deadline, rounded up so that poll() does not spin before it; 0 if it has passed.
int poll_timeout(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= std::chrono::steady_clock::duration::zero()) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::chrono::milliseconds::rep>(ms, 3'600'000));
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

SocketStream::SocketStream(int fd, int interrupt_fd) : fd_(fd), interrupt_fd_(interrupt_fd) {
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

IoResult SocketStream::read_some(char* data, std::size_t size, Deadline deadline) {
  for (;;) {
    const ssize_t got = ::recv(fd_, data, size, 0);
    if (got > 0) return {IoStatus::kOk, static_cast<std::size_t>(got)};
    if (got == 0 || !would_block(errno)) return {IoStatus::kClosed, 0};
    const int timeout = poll_timeout(deadline);
    if (timeout == 0) return {IoStatus::kTimeout, 0};
    pollfd wait{fd_, POLLIN, 0};
    ::poll(&wait, 1, timeout);
  }
}

IoStatus SocketStream::wait_readable(Deadline deadline) {
  for (;;) {
    // poll() ignores negative descriptors, so a stream without an interrupt needs no other path.
    std::array<pollfd, 2> waits{{{fd_, POLLIN, 0}, {interrupt_fd_, POLLIN, 0}}};
    const int timeout = poll_timeout(deadline);
    const int ready = ::poll(waits.data(), waits.size(), timeout);
    if (ready > 0) {
      if (waits[0].revents != 0) return IoStatus::kOk;
      return IoStatus::kInterrupted;
    }
    if (ready == 0 && timeout == 0) return IoStatus::kTimeout;
    if (ready < 0 && errno != EINTR) return IoStatus::kClosed;
  }
}

IoStatus SocketStream::write_all(std::string_view bytes, std::chrono::milliseconds stall_limit) {
  Deadline deadline = std::chrono::steady_clock::now() + stall_limit;
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      deadline = std::chrono::steady_clock::now() + stall_limit;
      continue;
    }
    if (sent < 0 && !would_block(errno)) return IoStatus::kClosed;
    const int timeout = poll_timeout(deadline);
    if (timeout == 0) return IoStatus::kTimeout;
    pollfd wait{fd_, POLLOUT, 0};
    ::poll(&wait, 1, timeout);
    if ((wait.revents & (POLLERR | POLLHUP)) != 0) return IoStatus::kClosed;
  }
  return IoStatus::kOk;
}

bool SocketStream::peer_gone() {
  pollfd state{fd_, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void SocketStream::close_gently(Deadline deadline) {
  ::shutdown(fd_, SHUT_WR);
  std::array<char, 16 * 1024> dropped;
  while (read_some(dropped.data(), dropped.size(), deadline).status == IoStatus::kOk) {
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
}

}  // namespace quire
