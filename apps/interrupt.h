// Purpose: Ctrl-C for commands that answer in the terminal: it stops an answer, not the program.
// Thread: the handler may run on any; one command per process uses it.
#pragma once

namespace quire {

// SIGINT sets a flag instead of ending the program; blocking reads return with EINTR.
void catch_interrupts();
// Whether SIGINT has come since the last call.
bool take_interrupt();

}  // namespace quire
