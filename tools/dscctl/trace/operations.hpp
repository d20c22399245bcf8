// What belongs together: one operation as its ranks recorded it, one message as its two ends did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dscctl/trace/dump.hpp"

namespace dscctl::trace {

struct Participant {
  int rank = 0;                  // in the world
  const Dump* dump = nullptr;    // null: no dump of this rank
  const Entry* entry = nullptr;  // null: this rank has no record of the operation
};

// A collective, or a message with the sender first and the receiver second.
struct Operation {
  size_t group = 0;
  int64_t sequence = 0;
  bool is_message = false;
  std::vector<Participant> participants;  // in the order of the group's ranks

  const Entry& any_entry() const;  // there is always one
  bool on_device() const { return any_entry().on_device; }
};

// Collectives by group and number, then messages by group, sender, receiver and number. Points into the
// trace.
std::vector<Operation> match(const Trace& trace);

// collective 812 (all_reduce) of group "world"; message number 3 from rank 0 to rank 1 of group "world".
std::string title(const Trace& trace, const Operation& operation);
// The same as one rank sees it: send number 3 to rank 1 of group "world".
std::string title(const Trace& trace, const Entry& entry);

}  // namespace dscctl::trace
