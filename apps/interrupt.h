// Purpose: Ctrl-C for commands that answer in the terminal: it stops an answer, not the program.
// Thread: the handler may run on any; one command per process uses it.
#pragma once

namespace quire {

// SIGINT is noted instead of ending the program.
void catch_interrupts();
// Whether SIGINT has come since the last call.
bool take_interrupt();
// Waits until there is something to read from fd (or its end): true. False if SIGINT comes first, or came
// before; that takes it. Not left to read() and EINTR: the signal may reach another thread, or just before
// the read.
bool wait_for_input(int fd);

}  // namespace quire
