#include "net/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// Chat templates are interpreted on the connection's thread, up to TemplateLimits::max_depth deep. Only pages
// that are touched take memory. Sanitizers make frames several times larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 8u << 20;
#else
constexpr std::size_t kStackBytes = 1u << 20;
#endif
constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
// Bounds what a client that does not read can make the kernel hold for one stream.
constexpr int kSendBufferBytes = 256 * 1024;
constexpr std::size_t kMaxTurnedAway = 1024;
constexpr std::chrono::milliseconds kTurnAwayLinger{2000};

struct TurnedAway {
  int fd;
  Deadline until;
};

std::string error_text(int error) {
  return std::strerror(error);
}

Result<int> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return invalid(fmt::format("--uds: the path has {} bytes, at most {} are possible", path.size(),
                               sizeof address.sun_path - 1),
                   "uds");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  struct stat info {};
  // A socket left by a process that died may be replaced; anything else is not ours to remove.
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return invalid(fmt::format("--uds: {} exists and is not a socket", path), "uds");
    }
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool in_use =
        probe >= 0 && ::connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (probe >= 0) ::close(probe);
    if (in_use) {
      return make_error(ErrorCode::kIo, fmt::format("--uds: another process listens on {}", path), "uds");
    }
    ::unlink(path.c_str());
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return make_error(ErrorCode::kIo, fmt::format("cannot listen on {}: {}", path, error_text(error)), "uds");
  }
  return fd;
}

Result<int> listen_tcp(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int lookup = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found);
  if (lookup != 0) {
    return invalid(fmt::format("--host: cannot resolve '{}': {}", host, ::gai_strerror(lookup)), "host");
  }
  int error = EADDRNOTAVAIL;
  int fd = -1;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0) {
      error = errno;
      continue;
    }
    const int on = 1;
    const int off = 0;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(fd, at->ai_addr, at->ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0) {
      error = errno;
      ::close(fd);
      fd = -1;
    }
  }
  ::freeaddrinfo(found);
  if (fd < 0) {
    return make_error(ErrorCode::kIo,
                      fmt::format("cannot listen on {} port {}: {}; choose another with --port", host, port,
                                  error_text(error)),
                      "port");
  }
  return fd;
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return 0;
}

}  // namespace

struct HttpServer::Impl {
  HttpServerOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;

  int listener = -1;
  int port = 0;
  int stop_read = -1;  // hangs up when stop_write is closed: that wakes every waiting thread
  int stop_write = -1;
  std::thread acceptor;
  std::thread turner;

  std::mutex mutex;
  std::condition_variable all_gone;
  std::set<int> open;  // descriptors of live connections; a thread removes its own before closing it
  std::vector<TurnedAway> turned_away;
  std::atomic<bool> stopping{false};

  struct Job {
    Impl* server;
    int fd;
  };

  static void* run_connection(void* argument) {
    const std::unique_ptr<Job> job(static_cast<Job*>(argument));
    job->server->serve(job->fd);
    return nullptr;
  }

  void serve(int fd) {
    SocketStream stream(fd, stop_read);
    try {
      serve_http_connection(stream, options.limits, handler, error_body,
                            [this] { return stopping.load(std::memory_order_relaxed); });
    } catch (const std::exception& error) {
      // Only out-of-memory can come here. This connection is lost, the others are not.
      log_error("a connection ended with an exception: {}", error.what());
    }
    // Closed under the lock: stop() must never shut down a number that the kernel has given to somebody else.
    const std::lock_guard<std::mutex> lock(mutex);
    open.erase(fd);
    ::close(fd);
    all_gone.notify_all();  // under the lock: stop() may destroy this object as soon as it sees the set empty
  }

