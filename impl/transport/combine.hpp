// Reductions over the data of all hosts, in which every element is combined in the order of hosts.
#pragma once

#include "transport/shares.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

inline constexpr int32_t kNobody = -1;
inline constexpr int32_t kEverybody = -2;

// The input of this host and the destination of the result; both may be the same memory.
struct CombineMemory {
  const std::byte* in;
  std::byte* out;
};

// For small data: every host posts its whole input to the root, or to all hosts, which combine it. At most
// TransportChannel::kSlotBytes.
void combine_whole(Connections& connections, CombineMemory memory, size_t count, const ReduceSpec& spec,
                   int32_t root, Deadline deadline);

// For large data: each host combines its share from the pieces of all others, at the share's offset in `out`,
// and puts the result to the root or to all hosts. With root kNobody, `out` holds only the share.
void combine_shares(Connections& connections, CombineMemory memory, const Shares& shares,
                    const ReduceSpec& spec, int32_t root, Deadline deadline);

}  // namespace dsc
