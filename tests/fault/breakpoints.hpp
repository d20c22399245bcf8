// Places in the library's code at which a process dies. The tests use the library as it is shipped, so it has
// no hooks for this. A trap instruction is written over the code in the memory of one process only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fault {

// The beginning of a statement in machine code, from the debug information.
struct CodeLocation {
  uintptr_t address;
  std::string name;  // "collective.cpp:57"
};

// Returns the statements in the sources of these folders, such as "impl/engine_host/", ordered by address.
// The list is empty without debug information or objdump, and on a processor whose trap instruction is not
// known here.
std::vector<CodeLocation> places_in(const std::vector<std::string>& folders);

// From now on this process is killed when it reaches the place.
void die_at(const CodeLocation& place);

// From now on each place that this process reaches is marked in `visited`. The list of places must stay
// alive.
void mark_visits(const std::vector<CodeLocation>& places, uint8_t* visited);

}  // namespace fault
