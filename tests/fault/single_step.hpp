// Kills or stops the process at an exact instruction of the calling thread. The processor traps after every
// instruction, and a counter decides.
#pragma once

#include <cstdint>

namespace fault {

// Returns false on processors and under sanitizers that do not support this. Then the other functions do
// nothing.
bool can_single_step();

// Counts the instructions of this thread from now on. At number `instructions` the process sends itself
// `signal`.
void arm(int64_t instructions, int signal);
// Returns the number of instructions since arm(), in the library and in the C library.
int64_t disarm();

}  // namespace fault
