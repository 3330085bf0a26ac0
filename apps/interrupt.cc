#include "apps/interrupt.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/check.h"

namespace quire {
namespace {

// A byte in the pipe is an interrupt not yet taken ("self-pipe trick", D. J. Bernstein).
int interrupts[2] = {-1, -1};

void on_interrupt(int) {
  const int saved = errno;
  const char byte = 0;
  [[maybe_unused]] const auto written = ::write(interrupts[1], &byte, 1);  // a full pipe has said it already
  errno = saved;
}

}  // namespace

void catch_interrupts() {
  QUIRE_CHECK_EQ(::pipe2(interrupts, O_CLOEXEC | O_NONBLOCK), 0);
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
}

bool take_interrupt() {
  char bytes[64];
  bool taken = false;
  while (::read(interrupts[0], bytes, sizeof bytes) > 0) taken = true;
  return taken;
}

bool wait_for_input(int fd) {
  for (;;) {
    pollfd waits[] = {{interrupts[0], POLLIN, 0}, {fd, POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return true;  // let the read say what is wrong
    }
    if (waits[0].revents != 0 && take_interrupt()) return false;
    if (waits[1].revents != 0) return true;
  }
}

}  // namespace quire
