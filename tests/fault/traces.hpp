// What a process can leave behind: processes, files, sockets, descriptors.
#pragma once

#include <set>
#include <string>

namespace fault {

// Gives this process and its children their own /dev/shm, folder for temporary files and network, so that
// whatever shows up there is theirs. False where the system does not let it; then only traces with a libdsc
// name count. Orphans become children of this process. Call once, before anything else.
bool isolate();

class Traces {
 public:
  Traces() : before_(collect()) {}
  // What is there now and was not before, as text; empty: nothing. Waits a moment for what is about to go.
  std::string left() const;

 private:
  static std::set<std::string> collect();
  const std::set<std::string> before_;
};

}  // namespace fault
