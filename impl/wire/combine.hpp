// Reductions over the data of all hosts, every element in the order of hosts.
#pragma once

#include "wire/shares.hpp"
#include "wire/wire.hpp"

namespace dsc {

inline constexpr int32_t kNobody = -1;
inline constexpr int32_t kEverybody = -2;

// For small data: it is posted whole to the root, or to everybody, and combined there. At most
// WireChannel::kSlotBytes.
void combine_whole(Mesh& mesh, std::byte* data, size_t count, const ReduceSpec& spec, int32_t root,
                   Deadline deadline);

// Each host combines its share, from pieces of all others, and puts the result to the root, or to everybody,
// or to nobody; then it is with this host alone.
void combine_shares(Mesh& mesh, std::byte* data, const Shares& shares, const ReduceSpec& spec, int32_t root,
                    Deadline deadline);

}  // namespace dsc
