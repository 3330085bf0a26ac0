#include "apps/interrupt.h"

#include <csignal>

namespace quire {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int) {
  interrupted = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a waiting read must notice
  ::sigaction(SIGINT, &action, nullptr);
}

bool take_interrupt() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

}  // namespace quire
