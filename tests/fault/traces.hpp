// What a process can leave behind: processes, files, sockets, descriptors.
#pragma once

#include <set>
#include <string>

namespace fault {

// Gives this process and its children a private /dev/shm, temporary folder and network, so that everything
// found there is theirs. Returns false where the system does not allow it; then only traces with a libdsc
// name count. Orphans become children of this process. Call it once, before anything else.
bool isolate();

class Traces {
 public:
  Traces() : before_(collect()) {}
  // Lists what exists now and did not exist before. Empty if there is nothing. First waits a moment for
  // things that are about to disappear.
  std::string left() const;

 private:
  static std::set<std::string> collect();
  const std::set<std::string> before_;
};

}  // namespace fault
