// The end of an operation in which members read each other's buffers directly.
#pragma once

#include "comm/transfer.hpp"
#include "control/group.hpp"

namespace dsc {

// Returns true if no other member still reads this rank's send buffer. Every member arrives once it has read
// all its data.
inline bool readers_arrived(Group& group, const Transfer& transfer) noexcept {
  if (!transfer.sends(transfer.rank)) return true;
  for (int member = 0; member < transfer.size; ++member)
    if (transfer.receives(member) && !group.member_arrived(member)) return false;
  return true;
}

}  // namespace dsc