  bool start_thread(int fd) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    auto job = std::make_unique<Job>(Job{this, fd});
    pthread_t thread;
    const int error = ::pthread_create(&thread, &attributes, &run_connection, job.get());
    ::pthread_attr_destroy(&attributes);
    if (error != 0) return false;
    job.release();
    return true;
  }

  void turn_away(int fd) {
    const std::string body = error_body(503, "Too many connections are open; try again shortly.");
    const std::string answer = fmt::format(
        "HTTP/1.1 503 {}\r\nServer: quire\r\nContent-Type: application/json\r\nRetry-After: "
        "1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
        http_reason(503), body.size(), body);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    // A new connection's send buffer takes these few hundred bytes at once.
    if (::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) {
      ::close(fd);
      return;
    }
    ::shutdown(fd, SHUT_WR);
    const std::lock_guard<std::mutex> lock(mutex);
    if (turned_away.size() >= kMaxTurnedAway) {
      ::close(fd);
      return;
    }
    turned_away.push_back({fd, Clock::now() + kTurnAwayLinger});
  }

  // Reads and drops what the turned-away still send until they close, so that our answer is not lost to a
  // reset.
  void run_turner() {
    std::array<char, 16 * 1024> dropped;
    while (!stopping.load(std::memory_order_relaxed)) {
      pollfd stop{stop_read, POLLIN, 0};
      ::poll(&stop, 1, 20);
      const std::lock_guard<std::mutex> lock(mutex);
      std::erase_if(turned_away, [&](const TurnedAway& one) {
        ssize_t got = 0;
        int rounds = 0;
        do {
          got = ::recv(one.fd, dropped.data(), dropped.size(), 0);
        } while (got > 0 && ++rounds < 64);
        const bool waiting = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
        if (waiting && Clock::now() < one.until) return false;
        ::close(one.fd);
        return true;
      });
    }
    const std::lock_guard<std::mutex> lock(mutex);
    for (const TurnedAway& one : turned_away) ::close(one.fd);
    turned_away.clear();
  }

  void run_acceptor() {
    while (!stopping.load(std::memory_order_relaxed)) {
      std::array<pollfd, 2> waits{{{listener, POLLIN, 0}, {stop_read, POLLIN, 0}}};
      if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) break;
      if (waits[1].revents != 0) break;
      if (waits[0].revents == 0) continue;
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        // Out of descriptors: wait for some to be freed rather than spin.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
          log_warning("cannot accept a connection: {}", error_text(errno));
          ::poll(nullptr, 0, 50);
        }
        continue;
      }
      if (options.unix_path.empty()) {
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      }
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
      bool admitted = false;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        admitted = static_cast<int>(open.size()) < options.max_connections;
        if (admitted) open.insert(fd);
      }
      if (admitted && !start_thread(fd)) {
        const std::lock_guard<std::mutex> lock(mutex);
        open.erase(fd);
        admitted = false;
      }
      if (!admitted) turn_away(fd);
    }
  }
};

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler, HttpErrorBody error_body)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->handler = std::move(handler);
  impl_->error_body = std::move(error_body);
}

HttpServer::~HttpServer() {
  stop(std::chrono::milliseconds(0));
}

Status HttpServer::start() {
  Impl& s = *impl_;
  QUIRE_TRY(s.listener, s.options.unix_path.empty() ? listen_tcp(s.options.host, s.options.port)
                                                    : listen_unix(s.options.unix_path));
  s.port = bound_port(s.listener);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return make_error(ErrorCode::kIo, "cannot make a pipe: " + error_text(errno));
  }
  s.stop_read = ends[0];
  s.stop_write = ends[1];
  s.acceptor = std::thread([&s] { s.run_acceptor(); });
  s.turner = std::thread([&s] { s.run_turner(); });
  return {};
}

int HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::address() const {
  const HttpServerOptions& options = impl_->options;
  if (!options.unix_path.empty()) return "unix:" + options.unix_path;
  const bool v6 = options.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", options.host, v6 ? "]" : "", impl_->port);
}

int HttpServer::num_connections() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return static_cast<int>(impl_->open.size());
}

void HttpServer::close_listener() {
  Impl& s = *impl_;
  if (s.stopping.exchange(true)) return;
  if (s.stop_write >= 0) ::close(std::exchange(s.stop_write, -1));
  if (s.acceptor.joinable()) s.acceptor.join();
  if (s.turner.joinable()) s.turner.join();
  if (s.listener >= 0) {
    ::close(std::exchange(s.listener, -1));
    if (!s.options.unix_path.empty()) ::unlink(s.options.unix_path.c_str());
  }
}

bool HttpServer::stop(std::chrono::milliseconds deadline) {
  Impl& s = *impl_;
  close_listener();
  std::unique_lock<std::mutex> lock(s.mutex);
  const bool clean = s.all_gone.wait_for(lock, deadline, [&s] { return s.open.empty(); });
  if (!clean) {
    for (const int fd : s.open) ::shutdown(fd, SHUT_RDWR);
    s.all_gone.wait(lock, [&s] { return s.open.empty(); });
  }
  if (s.stop_read >= 0) ::close(std::exchange(s.stop_read, -1));
  return clean;
}

}  // namespace quire
