// Reductions over the data of all hosts. Every element is combined in the order of hosts.
#pragma once

#include "transport/shares.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

inline constexpr int32_t kNobody = -1;
inline constexpr int32_t kEverybody = -2;

// The input of this host, and the memory for the result. They may be the same memory.
struct CombineMemory {
  const std::byte* in;
  std::byte* out;
};

// For small data. Every host posts its whole input to the root, or to all hosts, and the receivers combine
// it. The data may have at most TransportChannel::kSlotBytes.
void combine_whole(Connections& connections, CombineMemory memory, size_t count, const ReduceSpec& spec,
                   int32_t root, Deadline deadline);

// For large data. Each host combines one share: it receives the pieces of all other hosts, and writes the
// result at the share's offset in `out`. Then it puts the result to the root or to all hosts. With root
// kNobody, `out` has space for this share only.
void combine_shares(Connections& connections, CombineMemory memory, const Shares& shares,
                    const ReduceSpec& spec, int32_t root, Deadline deadline);

}  // namespace dsc
