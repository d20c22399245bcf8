// Matches the records of all ranks: those of one collective, and those of the two ends of a message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dscctl/trace/dump.hpp"

namespace dscctl::trace {

struct Participant {
  int rank = 0;                  // rank in the world
  const Dump* dump = nullptr;    // null: there is no dump of this rank
  const Entry* entry = nullptr;  // null: this rank has no record of the operation
};

// A collective or a message. A message has the sender first and the receiver second.
struct Operation {
  size_t group = 0;
  int64_t sequence = 0;
  bool is_message = false;
  std::vector<Participant> participants;  // in the order of the group's ranks

  const Entry& any_entry() const;  // there is always at least one
  bool on_device() const { return any_entry().on_device; }
};

// Returns collectives by group and number, then messages by group, sender, receiver and number. The results
// point into the trace.
std::vector<Operation> match(const Trace& trace);

// Returns text such as: collective 812 (all_reduce) of group "world"; message number 3 from rank 0 to rank 1
// of group "world".
std::string title(const Trace& trace, const Operation& operation);
// Returns the title as one rank sees the operation, such as: send number 3 to rank 1 of group "world".
std::string title(const Trace& trace, const Entry& entry);

}  // namespace dscctl::trace
