// Death, or a stop, at an exact instruction of the calling thread: the processor traps after every one, and a
// counter decides.
#pragma once

#include <cstdint>

namespace fault {

// False on processors and under sanitizers that this does not work with: then nothing happens.
bool can_single_step();

// From now on this thread's instructions are counted; at number `instructions` the process sends itself
// `signal`.
void arm(int64_t instructions, int signal);
// Gives the instructions since arm(), those of the library's own and of the C library.
int64_t disarm();

}  // namespace fault
