// Reductions over the data of all hosts, every element in the order of hosts.
#pragma once

#include "transport/shares.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

inline constexpr int32_t kNobody = -1;
inline constexpr int32_t kEverybody = -2;

// What this host has, and where results go; both may be one.
struct CombineMemory {
  const std::byte* in;
  std::byte* out;
};

// For small data: it is posted whole to the root, or to everybody, and combined there. At most
// TransportChannel::kSlotBytes.
void combine_whole(Mesh& mesh, CombineMemory memory, size_t count, const ReduceSpec& spec, int32_t root,
                   Deadline deadline);

// Each host combines its share, from pieces of all others, in its place of `out`, and puts the result to the
// root or to everybody. For nobody, `out` is the share alone.
void combine_shares(Mesh& mesh, CombineMemory memory, const Shares& shares, const ReduceSpec& spec,
                    int32_t root, Deadline deadline);

}  // namespace dsc
