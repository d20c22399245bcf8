// Places in the library's code at which a process stops to live: the library under test is the one that is
// shipped, and needs no hooks. A trap instruction is written over the code of this process alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fault {

// Where a statement begins in machine code, as the debug information tells.
struct GridIndex {
  uintptr_t address;
  std::string name;  // "collective.cpp:57"
};

// Statements of the sources below these folders, such as "impl/engine_host/", in the order of their
// addresses. Empty without debug information or objdump, or where nothing is known of this machine's
// instructions.
std::vector<GridIndex> places_in(const std::vector<std::string>& folders);

// From now on, this process is killed where it comes to the place.
void die_at(const GridIndex& place);

// From now on, each place that this process comes to is marked. The list must live on.
void mark_visits(const std::vector<GridIndex>& places, uint8_t* visited);

}  // namespace fault
